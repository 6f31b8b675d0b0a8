//! The texts of this face's frames. They are written by hand: every command has four, and all but one go to every
//! connection.
//!
//! So a frame is built once, as bytes, and shared by all connections. Only the frames with an idempotency key are
//! made twice: the key is for the command's own principal alone.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use qd_core::view::pi_server::admission::PiServerOutcome;
use qd_core::view::pi_server::request::PiServerRequest;
use qd_wire::pi_server::{FaceEvent, SessionInfo};
use qd_wire::{CodedError, ErrorCode};
use serde::Serialize;
use serde_json::Value;

use crate::connection::frame;

/// What `command_accepted`, `command_started` and `command_finished` say of their command, written once.
pub(crate) struct CommandHeading {
    /// The fields that everybody sees.
    fields: String,
    /// The idempotency key, which is for the command's own principal alone.
    key: Option<String>,
}

/// Which frame of a command.
#[derive(Clone, Copy)]
pub(crate) enum CommandPhase<'a> {
    Accepted,
    Started,
    Finished { outcome: &'a PiServerOutcome, replayed: bool },
}

impl CommandHeading {
    pub(crate) fn new(request: &PiServerRequest, command_id: &str) -> Self {
        let envelope = &request.envelope;
        let mut fields = String::with_capacity(128);
        fields.push_str("\"commandId\":");
        push_string(&mut fields, command_id);
        fields.push_str(",\"commandType\":\"");
        fields.push_str(request.spec.name);
        fields.push('"');
        if let Some(session_id) = &request.session_id {
            fields.push_str(",\"sessionId\":");
            push_string(&mut fields, session_id);
        }
        fields.push_str(",\"dependsOn\":[");
        for (number, id) in envelope.depends_on.iter().flatten().enumerate() {
            if number > 0 {
                fields.push(',');
            }
            push_string(&mut fields, id);
        }
        fields.push(']');
        if let Some(version) = envelope.if_session_version {
            fields.push_str(&format!(",\"ifSessionVersion\":{version}"));
        }
        let key = envelope.idempotency_key.as_deref().map(|key| {
            let mut text = ",\"idempotencyKey\":".to_owned();
            push_string(&mut text, key);
            text
        });
        Self { fields, key }
    }

    /// Whether the command's own principal sees more than others.
    pub(crate) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Appends the frame of a phase.
    pub(crate) fn push_frame(&self, out: &mut BytesMut, phase: CommandPhase<'_>, for_own: bool) {
        let start = match phase {
            CommandPhase::Accepted => "{\"type\":\"command_accepted\",\"data\":{",
            CommandPhase::Started => "{\"type\":\"command_started\",\"data\":{",
            CommandPhase::Finished { .. } => "{\"type\":\"command_finished\",\"data\":{",
        };
        let key = self.key.as_deref().filter(|_| for_own).unwrap_or_default();
        let end = match phase {
            CommandPhase::Accepted | CommandPhase::Started => String::new(),
            CommandPhase::Finished { outcome, replayed } => finished_fields(outcome, replayed),
        };
        let parts = [start, &self.fields, key, &end, "}}"];
        frame::put_text_header(out, parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| out.put_slice(part.as_bytes()));
    }
}

fn finished_fields(outcome: &PiServerOutcome, replayed: bool) -> String {
    let mut text = String::with_capacity(64);
    text.push_str(if outcome.success { ",\"success\":true" } else { ",\"success\":false" });
    push_rest(&mut text, outcome, replayed);
    text
}

/// The fields that `command_finished` and the response have both.
fn push_rest(text: &mut String, outcome: &PiServerOutcome, replayed: bool) {
    if let Some(error) = &outcome.error {
        text.push_str(",\"error\":");
        push_string(text, error);
    }
    if let Some(code) = outcome.code {
        push_code(text, code);
    }
    if let Some(version) = outcome.session_version {
        text.push_str(&format!(",\"sessionVersion\":{version}"));
    }
    if replayed {
        text.push_str(",\"replayed\":true");
    }
}

/// Data that is greater is not copied into its frame: that would be done with the pending commands locked.
const COPIED_BYTES_MAX: usize = 16 << 10;

/// One frame as it is written.
#[derive(Debug)]
pub(crate) enum PiFrame {
    Whole(Bytes),
    /// To be written one after the other with nothing in between.
    Pieces(Box<[Bytes]>),
}

/// Text that is shared and not copied.
pub(crate) fn shared(text: &Arc<str>) -> Bytes {
    struct SharedText(Arc<str>);
    impl AsRef<[u8]> for SharedText {
        fn as_ref(&self) -> &[u8] {
            self.0.as_bytes()
        }
    }
    Bytes::from_owner(SharedText(Arc::clone(text)))
}

/// The response to a command. `id` is what the client sent.
pub(crate) fn response(
    id: Option<&str>,
    command: &str,
    outcome: &PiServerOutcome,
    replayed: bool,
) -> PiFrame {
    let id = id.map(|id| {
        let mut text = String::with_capacity(id.len() + 2);
        push_string(&mut text, id);
        text
    });
    let mut head = response_head(id.as_deref(), command, outcome.success);
    let mut tail = String::new();
    push_rest(&mut tail, outcome, replayed);
    if outcome.timed_out {
        tail.push_str(",\"timedOut\":true");
    }
    if outcome.indeterminate {
        tail.push_str(",\"indeterminate\":true");
    }
    tail.push('}');
    let Some(data) = outcome.data.as_ref().filter(|data| !data.is_empty()) else {
        return PiFrame::Whole(frame::text_of(&[head.as_bytes(), tail.as_bytes()]));
    };
    head.push_str(",\"data\":");
    if data.len() <= COPIED_BYTES_MAX {
        return PiFrame::Whole(frame::text_of(&[head.as_bytes(), data.as_bytes(), tail.as_bytes()]));
    }
    let mut start = BytesMut::with_capacity(head.len() + frame::HEADER_BYTES_MAX);
    frame::put_text_header(&mut start, head.len() + data.len() + tail.len());
    start.put_slice(head.as_bytes());
    PiFrame::Pieces([start.freeze(), shared(data), Bytes::from(tail)].into())
}

/// The response to what was not admitted. `id` is echoed whatever it is.
pub(crate) fn refusal(id: Option<&Value>, command: &str, error: &CodedError) -> Bytes {
    let id = id.map(Value::to_string);
    let mut text = response_head(id.as_deref(), command, false);
    text.push_str(",\"error\":");
    push_string(&mut text, &error.message);
    push_code(&mut text, error.code);
    if let Some(limit) = error.limit {
        text.push_str(&format!(",\"limit\":{limit}"));
    }
    text.push('}');
    frame::text(text.as_bytes())
}

fn push_code(text: &mut String, code: ErrorCode) {
    text.push_str(",\"code\":\"");
    text.push_str(code.as_str());
    text.push('"');
}

fn response_head(id: Option<&str>, command: &str, success: bool) -> String {
    let mut text = String::with_capacity(96);
    text.push_str("{\"type\":\"response\"");
    if let Some(id) = id {
        text.push_str(",\"id\":");
        text.push_str(id);
    }
    text.push_str(",\"command\":");
    push_string(&mut text, command);
    text.push_str(if success { ",\"success\":true" } else { ",\"success\":false" });
    text
}

/// `session_created`.
pub(crate) fn session_created(session_id: &str, info: &SessionInfo) -> Bytes {
    let data = format!("{{\"sessionId\":{},\"sessionInfo\":{}}}", string(session_id), json(info));
    message("session_created", &data)
}

/// `session_deleted`.
pub(crate) fn session_deleted(session_id: &str) -> Bytes {
    message("session_deleted", &format!("{{\"sessionId\":{}}}", string(session_id)))
}

/// `lifecycle_gap`.
pub(crate) fn lifecycle_gap(missed: u64) -> Bytes {
    message("lifecycle_gap", &format!("{{\"missed\":{missed}}}"))
}

/// A frame with a type and data.
pub(crate) fn message(kind: &str, data: &str) -> Bytes {
    frame::text_of(&[b"{\"type\":\"", kind.as_bytes(), b"\",\"data\":", data.as_bytes(), b"}"])
}

/// An event of a session that the server makes itself.
pub(crate) fn event(session_id: &str, event: &FaceEvent) -> Bytes {
    let head = format!("{{\"type\":\"event\",\"sessionId\":{},\"event\":", string(session_id));
    frame::text_of(&[head.as_bytes(), json(event).as_bytes(), b"}"])
}

/// Wire types as text.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        // These types have no maps with odd keys, so writing them does not fail.
        tracing::error!(%error, "a wire type cannot be written");
        "null".to_owned()
    })
}

/// A string as JSON.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_string(&mut out, text);
    out
}

/// Appends a string as JSON. Names have no escapes, as a rule.
pub(crate) fn push_string(out: &mut String, text: &str) {
    if text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

#[cfg(test)]
#[path = "lifecycle_tests.rs"]
mod tests;
