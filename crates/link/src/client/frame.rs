//! One frame of the server, kept as text.

use std::borrow::Cow;

use memchr::memmem;
use qd_wire::mux::SystemEvent;
use qd_wire::{CommandResponse, EventEnvelope};
use serde::Deserialize;
use tokio_tungstenite::tungstenite::Utf8Bytes;

/// How our hub begins an answer; the id follows. Other servers may order the fields as they like.
const RESPONSE_PREFIX: &str = "{\"channel\":\"agent\",\"event\":\"response\",\"id\":\"";

/// A text frame as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    text: Utf8Bytes,
}

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    Event,
    /// The answer to the command with this id; `None` when the id is not one of ours.
    Response(Option<u64>),
    System,
    /// Not a frame of this protocol.
    Unknown,
}

/// The fields that say where an event belongs, borrowed from the text.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct FrameHead<'a> {
    #[serde(default, borrow)]
    pub channel: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub event: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub session_id: Option<Cow<'a, str>>,
    pub ts: Option<i64>,
    pub seq: Option<u64>,
}

#[derive(Deserialize)]
struct KindHead<'a> {
    #[serde(default, borrow)]
    channel: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    event: Option<Cow<'a, str>>,
    id: Option<serde_json::Value>,
}

impl Frame {
    /// A frame from its text.
    pub fn new(text: impl Into<Utf8Bytes>) -> Frame {
        Frame { text: text.into() }
    }

    /// The text as it came.
    pub fn text(&self) -> &str {
        self.text.as_str()
    }

    /// The event in the frame.
    pub fn event(&self) -> Result<EventEnvelope, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// The answer in the frame.
    pub fn response(&self) -> Result<CommandResponse, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// The news of the `system` channel in the frame.
    pub fn system(&self) -> Result<SystemEvent, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// Where the event belongs, without reading the rest of it.
    pub fn head(&self) -> Result<FrameHead<'_>, serde_json::Error> {
        serde_json::from_str(self.text())
    }

    /// What the frame is about. Deltas are told apart by a search, without being parsed.
    pub fn kind(&self) -> FrameKind {
        let text = self.text();
        if let Some(id) = response_id(text) {
            return FrameKind::Response(Some(id));
        }
        let bytes = text.as_bytes();
        // Quotes inside of strings are escaped, so these bytes are whole JSON strings wherever they stand.
        let may_be_response = memmem::find(bytes, b"\"response\"").is_some();
        let may_be_system = memmem::find(bytes, b"\"system\"").is_some();
        if !may_be_response && !may_be_system && text.starts_with("{\"channel\":\"agent\",") {
            return FrameKind::Event;
        }
        let Ok(head) = serde_json::from_str::<KindHead<'_>>(text) else { return FrameKind::Unknown };
        match (head.channel.as_deref(), head.event.as_deref()) {
            (Some("system"), _) => FrameKind::System,
            (_, Some("response")) => {
                FrameKind::Response(head.id.as_ref().and_then(|id| id.as_str()?.parse().ok()))
            }
            (_, Some(_)) => FrameKind::Event,
            (_, None) => FrameKind::Unknown,
        }
    }
}

fn response_id(text: &str) -> Option<u64> {
    let rest = text.strip_prefix(RESPONSE_PREFIX)?;
    let end = memchr::memchr(b'"', rest.as_bytes())?;
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart_in_any_spelling() {
        let cases = [
            (
                r#"{"channel":"agent","event":"response","id":"7","ts":1,"cmd":"abort","success":true}"#,
                FrameKind::Response(Some(7)),
            ),
            (r#"{ "event": "response", "channel": "agent", "id": "7" }"#, FrameKind::Response(Some(7))),
            (r#"{"channel":"agent","event":"response","id":7}"#, FrameKind::Response(None)),
            (
                r#"{"channel":"agent","session_id":"s","event":"stream.text_delta","delta":"x"}"#,
                FrameKind::Event,
            ),
            (
                r#"{"channel":"agent","session_id":"s","event":"tool.start","input":{"event":"response"}}"#,
                FrameKind::Event,
            ),
            (
                r#"{"channel":"agent","session_id":"s","event":"stream.message_start","role":"system"}"#,
                FrameKind::Event,
            ),
            (r#"{"channel":"system","type":"shutdown","reason":"bye"}"#, FrameKind::System),
            ("nonsense", FrameKind::Unknown),
        ];
        for (text, kind) in cases {
            assert_eq!(Frame::new(text).kind(), kind, "{text}");
        }
    }

    #[test]
    fn the_head_is_read_without_the_body() {
        let frame = Frame::new(
            r#"{"channel":"agent","session_id":"s1","ts":5,"seq":9,"event":"notify","level":"info"}"#,
        );
        let head = frame.head().unwrap();
        assert_eq!((head.session_id.as_deref(), head.seq, head.ts), (Some("s1"), Some(9), Some(5)));
    }
}
