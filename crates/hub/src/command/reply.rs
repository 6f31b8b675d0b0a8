//! Frames the hub writes itself: answers, and the `system` channel.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use qd_link::clock::now_ms;
use qd_wire::mux::{ServerFrame, SystemEvent};
use qd_wire::{CodedError, SYSTEM_SESSION};

use crate::connection::frame;
use crate::runners::line_head::json_string;

const RESPONSE_PREFIX: &str = "{\"channel\":\"agent\",\"event\":\"response\",";
/// The `runner_id` of answers that no runner gave.
const HUB: &str = "hub";

/// Where an answer goes: what it repeats of its command.
#[derive(Debug, Clone)]
pub(crate) struct ReplyTo {
    /// The client's `id` as it came, in JSON.
    pub(crate) id: Option<Box<str>>,
    pub(crate) cmd: Cow<'static, str>,
    pub(crate) session_id: Option<Arc<str>>,
    pub(crate) runner_id: Option<Arc<str>>,
}

impl ReplyTo {
    /// `data` is JSON.
    pub(crate) fn success(&self, data: Option<&str>) -> Bytes {
        match data {
            Some(data) => frame::text(&self.success_text(data)),
            None => frame::text(format!("{}}}", self.start(true)).as_bytes()),
        }
    }

    /// The same for data in pieces, which are copied once.
    pub(crate) fn success_of(&self, data: &[&[u8]]) -> Bytes {
        let start = self.start(true);
        let mut parts = Vec::with_capacity(data.len() + 3);
        parts.extend([start.as_bytes(), b",\"data\":".as_slice()]);
        parts.extend(data);
        parts.push(b"}");
        frame::text_of(&parts)
    }

    /// The text of a success with data, without the frame around it.
    pub(crate) fn success_text(&self, data: &str) -> Vec<u8> {
        format!("{},\"data\":{data}}}", self.start(true)).into_bytes()
    }

    pub(crate) fn error(&self, error: &CodedError) -> Bytes {
        frame::text(format!("{}{}}}", self.start(false), error_fields(error)).as_bytes())
    }

    /// Nobody can know whether the command took effect.
    pub(crate) fn indeterminate(&self, error: &CodedError) -> Bytes {
        let fields = error_fields(error);
        frame::text(format!("{}{fields},\"indeterminate\":true}}", self.start(false)).as_bytes())
    }

    /// How far the command is; `data` is JSON.
    pub(crate) fn progress(&self, data: &str) -> Bytes {
        let id = self.id.as_deref().map_or(String::new(), |id| format!(",\"id\":{id}"));
        let text = format!(
            "{{\"channel\":\"agent\",\"session_id\":{},\"runner_id\":{},\"ts\":{},\"event\":\"progress\"{id},\"cmd\":{},\"data\":{data}}}",
            json_string(self.session_id.as_deref().unwrap_or(SYSTEM_SESSION)),
            json_string(self.runner_id.as_deref().unwrap_or(HUB)),
            now_ms(),
            json_string(&self.cmd),
        );
        frame::text(text.as_bytes())
    }

    fn start(&self, success: bool) -> String {
        let id = self.id.as_deref().map_or(String::new(), |id| format!("\"id\":{id},"));
        let session_id = json_string(self.session_id.as_deref().unwrap_or(SYSTEM_SESSION));
        let runner_id = json_string(self.runner_id.as_deref().unwrap_or(HUB));
        let (ts, cmd) = (now_ms(), json_string(&self.cmd));
        format!(
            "{RESPONSE_PREFIX}{id}\"session_id\":{session_id},\"runner_id\":{runner_id},\"ts\":{ts},\"cmd\":{cmd},\
             \"success\":{success}"
        )
    }
}

/// A runner's answer as the client sees it: its own `id`, then the runner's fields as they came.
pub(crate) fn spliced_response(id: Option<&str>, tail: &str) -> Bytes {
    let id_bytes = id.map_or(0, |id| id.len() + 6);
    let length = RESPONSE_PREFIX.len() + id_bytes + tail.len();
    let mut out = BytesMut::with_capacity(length + frame::HEADER_BYTES_MAX);
    frame::put_text_header(&mut out, length);
    out.put_slice(&response_start(id));
    out.put_slice(tail.as_bytes());
    out.freeze()
}

/// What comes before the runner's fields.
pub(crate) fn response_start(id: Option<&str>) -> Vec<u8> {
    let id = id.map_or(String::new(), |id| format!("\"id\":{id},"));
    format!("{RESPONSE_PREFIX}{id}").into_bytes()
}

/// A frame that is written whole.
pub(crate) fn server_frame(frame: &ServerFrame) -> Bytes {
    match serde_json::to_vec(frame) {
        Ok(text) => frame::text(&text),
        Err(error) => {
            tracing::error!(%error, "a frame cannot be written");
            Bytes::new()
        }
    }
}

/// A frame of the `system` channel.
pub(crate) fn system(event: SystemEvent) -> Bytes {
    server_frame(&ServerFrame::System(event))
}

/// Tells a client that a frame could not be understood. `id` is JSON as it came.
pub(crate) fn system_error(id: Option<&str>, error: &CodedError) -> Bytes {
    let id = id.map_or(String::new(), |id| format!(",\"id\":{id}"));
    let fields = error_fields(error);
    frame::text(format!("{{\"channel\":\"system\",\"type\":\"error\"{id}{fields}}}").as_bytes())
}

/// The error, its code and its limit if it has one, after other fields of an object.
fn error_fields(error: &CodedError) -> String {
    let limit = error.limit.map_or(String::new(), |limit| format!(",\"limit\":{limit}"));
    format!(",\"error\":{},\"code\":\"{}\"{limit}", json_string(&error.message), error.code.as_str())
}
