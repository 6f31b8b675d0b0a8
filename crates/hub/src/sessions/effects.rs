//! What a record changes in the hub's own tables and lists. The only place that looks into bodies, beside `audit`.
//!
//! The store applies an effect in the same transaction as its record and only if the record is new, so a record that
//! is sent again changes nothing twice.

mod session_notes;

use std::borrow::Cow;

use bytes::Bytes;
use qd_core::projection::{EventMoment, LinePatch, ProjectionChange, is_telling, one_line, read};
use qd_core::redact::redact_question;
use qd_store::{AuditEntry, HubSession, MessageRow, NewRecord, RecordEffect, SessionPatch};
use qd_wire::data::SessionStatus;
use qd_wire::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::access::audit;
use crate::runners::line_head::EventHead;
use crate::sessions::session::SessionEntry;
pub(crate) use session_notes::{SessionNote, apply_notes, describe};

/// What lists show of the last message.
const LAST_TEXT_CHARACTERS_MAX: usize = 200;

/// What one event says: for its session as it looks from outside, and, if it is a record, for the store.
#[derive(Default)]
pub(crate) struct EventDigest {
    pub(crate) notes: Vec<SessionNote>,
    pub(crate) effect: Option<RecordEffect>,
    pub(crate) audit: Option<Box<AuditEntry>>,
}

/// Whose record it is.
struct RecordOwner<'a> {
    session_id: &'a str,
    runner_id: &'a str,
}

/// Reads an event's body, the only time that anybody does. `text` is the event as a JSON object.
pub(crate) fn digest(entry: &SessionEntry, head: &EventHead<'_>, text: &str) -> EventDigest {
    let EventHead { event, seq, ts, .. } = head;
    let Some(seq) = *seq else {
        let note = |change| SessionNote::new(EventMoment { ts: *ts, ..EventMoment::default() }, change);
        // Deltas are nearly all there is; they end here.
        let changes = if is_telling(event) { read(event, None, text) } else { Vec::new() };
        return EventDigest { notes: changes.into_iter().map(note).collect(), ..EventDigest::default() };
    };
    // Only records count as activity: live events are not stored, and a list must say the same after a restart.
    entry.note_activity(*ts);
    let owner = RecordOwner { session_id: &entry.id, runner_id: &entry.runner_id };
    let (changes, effect, audit) = of_record(&owner, seq, *ts, event, text);
    for change in &changes {
        if let ProjectionChange::Created { harness, .. } = change {
            entry.set_harness(harness);
        }
    }
    // A record from the spool may be older than what the runner said of the session in its hello.
    let moment = EventMoment { seq: Some(seq), ts: *ts, now: 0, is_past: entry.is_described(seq) };
    let notes = changes.into_iter().map(|change| SessionNote::new(moment, change)).collect();
    EventDigest { notes, effect, audit }
}

/// Makes the effect of a record, and its row of the audit, again, from its body.
pub(crate) fn restore(record: &mut NewRecord) {
    let Ok(text) = std::str::from_utf8(&record.body) else { return };
    let owner = RecordOwner { session_id: &record.session_id, runner_id: &record.runner_id };
    let (_, effect, audit) = of_record(&owner, record.seq, record.ts, &record.event, text);
    (record.effect, record.audit) = (effect, audit);
}

/// What a record changes in the projection, in the tables, and in the audit log.
type RecordEffects = (Vec<ProjectionChange>, Option<RecordEffect>, Option<Box<AuditEntry>>);

fn of_record(owner: &RecordOwner<'_>, seq: u64, ts: i64, event: &str, text: &str) -> RecordEffects {
    match event {
        "stream.message_end" | "messages" => {
            let effect = messages_effect(event, text);
            (effect.as_ref().and_then(last_message_change).into_iter().collect(), effect, None)
        }
        // The body is parsed once for both uses. A first record takes the general way below, because it creates its
        // session (a third-party host may begin a run with any `run.*` event).
        "tool.call" | "tool.result" | "run.input" if seq > 1 => {
            let audit = audit::of_record(event, ts, text.as_bytes());
            let request_id = audit.as_ref().and_then(|row| row.request_id.clone());
            // A call is only a plan; what was done is known from its result.
            let acted = request_id.filter(|_| event != "tool.call");
            (
                acted.map(|request_id| ProjectionChange::Acted { request_id }).into_iter().collect(),
                None,
                audit,
            )
        }
        _ => {
            let changes = read(event, Some(seq), text);
            let effect = effect(owner, seq, ts, &changes);
            let audit = match changes.first() {
                Some(ProjectionChange::Answered(answered)) => Some(audit::of_answer(ts, answered)),
                _ => audit::of_record(event, ts, text.as_bytes()),
            };
            (changes, effect, audit)
        }
    }
}

/// What stored messages say for lists.
fn last_message_change(effect: &RecordEffect) -> Option<ProjectionChange> {
    match effect {
        RecordEffect::Message(message) => Some(ProjectionChange::Said {
            text: message.last_text.clone(),
            count: u64::try_from(message.idx).map_or(0, |idx| idx + 1),
        }),
        RecordEffect::ReplaceMessages(list) => Some(ProjectionChange::Said {
            // An empty text replaces what the list showed before: the replaced messages may be gone.
            text: Some(list.iter().rev().find_map(|message| message.last_text.clone()).unwrap_or_default()),
            count: list.len() as u64,
        }),
        RecordEffect::UpsertSession(_) | RecordEffect::SessionPatch(_) | RecordEffect::Rewrite { .. } => None,
    }
}

#[derive(Deserialize)]
struct MessageEnd<'a> {
    #[serde(borrow)]
    message: &'a RawValue,
}

#[derive(Deserialize)]
struct MessageList<'a> {
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

/// A message's columns; its parts stay text.
#[derive(Deserialize)]
struct MessageHead<'a> {
    id: String,
    #[serde(default)]
    idx: i64,
    role: String,
    #[serde(borrow)]
    parts: &'a RawValue,
    #[serde(default)]
    created_at: i64,
    model: Option<String>,
    provider: Option<String>,
    stop_reason: Option<String>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    tool_call_id: Option<String>,
    tool_name: Option<String>,
    is_error: Option<bool>,
    client_id: Option<String>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// The text stays raw until the kind is known, so that only text and thinking are decoded.
#[derive(Deserialize)]
struct PartText<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).inspect_err(|error| tracing::warn!(%error, "a record's body is odd")).ok()
}

fn messages_effect(event: &str, text: &str) -> Option<RecordEffect> {
    if event == "messages" {
        let list: MessageList<'_> = parse(text)?;
        return Some(RecordEffect::ReplaceMessages(
            list.messages.into_iter().filter_map(message_row).collect(),
        ));
    }
    let end: MessageEnd<'_> = parse(text)?;
    message_row(end.message).map(|row| RecordEffect::Message(Box::new(row)))
}

/// What the changes of one record change in the store. A record that makes a session may say more of it.
fn effect(owner: &RecordOwner<'_>, seq: u64, ts: i64, changes: &[ProjectionChange]) -> Option<RecordEffect> {
    let first = changes.first()?;
    if let ProjectionChange::Answered(answered) = first {
        // The person who decided has seen the question. What it showed (a command with a key in it, say) is redacted in
        // the stored record from now on.
        return Some(RecordEffect::Rewrite { seq: answered.asked_seq?, with: redact_question });
    }
    let patch = LinePatch::of(first);
    if let (ProjectionChange::Created { .. }, 1) = (first, seq) {
        let run_tool = changes.iter().find_map(|change| LinePatch::of(change).run_tool);
        return Some(created_effect(owner, ts, LinePatch { run_tool, ..patch }));
    }
    if patch == LinePatch::default() {
        return None;
    }
    // A later `session.created` is the agent's restart, which opens a closed session again.
    let is_created = matches!(first, ProjectionChange::Created { .. });
    Some(RecordEffect::SessionPatch(Box::new(SessionPatch {
        runner_id: is_created.then(|| owner.runner_id.to_owned()),
        closed: if is_created { Some(false) } else { patch.status.and_then(closes) },
        state: patch.status.map(|status| status.as_str().to_owned()),
        keeps_failed: patch.keeps_failed,
        harness: patch.harness,
        cwd: patch.cwd,
        title: patch.title,
        provider: patch.provider,
        model: patch.model,
        branch: patch.branch,
        error: patch.error,
        run_tool: patch.run_tool,
        ..SessionPatch::default()
    })))
}

/// Whether a session is closed with this status; `None` where the status says nothing of it.
fn closes(status: SessionStatus) -> Option<bool> {
    match status {
        SessionStatus::Closed => Some(true),
        SessionStatus::Working => Some(false),
        SessionStatus::Starting
        | SessionStatus::Idle
        | SessionStatus::Dormant
        | SessionStatus::Failed
        | SessionStatus::Offline => None,
    }
}

fn created_effect(owner: &RecordOwner<'_>, ts: i64, line: LinePatch) -> RecordEffect {
    RecordEffect::UpsertSession(Box::new(HubSession {
        session_id: owner.session_id.to_owned(),
        runner_id: owner.runner_id.to_owned(),
        harness: line.harness.unwrap_or_default(),
        cwd: line.cwd.unwrap_or_default(),
        state: SessionStatus::Idle.as_str().to_owned(),
        run_tool: line.run_tool,
        created_at: ts,
        updated_at: ts,
        ..HubSession::default()
    }))
}

fn message_row(message: &RawValue) -> Option<MessageRow> {
    let head: MessageHead<'_> = parse(message.get())?;
    let texts = MessageTexts::read(head.parts);
    let content = texts.flattened();
    // What tools printed is no news for a list; what people and agents say is.
    let last_text = matches!(&*head.role, "user" | "assistant").then(|| texts.last_words());
    let usage: Option<Usage> = head.usage.and_then(|usage| parse::<Usage>(usage.get()));
    Some(MessageRow {
        content,
        last_text: last_text.filter(|text| !text.is_empty()),
        parts_json: head.parts.get().to_owned(),
        tokens: usage.as_ref().map(tokens),
        cost_usd: usage.and_then(|usage| usage.cost_usd),
        usage_json: head.usage.map(|usage| usage.get().to_owned()),
        metadata: head.metadata.map(|metadata| metadata.get().to_owned()),
        message_json: Bytes::copy_from_slice(message.get().as_bytes()),
        id: head.id,
        idx: head.idx,
        role: head.role,
        created_at: head.created_at,
        model: head.model,
        provider: head.provider,
        stop_reason: head.stop_reason,
        tool_call_id: head.tool_call_id,
        tool_name: head.tool_name,
        is_error: head.is_error,
        client_id: head.client_id,
    })
}

fn tokens(usage: &Usage) -> i64 {
    i64::try_from(usage.input_tokens.saturating_add(usage.output_tokens)).unwrap_or(i64::MAX)
}

/// The end of a text on one line, from the beginning of a word.
fn end_of(text: &str) -> String {
    let text = text.trim_end();
    // Blanks are joined, so more is looked at than is shown.
    let from = text.char_indices().rev().nth(4 * LAST_TEXT_CHARACTERS_MAX).map_or(0, |(at, _)| at);
    let line = one_line(&text[from..], usize::MAX);
    let start = line.char_indices().rev().nth(LAST_TEXT_CHARACTERS_MAX - 1).map_or(0, |(at, _)| at);
    if (from, start) == (0, 0) {
        return line;
    }
    let end = &line[start..];
    format!("…{}", end.split_once(' ').map_or(end, |(_, words)| words))
}

/// The texts of a message, read once.
struct MessageTexts(Vec<(bool, String)>);

impl MessageTexts {
    fn read(parts: &RawValue) -> Self {
        let parts: Vec<PartText<'_>> = parse(parts.get()).unwrap_or_default();
        let text = |part: PartText<'_>| {
            let is_text = part.kind == "text";
            let is_wanted = is_text || part.kind == "thinking";
            Some((is_text, serde_json::from_str(part.text.filter(|_| is_wanted)?.get()).ok()?))
        };
        Self(parts.into_iter().filter_map(text).collect())
    }

    /// Text and thinking, as `Message::flattened_text` gives it.
    fn flattened(&self) -> String {
        self.joined(|_| true)
    }

    /// What lists show of a message: how its text ends, without what the model thought. That is where an agent says
    /// what it has done, and asks what to do next.
    fn last_words(&self) -> String {
        end_of(&self.joined(|is_text| is_text))
    }

    fn joined(&self, is_wanted: impl Fn(bool) -> bool) -> String {
        let texts = self.0.iter().filter(|(is_text, _)| is_wanted(*is_text));
        texts.map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_record(seq: u64, event: &str, text: &str) -> RecordEffects {
        of_record(&RecordOwner { session_id: "s", runner_id: "r" }, seq, 1, event, text)
    }

    #[test]
    fn a_message_becomes_columns_and_keeps_its_text() {
        let message = r#"{"id":"m1","idx":3,"role":"assistant","parts":[{"type":"thinking","id":"p0","text":"hm"},{"type":"tool_call","id":"p1","tool_call_id":"t","name":"bash","status":"success"},{"type":"text","id":"p2","text":"a\nb"}],"created_at":5,"usage":{"input_tokens":2,"output_tokens":3,"cost_usd":0.5}}"#;
        let body = format!(r#"{{"channel":"agent","runner_id":"r","message":{message}}}"#);
        let (changes, Some(RecordEffect::Message(row)), None) = read_record(2, "stream.message_end", &body)
        else {
            panic!("no message");
        };
        assert_eq!(changes, [ProjectionChange::Said { text: Some("a b".to_owned()), count: 4 }]);
        let typed: qd_wire::Message = serde_json::from_str(message).unwrap();
        assert_eq!(row.content, typed.flattened_text());
        assert_eq!((row.idx, row.tokens, row.cost_usd), (3, Some(5), Some(0.5)));
        assert_eq!(&row.message_json[..], message.as_bytes());
        assert_eq!(row.last_text.as_deref(), Some("a b"), "without what it thought, on one line");
    }

    #[test]
    fn lists_show_how_a_message_ends() {
        assert_eq!(end_of(""), "");
        assert_eq!(end_of(" short\n\nand  sweet "), "short and sweet");
        let exact = "x".repeat(LAST_TEXT_CHARACTERS_MAX - 1);
        assert_eq!(end_of(&exact), exact);
        let long = format!("{}\n\nShall I go on?", "word ".repeat(1000));
        let end = end_of(&long);
        assert!(end.starts_with("…word word") && end.ends_with("word Shall I go on?"), "{end}");
        assert!(end.chars().count() <= LAST_TEXT_CHARACTERS_MAX, "{end}");
        let one_word = end_of(&"ü".repeat(5000));
        assert_eq!(one_word.chars().count(), LAST_TEXT_CHARACTERS_MAX + 1, "no word begins here");
        assert_eq!(end_of(&format!("Done.{}", " ".repeat(5000))), "Done.");
    }

    #[test]
    fn lists_learn_of_branches_programs_and_fatal_errors() {
        let patch = |event: &str, body: &str| match read_record(2, event, body).1 {
            Some(RecordEffect::SessionPatch(patch)) => *patch,
            other => panic!("{other:?}"),
        };
        assert_eq!(patch("session.branch_changed", r#"{"branch":"main"}"#).branch.as_deref(), Some("main"));
        assert_eq!(patch("session.branch_changed", "{}").branch.as_deref(), Some(""));
        assert_eq!(patch("run.started", r#"{"tool":"vim"}"#).run_tool.as_deref(), Some("vim"));
        let failed = patch("agent.error", r#"{"error":"no\nkey","recoverable":false}"#);
        assert_eq!((failed.error.as_deref(), failed.state.as_deref()), (Some("no key"), Some("failed")));
        let recoverable = read_record(2, "agent.error", r#"{"error":"x","recoverable":true}"#);
        assert!(recoverable.0.is_empty() && recoverable.1.is_none());
        let again = patch("session.created", r#"{"harness":"pi"}"#);
        assert_eq!(again.error.as_deref(), Some(""), "it runs again");
    }

    #[test]
    fn odd_bodies_have_no_effect() {
        assert!(read_record(1, "stream.message_end", "{\"message\":5}").1.is_none());
        assert!(read_record(1, "session.created", "{}").1.is_none());
        assert!(read_record(1, "tool.start", "nonsense").1.is_none());
    }
}
