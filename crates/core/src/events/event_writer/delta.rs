//! Pieces of streamed text: the hot path of the whole system, so their lines are written by hand.
//!
//! Pieces of one text that the agent wrote at once become one line, if nothing was said between them: the hub and every
//! client then have one event to handle instead of hundreds, and nobody has to wait for it.

use std::ops::Range;

use super::{EventFront, EventWriter, write_json, write_number};

/// A line longer than this is not made longer still, so that what is shown goes on in small steps.
const JOINED_BYTES_MAX: usize = 4096;

/// A streamed piece of text.
#[derive(Debug, Clone, Copy)]
pub struct Delta<'a> {
    pub event: &'static str,
    pub message_id: &'a str,
    pub tool_call_id: Option<&'a str>,
    pub delta: &'a str,
    pub content_index: u32,
    /// The characters of its text before it.
    pub offset: u64,
}

/// The line of the last delta.
#[derive(Debug)]
pub(super) struct LastDelta {
    event: &'static str,
    /// Where its line lies in the batch.
    line: Range<usize>,
    message_id: Range<usize>,
    tool_call_id: Option<Range<usize>>,
    /// Where the closing quote of its text stands.
    text_end: usize,
    content_index: u32,
    offset: u64,
    /// The characters of its text up to its end.
    end: u64,
}

impl EventWriter {
    /// One delta: no value is built and nothing is copied twice.
    pub fn delta(&mut self, front: &EventFront, ts: i64, delta: Delta<'_>) {
        if !self.joins_last(front, &delta) {
            self.new_delta(front, ts, delta);
        }
    }

    fn new_delta(&mut self, front: &EventFront, ts: i64, delta: Delta<'_>) {
        if self.bytes.capacity() == 0 {
            self.bytes.reserve(self.expected_bytes);
        }
        let bytes = &mut self.bytes;
        let start = bytes.len();
        bytes.extend_from_slice(&front.event);
        write_number(bytes, ts.unsigned_abs());
        bytes.extend_from_slice(b",\"event\":\"");
        bytes.extend_from_slice(delta.event.as_bytes());
        bytes.extend_from_slice(b"\",\"message_id\":\"");
        // Message ids are ours: letters, digits and dashes, so they need no escaping.
        let message_id = put(bytes, delta.message_id.as_bytes());
        bytes.extend_from_slice(b"\",");
        let tool_call_id = delta.tool_call_id.map(|tool_call_id| {
            bytes.extend_from_slice(b"\"tool_call_id\":");
            let start = bytes.len();
            write_json(bytes, tool_call_id);
            let id = start + 1..bytes.len() - 1;
            bytes.push(b',');
            id
        });
        bytes.extend_from_slice(b"\"delta\":\"");
        put_text(bytes, delta.delta);
        let text_end = bytes.len();
        put_end(bytes, delta.content_index, delta.offset);
        self.last_delta = Some(LastDelta {
            event: delta.event,
            line: start..bytes.len(),
            message_id,
            tool_call_id,
            text_end,
            content_index: delta.content_index,
            offset: delta.offset,
            end: delta.offset + count_characters(delta.delta),
        });
    }

    /// Appends it to the text of the line before it, if it goes on there.
    fn joins_last(&mut self, front: &EventFront, delta: &Delta<'_>) -> bool {
        let Self { bytes, last_delta: Some(last), .. } = self else { return false };
        let tool_call_id = last.tool_call_id.clone().map(|range| &bytes[range]);
        let goes_on = last.line.end == bytes.len()
            && last.end == delta.offset
            && last.content_index == delta.content_index
            && last.event == delta.event
            && last.line.len() < JOINED_BYTES_MAX
            && bytes[last.message_id.clone()] == *delta.message_id.as_bytes()
            // One that needs escapes is not recognised, and stays by itself.
            && tool_call_id == delta.tool_call_id.map(str::as_bytes)
            && bytes[last.line.clone()].starts_with(&front.event);
        if !goes_on {
            return false;
        }
        bytes.truncate(last.text_end);
        put_text(bytes, delta.delta);
        last.text_end = bytes.len();
        put_end(bytes, last.content_index, last.offset);
        last.line.end = bytes.len();
        last.end += count_characters(delta.delta);
        true
    }
}

/// Characters as offsets count them.
pub(crate) fn count_characters(text: &str) -> u64 {
    text.bytes().filter(|byte| (byte & 0xC0) != 0x80).count() as u64
}

fn put(bytes: &mut Vec<u8>, piece: &[u8]) -> Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(piece);
    start..bytes.len()
}

/// The inside of a JSON string.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    let needs_escape = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    if text.bytes().any(needs_escape) {
        let start = bytes.len();
        write_json(bytes, text);
        bytes.pop();
        bytes.remove(start);
    } else {
        bytes.extend_from_slice(text.as_bytes());
    }
}

fn put_end(bytes: &mut Vec<u8>, content_index: u32, offset: u64) {
    bytes.extend_from_slice(b"\",\"content_index\":");
    write_number(bytes, u64::from(content_index));
    bytes.extend_from_slice(b",\"offset\":");
    write_number(bytes, offset);
    bytes.extend_from_slice(b"}\n");
}

#[cfg(test)]
#[path = "delta_tests.rs"]
mod tests;
