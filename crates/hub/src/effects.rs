//! What a record changes in the hub's own tables and lists. The only place that looks into bodies, beside `audit`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use qd_store::{Effect, HubSession, MessageRow, RecordIn, SessionPatch};
use qd_wire::data::SessionStatus;
use qd_wire::message::Usage;
use qd_wire::mux::SessionChange;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::audit;
use crate::faces::pi_server::SessionNews;
use crate::registry::{Hub, SessionEntry};
use crate::terminals;

/// A record for the store, with what it changes.
pub(crate) fn record(entry: &SessionEntry, seq: u64, ts: i64, event: String, body: Bytes) -> RecordIn {
    let effect = effect(&entry.id, &entry.runner_id, seq, ts, &event, &body);
    match &effect {
        Some(Effect::UpsertSession(row)) => entry.learn_harness(&row.harness),
        Some(Effect::SessionPatch(patch)) => {
            patch.harness.iter().for_each(|harness| entry.learn_harness(harness));
        }
        _ => {}
    }
    let (session_id, runner_id) = (Arc::clone(&entry.id), Arc::clone(&entry.runner_id));
    let audit = audit::of_record(&event, ts, &body);
    RecordIn { session_id, runner_id, seq, ts, event: Cow::Owned(event), body, audit, effect }
}

/// Makes the effect of a record, and its row of the audit, again, from its body.
pub(crate) fn restore(record: &mut RecordIn) {
    record.effect =
        effect(&record.session_id, &record.runner_id, record.seq, record.ts, &record.event, &record.body);
    record.audit = audit::of_record(&record.event, record.ts, &record.body);
}

/// A change of a session's line in lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    Status(SessionStatus),
    /// The program is over; calls that wait for somebody's yes still wait.
    Exited,
    Created {
        seq: Option<u64>,
    },
    Changed,
    InputNeeded,
    InputResolved,
    /// The runner has said how the session stands.
    Described {
        status: SessionStatus,
        pending_inputs: usize,
        seq: u64,
    },
}

impl Note {
    /// Whether it tells of a moment: what its runner said later counts more.
    pub(crate) fn is_of_a_moment(self) -> bool {
        matches!(self, Note::Status(_) | Note::Exited | Note::InputNeeded | Note::InputResolved)
    }
}

/// What an event says for lists, from its name. `tail` is the event's text without its opening brace.
pub(crate) fn note(event: &str, tail: &str, seq: Option<u64>) -> Option<Note> {
    // Deltas are nearly all there is; they end here.
    if event.starts_with("stream.") {
        return None;
    }
    match event {
        "session.resync" => described(tail),
        "agent.working" => Some(Note::Status(SessionStatus::Working)),
        "agent.idle" => Some(Note::Status(SessionStatus::Idle)),
        // A foreign host's run begins with it.
        "run.started" if seq == Some(1) => Some(Note::Created { seq }),
        "run.started" => Some(Note::Status(SessionStatus::Working)),
        "session.closed" => Some(Note::Status(SessionStatus::Closed)),
        "run.exited" => Some(Note::Exited),
        "session.created" => Some(Note::Created { seq }),
        "agent.error" if tail.contains("\"recoverable\":false") => Some(Note::Status(SessionStatus::Failed)),
        "agent.input_needed" => Some(Note::InputNeeded),
        "agent.input_resolved" => Some(Note::InputResolved),
        "session.title_changed" | "config.model_changed" => Some(Note::Changed),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Resync {
    state: ResyncState,
}

#[derive(Deserialize)]
struct ResyncState {
    status: SessionStatus,
    seq: u64,
    pending_input: Vec<serde::de::IgnoredAny>,
}

fn described(tail: &str) -> Option<Note> {
    let Resync { state } = serde_json::from_str(&format!("{{{tail}")).ok()?;
    let ResyncState { status, seq, pending_input } = state;
    Some(Note::Described { status, pending_inputs: pending_input.len(), seq })
}

/// Brings lists up to date, when the events are stored and published.
pub(crate) fn apply_notes(hub: &Arc<Hub>, entry: &SessionEntry, notes: &[Note]) {
    let mut change = None;
    for note in notes {
        match note {
            Note::Status(status) => {
                if matches!(status, SessionStatus::Closed | SessionStatus::Failed) {
                    entry.set_pending_inputs(0);
                }
                if entry.set_status(*status) {
                    let is_closed = *status == SessionStatus::Closed;
                    change = Some(if is_closed { SessionChange::Closed } else { SessionChange::Updated });
                }
            }
            Note::Exited => {
                terminals::forget_later(hub, &entry.id);
                if entry.set_status(SessionStatus::Closed) {
                    change = Some(SessionChange::Closed);
                }
            }
            Note::Created { seq } => {
                if is_new(entry, *seq) {
                    hub.pi_server.session_news(hub, &entry.id, SessionNews::Created);
                }
                if entry.status() == SessionStatus::Starting {
                    entry.set_status(SessionStatus::Idle);
                }
                hub.tell_session(entry, SessionChange::Created);
            }
            Note::Changed => change = Some(SessionChange::Updated),
            Note::Described { status, pending_inputs, seq } => {
                if describe(hub, entry, *status, *pending_inputs, *seq) {
                    change = Some(SessionChange::Updated);
                }
            }
            Note::InputNeeded | Note::InputResolved => {
                entry.change_pending_inputs(*note == Note::InputNeeded);
                change = Some(SessionChange::Updated);
            }
        }
    }
    if let Some(change) = change {
        hub.tell_session(entry, change);
    }
}

/// Whether the agent's start, which is record `seq`, makes a session appear: it is the first, or the session was
/// closed before. A record of the past says nothing of a session that is known to be closed now.
fn is_new(entry: &SessionEntry, seq: Option<u64>) -> bool {
    let is_closed = entry.status() == SessionStatus::Closed;
    if is_closed { !seq.is_some_and(|seq| entry.is_described(seq)) } else { seq == Some(1) }
}

/// The runner has said how the session stands. True if the status is news.
pub(crate) fn describe(
    hub: &Arc<Hub>,
    entry: &SessionEntry,
    status: SessionStatus,
    pending_inputs: usize,
    seq: u64,
) -> bool {
    let was_closed = entry.status() == SessionStatus::Closed;
    let is_closed = status == SessionStatus::Closed;
    let is_news = entry.describe(status, pending_inputs, seq);
    if was_closed != is_closed {
        let news = if is_closed { SessionNews::Closed } else { SessionNews::Created };
        hub.pi_server.session_news(hub, &entry.id, news);
    }
    is_news
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

#[derive(Deserialize)]
struct Created {
    harness: String,
    #[serde(default)]
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct RunDirectory {
    #[serde(default)]
    cwd: Option<String>,
}

#[derive(Deserialize)]
struct Title {
    title: String,
}

#[derive(Deserialize)]
struct Model {
    provider: String,
    model_id: String,
}

#[derive(Deserialize)]
struct AgentError {
    recoverable: bool,
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
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    stop_reason: Option<String>,
    #[serde(default, borrow)]
    usage: Option<&'a RawValue>,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(default)]
    tool_name: Option<String>,
    #[serde(default)]
    is_error: Option<bool>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default, borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct PartText<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    text: Option<&'a RawValue>,
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Option<T> {
    serde_json::from_slice(body).inspect_err(|error| tracing::warn!(%error, "a record's body is odd")).ok()
}

fn effect(session_id: &str, runner_id: &str, seq: u64, ts: i64, event: &str, body: &[u8]) -> Option<Effect> {
    let patch = match event {
        "stream.message_end" => {
            let end: MessageEnd<'_> = read(body)?;
            return message_row(end.message).map(|row| Effect::Message(Box::new(row)));
        }
        "messages" => {
            let list: MessageList<'_> = read(body)?;
            return Some(Effect::ReplaceMessages(
                list.messages.into_iter().filter_map(message_row).collect(),
            ));
        }
        // A run of a foreign host has no other first record.
        _ if seq == 1 && event.starts_with("run.") => {
            let cwd = serde_json::from_slice::<RunDirectory>(body).ok().and_then(|run| run.cwd);
            let created = Created { harness: qd_wire::run::PTY_HARNESS.to_owned(), cwd };
            return Some(created_effect(created, session_id, runner_id, seq, ts));
        }
        "session.created" => {
            let created: Created = read(body)?;
            return Some(created_effect(created, session_id, runner_id, seq, ts));
        }
        "session.closed" | "run.exited" => SessionPatch { closed: Some(true), ..state("closed") },
        "run.started" => SessionPatch { closed: Some(false), ..state("working") },
        "session.title_changed" => {
            SessionPatch { title: Some(read::<Title>(body)?.title), ..SessionPatch::default() }
        }
        "config.model_changed" => {
            let model: Model = read(body)?;
            SessionPatch {
                provider: Some(model.provider),
                model: Some(model.model_id),
                ..SessionPatch::default()
            }
        }
        "agent.idle" => state("idle"),
        "agent.error" if !read::<AgentError>(body)?.recoverable => state("failed"),
        _ => return None,
    };
    Some(Effect::SessionPatch(Box::new(patch)))
}

fn state(word: &str) -> SessionPatch {
    SessionPatch { state: Some(word.to_owned()), ..SessionPatch::default() }
}

/// The first record describes a session; later ones say that its agent runs again.
fn created_effect(created: Created, session_id: &str, runner_id: &str, seq: u64, ts: i64) -> Effect {
    if seq > 1 {
        return Effect::SessionPatch(Box::new(SessionPatch {
            runner_id: Some(runner_id.to_owned()),
            harness: Some(created.harness),
            cwd: created.cwd,
            closed: Some(false),
            ..state("idle")
        }));
    }
    Effect::UpsertSession(Box::new(HubSession {
        session_id: session_id.to_owned(),
        runner_id: runner_id.to_owned(),
        harness: created.harness,
        cwd: created.cwd.unwrap_or_default(),
        state: "idle".to_owned(),
        created_at: ts,
        updated_at: ts,
        ..HubSession::default()
    }))
}

fn message_row(message: &RawValue) -> Option<MessageRow> {
    let head: MessageHead<'_> = read(message.get().as_bytes())?;
    let usage: Option<Usage> = head.usage.and_then(|usage| read::<Usage>(usage.get().as_bytes()));
    Some(MessageRow {
        content: flattened_text(head.parts),
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

/// Text and thinking, as `Message::flattened_text` gives it.
fn flattened_text(parts: &RawValue) -> String {
    let parts: Vec<PartText<'_>> = read(parts.get().as_bytes()).unwrap_or_default();
    let texts: Vec<String> = parts
        .into_iter()
        .filter(|part| part.kind == "text" || part.kind == "thinking")
        .filter_map(|part| serde_json::from_str(part.text?.get()).ok())
        .collect();
    texts.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_becomes_columns_and_keeps_its_text() {
        let message = r#"{"id":"m1","idx":3,"role":"assistant","parts":[{"type":"thinking","id":"p0","text":"hm"},{"type":"tool_call","id":"p1","tool_call_id":"t","name":"bash","status":"success"},{"type":"text","id":"p2","text":"a\nb"}],"created_at":5,"usage":{"input_tokens":2,"output_tokens":3,"cost_usd":0.5}}"#;
        let body = format!(r#"{{"channel":"agent","runner_id":"r","message":{message}}}"#);
        let Some(Effect::Message(row)) = effect("s", "r", 2, 1, "stream.message_end", body.as_bytes()) else {
            panic!("no message");
        };
        let typed: qd_wire::Message = serde_json::from_str(message).unwrap();
        assert_eq!(row.content, typed.flattened_text());
        assert_eq!((row.idx, row.tokens, row.cost_usd), (3, Some(5), Some(0.5)));
        assert_eq!(&row.message_json[..], message.as_bytes());
    }

    #[test]
    fn odd_bodies_have_no_effect() {
        assert!(effect("s", "r", 1, 1, "stream.message_end", b"{\"message\":5}").is_none());
        assert!(effect("s", "r", 1, 1, "session.created", b"{}").is_none());
        assert!(effect("s", "r", 1, 1, "tool.start", b"nonsense").is_none());
    }
}
