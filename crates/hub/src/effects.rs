//! What a record changes in the hub's own tables and lists. The only place that looks into bodies, beside `audit`.

mod notes;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use qd_core::redact::redact_question;
use qd_store::{Effect, HubSession, MessageRow, RecordIn, SessionPatch};
use qd_wire::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::audit;
use crate::published::RecordHead;
use crate::registry::{SessionEntry, one_line};
pub(crate) use notes::{Description, Note, apply_notes, describe, note, of_record as note_of_record};

/// What lists show of the last message.
const LAST_TEXT_CHARACTERS_MAX: usize = 200;

/// What lists show of the error that ended an agent.
const ERROR_CHARACTERS_MAX: usize = 500;

/// A record for the store, with what it changes.
pub(crate) fn record(entry: &SessionEntry, head: &RecordHead, body: Bytes) -> RecordIn {
    let RecordHead { seq, ts, event, .. } = head.clone();
    let effect = effect(&entry.id, &entry.runner_id, seq, ts, &event, &body);
    match &effect {
        Some(Effect::UpsertSession(row)) => entry.learn_harness(&row.harness),
        Some(Effect::SessionPatch(patch)) => {
            patch.harness.iter().for_each(|harness| entry.learn_harness(harness));
        }
        _ => {}
    }
    entry.note_activity(ts);
    let (session_id, runner_id) = (Arc::clone(&entry.id), Arc::clone(&entry.runner_id));
    let audit = audit::of_record(&event, ts, &body);
    RecordIn { session_id, runner_id, seq, ts, event, body, audit, effect }
}

/// Makes the effect of a record, and its row of the audit, again, from its body.
pub(crate) fn restore(record: &mut RecordIn) {
    record.effect =
        effect(&record.session_id, &record.runner_id, record.seq, record.ts, &record.event, &record.body);
    record.audit = audit::of_record(&record.event, record.ts, &record.body);
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
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Resolved {
    #[serde(default)]
    asked_seq: Option<u64>,
}

#[derive(Deserialize)]
struct Branch {
    #[serde(default)]
    branch: Option<String>,
}

#[derive(Deserialize)]
struct RunStarted {
    #[serde(default)]
    tool: Option<String>,
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
        "run.started" => {
            let run_tool = read::<RunStarted>(body)?.tool;
            SessionPatch { closed: Some(false), run_tool, error: Some(String::new()), ..state("working") }
        }
        "session.branch_changed" => SessionPatch {
            branch: Some(read::<Branch>(body)?.branch.unwrap_or_default()),
            ..SessionPatch::default()
        },
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
        "agent.input_resolved" => {
            let seq = read::<Resolved>(body)?.asked_seq?;
            return Some(Effect::Rewrite { seq, with: redact_question });
        }
        "agent.idle" => state("idle"),
        "agent.error" => {
            let AgentError { error, .. } = read::<AgentError>(body).filter(|error| !error.recoverable)?;
            SessionPatch { error: Some(one_line(&error, ERROR_CHARACTERS_MAX)), ..state("failed") }
        }
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
            error: Some(String::new()),
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
    let content = flattened_text(head.parts);
    let last_text = matches!(&*head.role, "user" | "assistant").then(|| last_words(head.parts, &content));
    let usage: Option<Usage> = head.usage.and_then(|usage| read::<Usage>(usage.get().as_bytes()));
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

/// What lists show of a message: how its text ends, without what the model thought. That is where an agent says what it
/// has done, and asks what to do next.
fn last_words(parts: &RawValue, content: &str) -> String {
    if !parts.get().contains("\"thinking\"") {
        return end_of(content);
    }
    end_of(&text_of(parts, |kind| kind == "text"))
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

/// Text and thinking, as `Message::flattened_text` gives it.
fn flattened_text(parts: &RawValue) -> String {
    text_of(parts, |kind| kind == "text" || kind == "thinking")
}

fn text_of(parts: &RawValue, is_wanted: impl Fn(&str) -> bool) -> String {
    let parts: Vec<PartText<'_>> = read(parts.get().as_bytes()).unwrap_or_default();
    let texts: Vec<String> = parts
        .into_iter()
        .filter(|part| is_wanted(&part.kind))
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
        let patch = |event: &str, body: &str| match effect("s", "r", 2, 1, event, body.as_bytes()) {
            Some(Effect::SessionPatch(patch)) => *patch,
            other => panic!("{other:?}"),
        };
        assert_eq!(patch("session.branch_changed", r#"{"branch":"main"}"#).branch.as_deref(), Some("main"));
        assert_eq!(patch("session.branch_changed", "{}").branch.as_deref(), Some(""));
        assert_eq!(patch("run.started", r#"{"tool":"vim"}"#).run_tool.as_deref(), Some("vim"));
        let failed = patch("agent.error", r#"{"error":"no\nkey","recoverable":false}"#);
        assert_eq!((failed.error.as_deref(), failed.state.as_deref()), (Some("no key"), Some("failed")));
        assert!(effect("s", "r", 2, 1, "agent.error", br#"{"error":"x","recoverable":true}"#).is_none());
        let again = patch("session.created", r#"{"harness":"pi"}"#);
        assert_eq!(again.error.as_deref(), Some(""), "it runs again");
    }

    #[test]
    fn odd_bodies_have_no_effect() {
        assert!(effect("s", "r", 1, 1, "stream.message_end", b"{\"message\":5}").is_none());
        assert!(effect("s", "r", 1, 1, "session.created", b"{}").is_none());
        assert!(effect("s", "r", 1, 1, "tool.start", b"nonsense").is_none());
    }
}
