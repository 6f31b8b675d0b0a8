//! A run's past as messages, for reading it page by page.
//!
//! Ids are made from the record's number, so that nothing has to be stored for them and a page can begin at any id.

use qd_wire::run_protocol::Envelope;
use serde::Serialize;
use serde_json::Value;

use super::SessionKind;
use super::event::{EventClass, is_shown, show};
use super::record::Record;

/// Events that one record may become; ids leave room for them.
const EVENTS_PER_RECORD_MAX: u64 = 8;

/// What is in the list: the document's events, and how questions were decided.
const KINDS: [&str; 9] = [
    "run.started",
    "run.output",
    "run.input",
    "run.awaiting_input",
    "run.permission_requested",
    "run.permission_decided",
    "run.exited",
    "tool.call",
    "tool.result",
];

/// One line of a run's past.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryMessage {
    /// Grows with time within the run.
    pub id: u64,
    pub seq: Option<u64>,
    pub ts: Option<String>,
    /// `assistant` for output, `user` for input, else `system`.
    pub role: &'static str,
    /// The event's type.
    pub kind: String,
    pub actor: Option<String>,
    pub request_id: Option<String>,
    pub text: Option<String>,
    pub data: Value,
}

/// The messages of a record, oldest first.
pub fn messages(kind: SessionKind, record: &Record<'_>, include_output: bool) -> Vec<HistoryMessage> {
    let mut found = Vec::new();
    if !is_shown(kind, &record.event) {
        return found;
    }
    let mut number = 0;
    show(kind, record, &mut |shown| {
        let id = first_id(record.seq) + number;
        number = (number + 1).min(EVENTS_PER_RECORD_MAX - 1);
        let is_wanted =
            KINDS.contains(&shown.name) && (include_output || shown.class() != EventClass::Output);
        if is_wanted && let Ok(envelope) = serde_json::from_str(&shown.pieces.concat()) {
            found.push(message(id, envelope));
        }
    });
    found
}

/// The id of the first message of a record.
pub fn first_id(seq: u64) -> u64 {
    seq.saturating_mul(EVENTS_PER_RECORD_MAX)
}

/// The first record of which no message has a smaller id.
pub fn seq_before(id: u64) -> u64 {
    id.div_ceil(EVENTS_PER_RECORD_MAX)
}

fn message(id: u64, envelope: Envelope) -> HistoryMessage {
    let Envelope { kind, ts, seq, data, .. } = envelope;
    let text = |name: &str| data.get(name).and_then(Value::as_str).map(str::to_owned);
    let (role, shown) = match &*kind {
        "run.output" => ("assistant", text("text")),
        "run.input" => ("user", text("text_redacted")),
        "run.started" => ("system", text("command")),
        "tool.call" | "tool.result" => ("system", text("tool")),
        "run.exited" => ("system", data.get("exit_code").map(|code| format!("exit code {code}"))),
        "run.permission_decided" => ("system", text("decision")),
        _ => ("system", text("prompt")),
    };
    let (actor, request_id) = (text("actor"), text("request_id"));
    HistoryMessage { id, seq, ts, role, kind, actor, request_id, text: shown, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_and_lead_back_to_their_records() {
        for seq in [0, 1, 2, 77, 1 << 40] {
            assert_eq!(seq_before(first_id(seq)), seq);
            assert_eq!(seq_before(first_id(seq) + 1), seq + 1);
        }
    }
}
