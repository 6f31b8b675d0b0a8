//! The shortest stream that says the same, for a client that is behind: pieces of one text become one piece, and of
//! live events that replace each other the newest stays. Records are never touched, and nothing passes one.
//!
//! It works on the bytes of the frames and knows one spelling of them. Being wrong here would corrupt a client's text,
//! so a frame that is spelled differently is passed on unchanged.

use std::collections::HashMap;

use bytes::{BufMut, Bytes, BytesMut};

use crate::connection::frame;
use crate::runners::line_head::LineScanner;

const EVENT_START: &str = "{\"channel\":\"agent\",\"session_id\":\"";

/// Joins what can be joined in chunks of whole frames of one session.
pub(super) fn coalesce(chunks: &[Bytes]) -> Bytes {
    let bytes = chunks.iter().map(Bytes::len).sum();
    let mut run = LiveRun { out: BytesMut::with_capacity(bytes), pieces: Vec::new(), newest: HashMap::new() };
    for chunk in chunks {
        let mut rest: &[u8] = chunk;
        while !rest.is_empty() {
            // What is no text frame of ours is passed on as it is.
            let (whole, payload) = frame::split_text(rest).unwrap_or((rest, &[]));
            run.add(whole, std::str::from_utf8(payload).unwrap_or_default());
            rest = &rest[whole.len()..];
        }
    }
    run.flush();
    run.out.freeze()
}

/// Live events since the last frame that nothing may pass.
struct LiveRun<'a> {
    out: BytesMut,
    pieces: Vec<LivePiece<'a>>,
    /// Where the newest of those that replace each other stands.
    newest: HashMap<ReplacedKey<'a>, usize>,
}

enum LivePiece<'a> {
    Whole(&'a [u8]),
    Text(LiveText<'a>),
    /// A newer one has come.
    Gone,
}

/// Pieces of one text that follow each other.
struct LiveText<'a> {
    first: TextDelta<'a>,
    more: Vec<&'a str>,
    /// Where the text ends so far, if the pieces say where they begin. Kept, since counting the characters of all
    /// pieces for each new one would take a time that grows with their square.
    end: Option<u64>,
}

/// Live events of which only the newest matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ReplacedKey<'a> {
    event: &'a str,
    key: &'a str,
}

enum LiveKind<'a> {
    Delta(TextDelta<'a>),
    Replaced(ReplacedKey<'a>),
    Other,
}

/// A piece of a text that is being generated.
struct TextDelta<'a> {
    frame: &'a [u8],
    /// Up to the opening quote of the text, and what follows it from the closing quote on.
    before: &'a str,
    after: &'a str,
    /// The event, the message and the tool call it belongs to, as they stand in the frame.
    stream: &'a str,
    content_index: u64,
    text: &'a str,
    offset: Option<u64>,
}

impl<'a> LiveRun<'a> {
    fn add(&mut self, whole: &'a [u8], payload: &'a str) {
        match kind(whole, payload) {
            LiveKind::Delta(delta) => {
                let last = self.pieces.iter_mut().rev().find(|piece| !matches!(piece, LivePiece::Gone));
                if let Some(LivePiece::Text(text)) = last
                    && text.is_continued_by(&delta)
                {
                    text.more.push(delta.text);
                    text.end = delta.end();
                } else {
                    let end = delta.end();
                    self.pieces.push(LivePiece::Text(LiveText { first: delta, more: Vec::new(), end }));
                }
            }
            LiveKind::Replaced(replaced) => {
                if let Some(older) = self.newest.insert(replaced, self.pieces.len()) {
                    self.pieces[older] = LivePiece::Gone;
                }
                self.pieces.push(LivePiece::Whole(whole));
            }
            // A record, or a frame that is not understood. Joining across it could show a later state before it.
            LiveKind::Other => {
                self.flush();
                self.out.put_slice(whole);
            }
        }
    }

    fn flush(&mut self) {
        self.newest.clear();
        for piece in self.pieces.drain(..) {
            match piece {
                LivePiece::Whole(whole) => self.out.put_slice(whole),
                LivePiece::Text(LiveText { first, more, .. }) if more.is_empty() => {
                    self.out.put_slice(first.frame)
                }
                LivePiece::Text(LiveText { first, more, .. }) => {
                    let parts = [first.before, first.text].into_iter().chain(more).chain([first.after]);
                    let length = parts.clone().map(str::len).sum();
                    frame::put_text_header(&mut self.out, length);
                    parts.for_each(|part| self.out.put_slice(part.as_bytes()));
                }
                LivePiece::Gone => {}
            }
        }
    }
}

impl LiveText<'_> {
    /// Whether another piece goes on where this text ends.
    fn is_continued_by(&self, next: &TextDelta<'_>) -> bool {
        let is_same = self.first.stream == next.stream && self.first.content_index == next.content_index;
        is_same && self.end == next.offset
    }
}

impl TextDelta<'_> {
    /// Where its text ends, if it says where it begins.
    fn end(&self) -> Option<u64> {
        self.offset.map(|offset| offset.saturating_add(characters(self.text)))
    }
}

/// The characters of a JSON string's inside.
fn characters(text: &str) -> u64 {
    let mut count = 0;
    let mut rest = text.as_bytes();
    while let Some(byte) = rest.first() {
        let length = match byte {
            b'\\' if rest.get(1) == Some(&b'u') => {
                // The second half of a pair is no character of its own.
                let is_low_half = matches!(rest.get(2..4), Some([b'd' | b'D', b'c'..=b'f' | b'C'..=b'F']));
                count += u64::from(!is_low_half);
                6
            }
            b'\\' => {
                count += 1;
                2
            }
            byte => {
                count += u64::from(byte & 0xc0 != 0x80);
                1
            }
        };
        rest = rest.get(length..).unwrap_or_default();
    }
    count
}

fn kind<'a>(whole: &'a [u8], payload: &'a str) -> LiveKind<'a> {
    live_kind(whole, payload).unwrap_or(LiveKind::Other)
}

/// Reads the usual spelling; any other, and every record, is something that nothing passes.
fn live_kind<'a>(whole: &'a [u8], payload: &'a str) -> Option<LiveKind<'a>> {
    let mut scan = LineScanner { text: payload, at: 0 };
    scan.literal(EVENT_START)?;
    scan.plain_string()?;
    scan.literal(",\"runner_id\":\"")?;
    scan.plain_string()?;
    scan.literal(",\"ts\":")?;
    scan.number()?;
    scan.literal(",\"event\":\"")?;
    let stream_at = scan.at;
    let event = scan.plain_string()?;
    let key = match event {
        // There is one of these for the whole session.
        "session.heartbeat" | "agent.working" => "",
        "tool.progress" => keyed(&mut scan, ",\"tool_call_id\":\"")?,
        "status" => keyed(&mut scan, ",\"key\":\"")?,
        "stream.text_delta" | "stream.thinking_delta" | "stream.tool_call_delta" => {
            keyed(&mut scan, ",\"message_id\":\"")?;
            if event == "stream.tool_call_delta" {
                keyed(&mut scan, ",\"tool_call_id\":\"")?;
            }
            return delta(whole, scan, stream_at).map(LiveKind::Delta);
        }
        _ => return None,
    };
    Some(LiveKind::Replaced(ReplacedKey { event, key }))
}

fn keyed<'a>(scan: &mut LineScanner<'a>, name: &str) -> Option<&'a str> {
    scan.literal(name)?;
    scan.plain_string()
}

fn delta<'a>(whole: &'a [u8], mut scan: LineScanner<'a>, stream_at: usize) -> Option<TextDelta<'a>> {
    let stream = &scan.text[stream_at..scan.at];
    scan.literal(",\"delta\":\"")?;
    let start = scan.at;
    scan.at += json_string_bytes(&scan.text.as_bytes()[start..])?;
    let end = scan.at;
    scan.literal("\",\"content_index\":")?;
    let content_index = scan.number()?;
    let offset = match scan.literal(",\"offset\":") {
        Some(()) => Some(scan.number()?),
        None => None,
    };
    scan.literal("}")?;
    (scan.at == scan.text.len()).then_some(TextDelta {
        frame: whole,
        before: &scan.text[..start],
        after: &scan.text[end..],
        stream,
        content_index,
        text: &scan.text[start..end],
        offset,
    })
}

/// How far the inside of a JSON string goes.
fn json_string_bytes(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at);
        }
        at += 2;
    }
}

#[cfg(test)]
#[path = "coalesce_tests.rs"]
mod tests;
