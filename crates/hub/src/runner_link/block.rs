//! A block of link lines, taken apart: frames of each session in one piece, answers between them in order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes, BytesMut};
use qd_store::RecordIn;

use crate::effects::{self, Note};
use crate::frame;
use crate::head::{self, EVENT_PREFIX, EventHead, Line};
use crate::registry::{Hub, SessionEntry};

/// One step of the stream, in order within its session.
pub(super) enum Step {
    /// Frames to publish, after their records are stored.
    Frames {
        entry: Arc<SessionEntry>,
        frames: Bytes,
        records: Vec<RecordIn>,
        notes: Vec<Note>,
    },
    /// The runner has sent what the hub has: tell it how far that goes.
    Ack {
        entry: Arc<SessionEntry>,
        seq: u64,
    },
    Answer {
        id: String,
        session_id: Option<String>,
        success: bool,
        tail: String,
    },
    /// A session the runner had lost comes anew: the old one goes.
    Forget {
        entry: Arc<SessionEntry>,
    },
    /// A line about the runner itself.
    Runner {
        kind: String,
        line: String,
    },
}

/// Frames of one session, as they are collected.
struct Group {
    entry: Arc<SessionEntry>,
    out: BytesMut,
    records: Vec<Mark>,
    notes: Vec<Note>,
    ack: Option<u64>,
}

/// Where a record's text stands in its group.
struct Mark {
    seq: u64,
    ts: i64,
    event: String,
    start: usize,
    end: usize,
}

/// Takes blocks apart. Reads the heads of lines and nothing else.
pub(super) struct Splitter<'a> {
    hub: &'a Hub,
    runner_id: &'a Arc<str>,
    groups: Vec<Group>,
    by_session: HashMap<Arc<str>, usize>,
    current: usize,
    steps: Vec<Step>,
    capacity: usize,
}

/// The steps of one block, and how many of its bytes they cover. The answer to a delete ends them: what follows
/// may be a new session of the same name, which can only be told once the answer is acted on.
pub(super) fn split(hub: &Hub, runner_id: &Arc<str>, block: &Bytes) -> (Vec<Step>, usize) {
    let mut splitter = Splitter {
        hub,
        runner_id,
        groups: Vec::new(),
        by_session: HashMap::new(),
        current: 0,
        steps: Vec::new(),
        // A frame's head is a little longer than a line's.
        capacity: block.len() + block.len() / 16 + 64,
    };
    let mut taken = 0;
    match std::str::from_utf8(block) {
        Ok(text) => {
            for line in text.split('\n') {
                taken += line.len() + 1;
                if splitter.line(line) {
                    break;
                }
            }
        }
        Err(_) => {
            for line in block.split(|byte| *byte == b'\n') {
                taken += line.len() + 1;
                match std::str::from_utf8(line) {
                    Ok(line) if splitter.line(line) => break,
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "a line of the runner is not UTF-8; skipped"),
                }
            }
        }
    }
    splitter.flush();
    (splitter.steps, taken)
}

impl Splitter<'_> {
    /// True if the steps end here.
    fn line(&mut self, line: &str) -> bool {
        if line.is_empty() {
            return false;
        }
        match head::parse(line, self.runner_id) {
            Ok(Line::Event(head)) => self.event(&head),
            Ok(Line::Response(head)) => {
                self.flush();
                let is_last = self.hub.pending.is_delete(&head.id);
                self.steps.push(Step::Answer {
                    id: head.id.into_owned(),
                    session_id: head.session_id.map(Into::into),
                    success: head.success,
                    tail: head.tail.into_owned(),
                });
                return is_last;
            }
            Ok(Line::Other(kind)) => {
                self.flush();
                self.steps.push(Step::Runner { kind: kind.into_owned(), line: line.to_owned() });
            }
            Err(error) => tracing::warn!(%error, "a line of the runner cannot be read; skipped"),
        }
        false
    }

    fn event(&mut self, head: &EventHead<'_>) {
        if !self.select(&head.session_id, head.seq) {
            return;
        }
        let group = &mut self.groups[self.current];
        if !group.admit(head.seq) {
            return;
        }
        let length = EVENT_PREFIX.len() + head.tail.len();
        frame::put_text_header(&mut group.out, length);
        let start = group.out.len();
        group.out.put_slice(EVENT_PREFIX);
        group.out.put_slice(head.tail.as_bytes());
        if let Some(seq) = head.seq {
            let end = group.out.len();
            group.records.push(Mark { seq, ts: head.ts, event: head.event.to_string(), start, end });
        }
        group.notes.extend(effects::note(&head.event, &head.tail));
    }

    /// Makes the group of a session the current one; events of one session mostly follow each other. False for
    /// a session nobody knows: it starts with its first record, or it was deleted.
    fn select(&mut self, session_id: &str, seq: Option<u64>) -> bool {
        if self.groups.get(self.current).is_some_and(|group| &*group.entry.id == session_id) {
            return true;
        }
        if let Some(index) = self.by_session.get(session_id) {
            self.current = *index;
            return true;
        }
        let entry = match self.hub.session(session_id) {
            Some(entry) if seq == Some(1) && entry.is_orphan.load(Ordering::Relaxed) => {
                self.hub.forget_session(&entry);
                self.steps.push(Step::Forget { entry });
                self.hub.session_or_new(session_id, self.runner_id)
            }
            Some(entry) => entry,
            None if seq == Some(1) => self.hub.session_or_new(session_id, self.runner_id),
            None => {
                tracing::debug!(session = session_id, "an event of a session nobody knows; skipped");
                return false;
            }
        };
        self.current = self.groups.len();
        self.by_session.insert(Arc::clone(&entry.id), self.current);
        // The first session of a block usually has all of it.
        let capacity = if self.groups.is_empty() { self.capacity } else { 0 };
        let out = BytesMut::with_capacity(capacity);
        self.groups.push(Group { entry, out, records: Vec::new(), notes: Vec::new(), ack: None });
        true
    }

    /// Turns what is collected into steps.
    fn flush(&mut self) {
        for group in self.groups.drain(..) {
            let Group { entry, out, records, notes, ack } = group;
            // An ack names records of this very block too, so it comes after their commit.
            let ack = ack.map(|seq| Step::Ack { entry: Arc::clone(&entry), seq });
            if out.is_empty() {
                self.steps.extend(ack);
                continue;
            }
            let frames = out.freeze();
            let records = records.into_iter().map(|mark| {
                let body = frames.slice(mark.start..mark.end);
                let runner_id = self.runner_id;
                effects::record(&entry, runner_id, mark.seq, mark.ts, mark.event, body)
            });
            let records = records.collect();
            self.steps.push(Step::Frames { entry, frames, records, notes });
            self.steps.extend(ack);
        }
        self.by_session.clear();
        self.current = 0;
    }
}

impl Group {
    /// Whether the event may be passed on: a record only when it is the next one, a live event only when no
    /// record is missing.
    fn admit(&mut self, seq: Option<u64>) -> bool {
        let entry = &self.entry;
        let Some(seq) = seq else { return !entry.has_hole.load(Ordering::Relaxed) };
        let last = entry.last_seq.load(Ordering::Relaxed);
        if seq == last + 1 {
            entry.last_seq.store(seq, Ordering::Relaxed);
            entry.has_hole.store(false, Ordering::Relaxed);
            return true;
        }
        self.ack = Some(last);
        if seq > last && !entry.has_hole.swap(true, Ordering::Relaxed) {
            tracing::error!(session = %entry.id, expected = last + 1, found = seq,
                "records are missing; the session stands still until the runner sends them again");
        }
        false
    }
}
