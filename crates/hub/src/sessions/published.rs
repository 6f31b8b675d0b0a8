//! What the hub has just published of a session. The heads of its records were read when they came over the link, and
//! nobody reads them again: faces get them with the bytes that all clients share.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use qd_core::record::Record;

use crate::sessions::effects::SessionNote;
use crate::sessions::session::SessionEntry;

/// Names that most records have; theirs need no memory of their own.
const COMMON_NAMES: [&str; 14] = [
    "run.output",
    "stream.message_end",
    "tool.start",
    "tool.end",
    "tool.call",
    "tool.result",
    "agent.idle",
    "agent.input_needed",
    "agent.input_resolved",
    "run.input",
    "run.resized",
    "session.created",
    "run.started",
    "run.exited",
];

/// The name of an event, without a copy for the common ones.
pub(crate) fn event_name(name: &str) -> Cow<'static, str> {
    let common = COMMON_NAMES.into_iter().find(|common| *common == name);
    common.map_or_else(|| Cow::Owned(name.to_owned()), Cow::Borrowed)
}

/// The head of a record, and where its text stands among the frames it was published with.
#[derive(Debug, Clone)]
pub(crate) struct RecordHead {
    pub(crate) seq: u64,
    /// Unix milliseconds.
    pub(crate) ts: i64,
    pub(crate) event: Cow<'static, str>,
    /// The whole text of the record.
    pub(crate) text: Range<usize>,
    /// Where in the frames its own fields begin, without the opening brace.
    pub(crate) body_at: usize,
}

/// One piece of a session's stream that is stored and published.
#[derive(Clone, Copy)]
pub(crate) struct PublishedEvents<'a> {
    pub(crate) entry: &'a Arc<SessionEntry>,
    frames: &'a Bytes,
    heads: &'a [RecordHead],
    /// What its events, live ones too, say of the session.
    pub(crate) notes: &'a [SessionNote],
}

impl<'a> PublishedEvents<'a> {
    pub(crate) fn new(
        entry: &'a Arc<SessionEntry>,
        frames: &'a Bytes,
        heads: &'a [RecordHead],
        notes: &'a [SessionNote],
    ) -> Self {
        Self { entry, frames, heads, notes }
    }

    /// Deltas are nearly all there is: they are no records, and say nothing of their session.
    pub(crate) fn is_of_interest(&self) -> bool {
        !self.heads.is_empty() || !self.notes.is_empty()
    }

    pub(crate) fn has_records(&self) -> bool {
        !self.heads.is_empty()
    }

    /// The bytes of all its frames.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.frames.len()
    }

    /// Its records in order.
    pub(crate) fn records(self) -> impl Iterator<Item = Record<'a>> {
        self.heads.iter().filter_map(move |head| {
            // The line was UTF-8 when its head was read.
            let rest = std::str::from_utf8(self.frames.get(head.body_at..head.text.end)?).ok()?;
            Some(Record {
                session_id: Cow::Borrowed(&self.entry.id_json),
                runner_id: Cow::Borrowed(&self.entry.runner_json),
                ts: head.ts,
                seq: head.seq,
                event: Cow::Borrowed(&head.event),
                rest: Cow::Borrowed(rest),
            })
        })
    }
}

/// Live events of one session in the words of its own harness, in stream order.
#[derive(Debug, Default)]
pub(crate) struct NativeEvents {
    /// What follows the type in the line of each, without an opening brace.
    pub(crate) tails: Vec<Bytes>,
    /// They come from our own process, whose lines have one spelling.
    pub(crate) is_local: bool,
}

impl NativeEvents {
    /// The bytes that wait with them.
    pub(crate) fn bytes(&self) -> usize {
        self.tails.iter().map(Bytes::len).sum()
    }
}

/// Frames of records, with their heads.
#[cfg(test)]
pub(crate) fn frames_of(records: &[String]) -> (Bytes, Vec<RecordHead>) {
    let mut frames = bytes::BytesMut::new();
    let mut heads = Vec::new();
    for text in records {
        let record = Record::parse(text).expect("a record");
        crate::connection::frame::put_text_header(&mut frames, text.len());
        let start = frames.len();
        frames.extend_from_slice(text.as_bytes());
        let end = frames.len();
        let body_at = end - record.rest.len();
        heads.push(RecordHead {
            seq: record.seq,
            ts: record.ts,
            event: event_name(&record.event),
            text: start..end,
            body_at,
        });
    }
    (frames.freeze(), heads)
}
