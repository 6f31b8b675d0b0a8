//! Native events as frames of the document, cut out of their lines: they are not stored.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};

use crate::connection::frame;
use crate::runners::line_head::{JsonFields, json_string};
use crate::sessions::published::NativeEvents;

/// What stands before the event itself in the line as a runner writes it, after session, runner and time.
const NATIVE_START: &str = ",\"event\":\"x-native\",\"native\":";
const FRAME_START: &[u8] = b"{\"type\":\"event\",\"sessionId\":";
const EVENT_FIELD: &[u8] = b",\"event\":";

/// Whole frames of one session, ready for every client that follows it.
#[derive(Debug, PartialEq)]
pub(crate) struct NativeFrames {
    pub(crate) frames: Bytes,
    pub(crate) count: u64,
}

/// The same while they are collected.
#[derive(Default)]
pub(crate) struct NativeFrameWriter {
    out: BytesMut,
    count: u64,
    /// What every frame of the session starts with; empty before the first.
    start: Vec<u8>,
}

impl NativeFrameWriter {
    /// Takes the event out of a line's tail. False when there is none. A runner of our own process writes it last in
    /// the line; what stands where in the line of another is read.
    fn push(&mut self, session_id: &str, tail: &str, is_local: bool) -> bool {
        // Cutting is safe only for lines we wrote ourselves: another machine could add fields after the event.
        let native = if is_local { cut(tail).map(Cow::Borrowed) } else { None };
        let Some(native) = native.or_else(|| read(tail)) else { return false };
        if self.start.is_empty() {
            self.start = [FRAME_START, json_string(session_id).as_bytes(), EVENT_FIELD].concat();
        }
        frame::put_text_header(&mut self.out, self.start.len() + native.len() + 1);
        self.out.put_slice(&self.start);
        self.out.put_slice(native.as_bytes());
        self.out.put_u8(b'}');
        self.count += 1;
        true
    }

    /// The frames of all events that are objects.
    pub(crate) fn of(session_id: &str, events: &NativeEvents) -> Option<NativeFrames> {
        let mut frames = Self::default();
        for tail in &events.tails {
            let is_taken =
                std::str::from_utf8(tail).is_ok_and(|tail| frames.push(session_id, tail, events.is_local));
            if !is_taken {
                tracing::warn!(session = session_id, "a native event of the runner is no object; skipped");
            }
        }
        frames.finish()
    }

    fn finish(self) -> Option<NativeFrames> {
        (self.count > 0).then(|| NativeFrames { frames: self.out.freeze(), count: self.count })
    }
}

/// The last field of the usual line. Quotes within the strings before it are escaped, so what is found first is the
/// field itself.
fn cut(tail: &str) -> Option<&str> {
    let start = memchr::memmem::find(tail.as_bytes(), NATIVE_START.as_bytes())? + NATIVE_START.len();
    let native = tail.get(start..)?.strip_suffix('}')?;
    (native.starts_with('{') && native.ends_with('}')).then_some(native)
}

fn read(tail: &str) -> Option<Cow<'static, str>> {
    let text = format!("{{{tail}");
    let fields: JsonFields<'_> = serde_json::from_str(&text).ok()?;
    let native = fields.get("native")?.get();
    native.starts_with('{').then(|| Cow::Owned(native.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(session_id: &str, tails: &[&str], is_local: bool) -> Vec<String> {
        let mut natives = NativeFrameWriter::default();
        let taken = tails.iter().filter(|tail| natives.push(session_id, tail, is_local)).count();
        let Some(NativeFrames { frames, count }) = natives.finish() else { return Vec::new() };
        assert_eq!(taken as u64, count);
        let (mut rest, mut found) = (&frames[..], Vec::new());
        while let Some((frame, text)) = frame::split_text(rest) {
            found.push(String::from_utf8(text.to_vec()).unwrap());
            rest = &rest[frame.len()..];
        }
        assert!(rest.is_empty());
        found
    }

    #[test]
    fn the_event_is_cut_out_and_wrapped() {
        let tail = |native: &str| {
            format!(r#""session_id":"s","runner_id":"r","ts":1,"event":"x-native","native":{native}}}"#)
        };
        let one = tail(r#"{"type":"turn_end","x":{"event":"x-native"}}"#);
        let two = tail(r#"{"type":"a","native":{"b":"}"}}"#);
        for is_local in [true, false] {
            assert_eq!(
                frames("s", &[&one, &two], is_local),
                [
                    r#"{"type":"event","sessionId":"s","event":{"type":"turn_end","x":{"event":"x-native"}}}"#,
                    r#"{"type":"event","sessionId":"s","event":{"type":"a","native":{"b":"}"}}}"#,
                ]
            );
            for odd in ["7", "[]", "null", "\"x\"", "\"{}\""] {
                assert!(frames("s", &[&tail(odd)], is_local).is_empty(), "{odd}");
            }
        }
    }

    #[test]
    fn a_line_of_another_machine_says_nothing_beside_its_event() {
        let tail = r#""session_id":"s","runner_id":"r","ts":1,"event":"x-native","native":{"type":"a"},"sessionId":"other","y":{}}"#;
        assert_eq!(
            frames("s\"1", &[tail], false),
            [r#"{"type":"event","sessionId":"s\"1","event":{"type":"a"}}"#]
        );
        assert!(frames("s", &[r#""event":"x-native"}"#], false).is_empty());
        // Fields in another order, as a runner of ours would not write them.
        let tail =
            r#""session_id":"s","runner_id":"r","ts":1,"event":"x-native","x":1,"native":{"type":"a"}}"#;
        assert_eq!(frames("s", &[tail], true), [r#"{"type":"event","sessionId":"s","event":{"type":"a"}}"#]);
    }
}
