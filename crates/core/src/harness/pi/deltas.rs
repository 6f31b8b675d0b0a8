//! `message_update`: the hot path. One borrowed pass over the line, one allocation for the text of the delta.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use qd_wire::message::StopReason;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::decode::{LineResult, PiOutput, unknown};
use crate::agent::AgentEvent;

/// What every update repeats (`usage`, before 0.84 also `message`) is skipped without being built.
#[derive(Deserialize)]
struct Update<'a> {
    #[serde(rename = "assistantMessageEvent", borrow)]
    event: UpdateEvent<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateEvent<'a> {
    #[serde(rename = "type")]
    kind: UpdateKind,
    #[serde(default)]
    content_index: u32,
    #[serde(default, borrow)]
    delta: Cow<'a, str>,
    #[serde(default, borrow)]
    id: Cow<'a, str>,
    #[serde(default, borrow)]
    tool_name: Cow<'a, str>,
    tool_call: Option<ToolCall>,
    /// The whole message so far, before 0.84.
    #[serde(default, borrow)]
    partial: Option<&'a RawValue>,
    #[serde(default, borrow)]
    error: Option<&'a RawValue>,
    #[serde(default, borrow)]
    reason: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum UpdateKind {
    Start,
    TextStart,
    TextDelta,
    TextEnd,
    ThinkingStart,
    ThinkingDelta,
    ThinkingEnd,
    #[serde(rename = "toolcall_start")]
    ToolCallStart,
    #[serde(rename = "toolcall_delta")]
    ToolCallDelta,
    #[serde(rename = "toolcall_end")]
    ToolCallEnd,
    Done,
    Error,
    #[serde(other)]
    Other,
}

#[derive(Deserialize, Default)]
struct ToolCall {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    arguments: Value,
}

pub(super) fn message_update(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    let event = parse(line)?;
    let index = event.content_index;
    let agent_event = match event.kind {
        UpdateKind::TextDelta => AgentEvent::TextDelta { index, delta: event.delta.into_owned() },
        UpdateKind::ThinkingDelta => AgentEvent::ThinkingDelta { index, delta: event.delta.into_owned() },
        UpdateKind::ToolCallDelta => AgentEvent::ToolCallDelta { index, delta: event.delta.into_owned() },
        UpdateKind::ToolCallStart => tool_call_started(&event),
        UpdateKind::ToolCallEnd => {
            let call = event.tool_call.unwrap_or_default();
            AgentEvent::ToolCallEnded { index, tool_call_id: call.id, name: call.name, input: call.arguments }
        }
        UpdateKind::Error => {
            let Some(error) = failure(&event) else { return Ok(()) };
            AgentEvent::StreamFailed { error, recoverable: true }
        }
        // The blocks' borders are known from their deltas, and the end of the stream from the end of the message.
        UpdateKind::Start
        | UpdateKind::TextStart
        | UpdateKind::TextEnd
        | UpdateKind::ThinkingStart
        | UpdateKind::ThinkingEnd
        | UpdateKind::Done => return Ok(()),
        UpdateKind::Other => return unknown("message_update", line, out),
    };
    out.push(PiOutput::Event(agent_event));
    Ok(())
}

fn parse(line: &[u8]) -> Result<UpdateEvent<'_>, serde_json::Error> {
    match event_of_new_update(line).map(serde_json::from_slice::<UpdateEvent<'_>>) {
        Some(Ok(event)) => Ok(event),
        _ => serde_json::from_slice::<Update<'_>>(line).map(|update| update.event),
    }
}

/// The bytes of the inner event when the line is `{"type":"message_update","usage":{…},"assistantMessageEvent":…}`,
/// as it is since 0.84: `usage` is most of the line, the same every time, and so jumped over.
///
/// A quote within a JSON string is escaped, so the key searched for cannot be part of a text. Should it be the key
/// of something deeper, or not the last one, then what is returned is not one JSON value and does not parse.
fn event_of_new_update(line: &[u8]) -> Option<&[u8]> {
    static EVENT_KEY: LazyLock<Finder<'static>> =
        LazyLock::new(|| Finder::new(br#","assistantMessageEvent":"#));
    let rest = line.strip_prefix(br#"{"type":"message_update","usage":{"#)?.strip_suffix(b"}")?;
    let at = EVENT_KEY.find(rest)?;
    rest.get(at + EVENT_KEY.needle().len()..)
}

/// Before 0.84.3 the id and the name of a call are only in the message so far.
fn tool_call_started(event: &UpdateEvent<'_>) -> AgentEvent {
    #[derive(Deserialize)]
    struct Partial {
        content: Vec<Value>,
    }
    let index = event.content_index;
    if event.id.is_empty()
        && let Some(Ok(partial)) = event.partial.map(|raw| serde_json::from_str::<Partial>(raw.get()))
        && let Some(block) = usize::try_from(index).ok().and_then(|at| partial.content.into_iter().nth(at))
        && let Ok(call) = serde_json::from_value::<ToolCall>(block)
    {
        return AgentEvent::ToolCallStarted { index, tool_call_id: call.id, name: call.name };
    }
    AgentEvent::ToolCallStarted {
        index,
        tool_call_id: event.id.clone().into_owned(),
        name: event.tool_name.clone().into_owned(),
    }
}

/// Why the stream broke; an abort is no failure.
fn failure(event: &UpdateEvent<'_>) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Failed {
        error_message: String,
    }
    if event.reason == StopReason::Aborted.as_str() {
        return None;
    }
    let Some(raw) = event.error else { return Some("the stream failed without a reason".to_owned()) };
    let text = serde_json::from_str::<Failed>(raw.get()).map(|failed| failed.error_message);
    Some(text.or_else(|_| serde_json::from_str::<String>(raw.get())).unwrap_or_else(|_| raw.get().to_owned()))
}
