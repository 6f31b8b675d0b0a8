//! Lines of pi to events of an agent.
//!
//! A line that cannot be read is reported and skipped: the next one is whole again. Events that nobody knows are
//! passed on under `x-pi.`, with their fields up to a bound.

use std::borrow::Cow;

use qd_wire::JsonObject;
use serde::Deserialize;
use serde_json::Value;

use super::bridge::BridgeMessage;
use super::encode::encode;
use super::extension::{self, ErrorTally};
use super::{deltas, other_events};
use crate::agent::{AgentEvent, AgentRequest, MessageHead};
use crate::harness::lines::preview;
use crate::harness::{AgentRefusal, AgentReply, Codec, Decoded, UnsupportedRequest};

/// Fields of an event nobody knows are passed on up to this size of the line; of a longer one only its size is told.
pub const UNKNOWN_FIELDS_BYTES_MAX: usize = 64 * 1024;

/// What one line of pi means; its own words come from our extension.
pub type PiOutput = Decoded<BridgeMessage>;

/// What reading a line comes to: an error for one that is cut off or no JSON.
pub(super) type LineResult = Result<(), serde_json::Error>;

/// Remembers what a line cannot say alone. Its size does not grow with the traffic.
#[derive(Debug, Default)]
pub struct PiCodec {
    /// The message between its start and its end.
    pub(super) open: Option<MessageHead>,
    /// Between `agent_start` and `agent_settled`.
    pub(super) in_turn: bool,
    /// The last answer ended by an abort; pi before 1.0 does not say so when it settles.
    pub(super) last_answer_aborted: bool,
    pub(super) extension_errors: ErrorTally,
}

impl PiCodec {
    pub fn new() -> Self {
        PiCodec::default()
    }

    /// Decodes one line (without `\n`). A blank line means nothing.
    pub fn line(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<PiOutput>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        if let Err(error) = self.record(line, now_ms, out) {
            out.push(PiOutput::Malformed { error: error.to_string(), preview: preview(line) });
        }
    }

    /// An upper bound of the memory this codec holds on to between lines.
    pub fn retained_bytes(&self) -> usize {
        let open = self.open.as_ref().and_then(|head| head.tool_call_id.as_ref()).map_or(0, String::len);
        size_of::<Self>() + open + self.extension_errors.retained_bytes()
    }

    fn record(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<PiOutput>) -> LineResult {
        let kind = kind_of(line)?;
        match kind.as_ref() {
            "message_update" => deltas::message_update(line, out),
            "response" => reply(line, out),
            "agent_start" => self.agent_start(line, out),
            "agent_end" => other_events::agent_end(line, out),
            "agent_settled" => self.agent_settled(line, out),
            "message_start" => self.message_start(line, now_ms, out),
            "message_end" => self.message_end(line, now_ms, out),
            "tool_execution_start" => other_events::tool_start(line, out),
            "tool_execution_update" => other_events::tool_update(line, out),
            "tool_execution_end" => other_events::tool_end(line, out),
            "queue_update" => other_events::queue_update(line, out),
            "auto_retry_start" => other_events::retry_start(line, out),
            "auto_retry_end" => other_events::retry_end(line, out),
            "compaction_start" | "auto_compaction_start" => other_events::compaction_start(line, out),
            "compaction_end" | "auto_compaction_end" => other_events::compaction_end(line, out),
            "thinking_level_changed" => other_events::thinking_level_changed(line, out),
            "session_info_changed" => other_events::session_info_changed(line, out),
            "entry_appended" => other_events::entry_appended(line, out),
            "extension_ui_request" => extension::ui_request(line, out),
            "extension_error" => self.extension_error(line, out),
            // Turns are loops inside one turn of ours; what a person's shell command prints comes with its reply.
            "turn_start" | "turn_end" | "bash_execution_update" => other_events::absorbed(line),
            other => unknown(other, line, out),
        }
    }

    fn extension_error(&mut self, line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
        let error = extension::ExtensionError::parse(line)?;
        if !self.in_turn || self.extension_errors.is_first(&error) {
            out.push(PiOutput::Event(error.notification()));
        }
        Ok(())
    }
}

impl Codec for PiCodec {
    type Private = BridgeMessage;

    fn decode(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<PiOutput>) {
        self.line(line, now_ms, out);
    }

    /// pi has them all, or says itself that it is too old.
    fn encode(&self, id: &str, request: &AgentRequest) -> Result<Vec<u8>, UnsupportedRequest> {
        Ok(encode(id, request))
    }
}

/// Reads the `type` of a record. pi writes it first except in replies, so a 30 MB line is not read twice.
fn kind_of(line: &[u8]) -> Result<Cow<'_, str>, serde_json::Error> {
    #[derive(Deserialize)]
    struct RecordHead<'a> {
        #[serde(rename = "type", borrow)]
        kind: Cow<'a, str>,
    }
    if let Some(rest) = line.strip_prefix(b"{\"type\":\"")
        && let Some(end) = rest.iter().take(64).position(|byte| !matches!(byte, b'a'..=b'z' | b'_'))
        && rest.get(end) == Some(&b'"')
        && let Some(Ok(kind)) = rest.get(..end).map(std::str::from_utf8)
    {
        return Ok(Cow::Borrowed(kind));
    }
    if line.strip_prefix(b"{\"id\":\"").is_some_and(|rest| {
        let end = memchr::memchr(b'"', rest).unwrap_or(rest.len());
        rest.get(end..).is_some_and(|after| after.starts_with(b"\",\"type\":\"response\","))
    }) {
        return Ok(Cow::Borrowed("response"));
    }
    serde_json::from_slice::<RecordHead<'_>>(line).map(|head| head.kind)
}

/// pi has no codes for its errors. This is the only place that reads its sentences.
fn refusal(error: String) -> AgentRefusal {
    if error.to_ascii_lowercase().contains("unknown command") {
        AgentRefusal::UnknownCommand(error)
    } else {
        AgentRefusal::Failed(error)
    }
}

fn reply(line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    #[derive(Deserialize)]
    struct Response {
        id: Option<Value>,
        command: Option<Value>,
        #[serde(default)]
        success: bool,
        #[serde(default)]
        data: Value,
        error: Option<Value>,
    }
    let response: Response = serde_json::from_slice(line)?;
    let result = if response.success {
        Ok(response.data)
    } else {
        Err(refusal(response.error.map_or_else(|| "pi gave no reason".to_owned(), text_of)))
    };
    let (id, command) = (response.id.map(text_of), response.command.map(text_of).unwrap_or_default());
    out.push(PiOutput::Reply(AgentReply { id, command, result }));
    Ok(())
}

/// A string as it is, anything else as JSON.
pub(super) fn text_of(value: Value) -> String {
    if let Value::String(text) = value { text } else { value.to_string() }
}

/// A native event nobody knows, with all its fields.
pub(super) fn unknown(kind: &str, line: &[u8], out: &mut Vec<PiOutput>) -> LineResult {
    let fields = if line.len() > UNKNOWN_FIELDS_BYTES_MAX {
        other_events::absorbed(line)?;
        JsonObject::from_iter([("omitted_bytes".to_owned(), Value::from(line.len()))])
    } else {
        let mut fields: JsonObject = serde_json::from_slice(line)?;
        fields.remove("type");
        fields
    };
    out.push(PiOutput::Event(AgentEvent::Unknown { event: format!("x-pi.{kind}"), fields }));
    Ok(())
}
