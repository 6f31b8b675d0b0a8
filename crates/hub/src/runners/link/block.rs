//! A block of link lines, taken apart: frames of each session in one piece, answers between them in order.
//!
//! This is on the path of every delta, so only the head of a line is taken apart, and frames are built by copying
//! bytes. What a record means for lists and tables is read in `sessions/effects`, once.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{BufMut, Bytes, BytesMut};
use qd_store::{AuditEntry, NewRecord, RecordEffect};
use qd_wire::ErrorCode;
use qd_wire::event::NATIVE;

use super::answers::answer_tail;
use super::commit::{SessionStep, StepContent};
use super::hello::SESSION_ID_BYTES_MAX;
use super::refused_sessions::{RefusedSessions, belongs_to};
use super::{RunnerIdentity, RunnerSendQueue};
use crate::connection::frame;
use crate::hub::Hub;
use crate::runners::line_head::{self, EVENT_PREFIX, EventHead, LineHead};
use crate::sessions::effects::{self, EventDigest, SessionNote};
use crate::sessions::published::{NativeEvents, RecordHead, event_name};
use crate::sessions::session::SessionEntry;

/// One step of the stream.
pub(super) enum StreamStep {
    /// What a session says, in order within it.
    Session(SessionStep),
    Answer {
        id: String,
        session_id: Option<String>,
        success: bool,
        tail: String,
    },
    /// A line about the runner itself.
    Runner {
        kind: String,
        line: String,
    },
}

/// Frames of one session, as they are collected.
struct FrameGroup {
    entry: Arc<SessionEntry>,
    out: BytesMut,
    heads: Vec<RecordHead>,
    /// What each of them means for the store.
    meanings: Vec<(Option<RecordEffect>, Option<Box<AuditEntry>>)>,
    notes: Vec<SessionNote>,
    ack: Option<u64>,
    natives: NativeLines,
}

/// Native events of one session, as they are collected.
#[derive(Default)]
struct NativeLines {
    text: BytesMut,
    ends: Vec<usize>,
}

impl NativeLines {
    fn push(&mut self, tail: &str) {
        self.text.put_slice(tail.as_bytes());
        self.ends.push(self.text.len());
    }

    fn finish(self, is_local: bool) -> Option<NativeEvents> {
        let mut rest = self.text.freeze();
        let mut start = 0;
        let tails = self.ends.into_iter().map(|end| rest.split_to(end - std::mem::replace(&mut start, end)));
        let tails: Vec<Bytes> = tails.collect();
        (!tails.is_empty()).then_some(NativeEvents { tails, is_local })
    }
}

/// Takes blocks apart. Reads the heads of lines and nothing else.
pub(super) struct BlockSplitter<'a> {
    hub: &'a Hub,
    runner_id: &'a Arc<str>,
    /// What a runner of our own process writes needs no check.
    is_local: bool,
    send_queue: &'a Arc<RunnerSendQueue>,
    refusals: &'a mut RefusedSessions,
    groups: Vec<FrameGroup>,
    by_session: HashMap<Arc<str>, usize>,
    current: usize,
    steps: Vec<StreamStep>,
    block: &'a Bytes,
    missing: Option<SeqGap>,
}

/// What a block says.
pub(super) struct SplitBlock {
    pub(super) steps: Vec<StreamStep>,
    /// The bytes that the steps cover. The answer to a delete ends them: what follows may be a new session of the
    /// same name, which can only be told once the answer is acted on.
    pub(super) taken: usize,
    /// A record that should have come first; nothing after this place counts.
    pub(super) missing: Option<SeqGap>,
}

/// A hole in a session's numbers.
pub(super) struct SeqGap {
    pub(super) session_id: Arc<str>,
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// Whether a record that was seen already counts as new: a fault that only tests can plant.
fn counts_resends(hub: &Hub) -> bool {
    #[cfg(feature = "planted-bugs")]
    return hub.config.planted_bug == Some(crate::PlantedBug::ResendWithoutDedupe);
    #[cfg(not(feature = "planted-bugs"))]
    {
        let _ = hub;
        false
    }
}

/// What to do with an event.
enum EventAdmission {
    Take,
    Skip,
    /// Records before it are missing.
    Hole {
        expected: u64,
        found: u64,
    },
}

/// Takes one block of a link apart.
pub(super) fn split(
    hub: &Hub,
    identity: &RunnerIdentity,
    send_queue: &Arc<RunnerSendQueue>,
    refusals: &mut RefusedSessions,
    block: &Bytes,
) -> SplitBlock {
    let mut splitter = BlockSplitter {
        hub,
        runner_id: &identity.runner_id,
        is_local: identity.is_local,
        send_queue,
        refusals,
        groups: Vec::new(),
        by_session: HashMap::new(),
        current: 0,
        steps: Vec::new(),
        block,
        missing: None,
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
        // One bad line must not cost the good ones of its block. Checking the whole block first is the fast way for all
        // others.
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
    SplitBlock { steps: splitter.steps, taken, missing: splitter.missing }
}

impl BlockSplitter<'_> {
    /// True if the steps end here.
    fn line(&mut self, line: &str) -> bool {
        if line.is_empty() {
            return false;
        }
        let checked = if self.is_local { Ok(()) } else { line_head::check(line) };
        match checked.and_then(|()| line_head::parse(line, self.runner_id)) {
            Ok(LineHead::Event(head)) => {
                self.event(&head, line);
                return self.missing.is_some();
            }
            Ok(LineHead::Response(head)) => {
                self.flush();
                // Looked up before the step is taken, because the answer removes the pending command.
                let is_last = self.hub.pending.is_delete(&head.id, self.send_queue);
                self.steps.push(StreamStep::Answer {
                    id: head.id.into_owned(),
                    session_id: head.session_id.map(Into::into),
                    success: head.success,
                    tail: answer_tail(head.success, head.tail.into_owned()),
                });
                return is_last;
            }
            Ok(LineHead::Other(kind)) => {
                self.flush();
                self.steps.push(StreamStep::Runner { kind: kind.into_owned(), line: line.to_owned() });
            }
            Err(error) => tracing::warn!(%error, "a line of the runner cannot be read; skipped"),
        }
        false
    }

    /// `line` is the event as it came: a JSON object.
    fn event(&mut self, head: &EventHead<'_>, line: &str) {
        if !self.select(&head.session_id, head.seq) {
            return;
        }
        let resends_count = counts_resends(self.hub);
        let group = &mut self.groups[self.current];
        // Native events go to the faces that asked for them, never into the ring: clients of `/ws/mux` get canonical
        // ones.
        if head.seq.is_none() && head.event == NATIVE {
            group.natives.push(&head.tail);
            return;
        }
        match group.admit(head.seq, resends_count) {
            EventAdmission::Take => {}
            EventAdmission::Skip => return,
            EventAdmission::Hole { expected, found } => {
                let entry = Arc::clone(&group.entry);
                return self.hole(&entry, expected, found);
            }
        }
        let length = EVENT_PREFIX.len() + head.tail.len();
        frame::put_text_header(&mut group.out, length);
        let start = group.out.len();
        group.out.put_slice(EVENT_PREFIX);
        group.out.put_slice(head.tail.as_bytes());
        if let Some(seq) = head.seq {
            let end = group.out.len();
            let body_at = start + EVENT_PREFIX.len() + head.body_at;
            let event = event_name(&head.event);
            group.heads.push(RecordHead { seq, ts: head.ts, event, text: start..end, body_at });
        }
        let EventDigest { mut notes, effect, audit } = effects::digest(&group.entry, head, line);
        group.notes.append(&mut notes);
        if head.seq.is_some() {
            group.meanings.push((effect, audit));
        }
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
        // The runner was told once; after that its events of this session are dropped silently.
        if self.refusals.has(session_id) {
            return false;
        }
        let entry = match self.hub.session(session_id) {
            Some(entry) if entry.runner_id != *self.runner_id => {
                self.refusals.refuse(session_id, belongs_to(session_id, &entry.runner_id));
                return false;
            }
            Some(entry) if seq == Some(1) && entry.is_orphan.load(Ordering::Relaxed) => {
                self.hub.forget_session(&entry);
                // A session the runner had lost comes anew: the old one goes.
                self.steps
                    .push(StreamStep::Session(SessionStep { entry, content: StepContent::Forget(None) }));
                match self.newborn(session_id) {
                    Some(entry) => entry,
                    None => return false,
                }
            }
            Some(entry) => entry,
            None if seq == Some(1) => match self.newborn(session_id) {
                Some(entry) => entry,
                None => return false,
            },
            None => {
                tracing::debug!(session = session_id, "an event of a session nobody knows; skipped");
                return false;
            }
        };
        self.current = self.groups.len();
        self.by_session.insert(Arc::clone(&entry.id), self.current);
        // The first session of a block usually has all of it.
        // A frame's head is a little longer than a line's.
        let whole = self.block.len() + self.block.len() / 16 + 64;
        let out = BytesMut::with_capacity(if self.groups.is_empty() { whole } else { 0 });
        self.groups.push(FrameGroup::new(entry, out));
        true
    }

    /// A session that starts here, unless its name is not free.
    fn newborn(&mut self, session_id: &str) -> Option<Arc<SessionEntry>> {
        if session_id.len() > SESSION_ID_BYTES_MAX {
            tracing::warn!(runner = %self.runner_id, bytes = session_id.len(), "the name of a session is too long; skipped");
            return None;
        }
        if let Some(owner) = self.hub.deleted_on(session_id) {
            if owner == *self.runner_id {
                tracing::debug!(session = session_id, "an event of a deleted session; skipped");
            } else {
                self.refusals.refuse(session_id, belongs_to(session_id, &owner));
            }
            return None;
        }
        let entry = self.hub.session_or_new(session_id, self.runner_id);
        if entry.runner_id == *self.runner_id {
            return Some(entry);
        }
        // Another runner was quicker.
        self.refusals.refuse(session_id, belongs_to(session_id, &entry.runner_id));
        None
    }

    /// A record is missing. The link ends, so that the runner sends again what is not committed; if that did not
    /// help before, the record is nowhere and the session cannot go on.
    fn hole(&mut self, entry: &Arc<SessionEntry>, expected: u64, found: u64) {
        if entry.missing_seq.swap(expected, Ordering::Relaxed) != expected {
            self.missing = Some(SeqGap { session_id: Arc::clone(&entry.id), expected, found });
            return;
        }
        // What is collected of it comes before the hole.
        self.flush();
        let reason = format!(
            "The hub has the records of session {} up to {}, and the runner sends them from {found} on; \
             those between are lost: delete the session, or go on with it on its runner",
            entry.id,
            expected - 1
        );
        self.refusals.refuse(&entry.id, ErrorCode::Conflict.with(reason));
    }

    /// Turns what is collected into steps.
    fn flush(&mut self) {
        for group in self.groups.drain(..) {
            let FrameGroup { entry, out, heads, meanings, notes, ack, natives } = group;
            let frames = out.freeze();
            let records = heads.iter().zip(meanings).map(|(head, (effect, audit))| NewRecord {
                session_id: Arc::clone(&entry.id),
                runner_id: Arc::clone(&entry.runner_id),
                seq: head.seq,
                ts: head.ts,
                event: head.event.clone(),
                body: frames.slice(head.text.clone()),
                audit,
                effect,
            });
            let records = records.collect();
            let frames =
                (!frames.is_empty()).then_some(StepContent::Frames { frames, records, heads, notes });
            let natives = natives.finish(self.is_local).map(StepContent::Natives);
            // An ack names records of this very block too, so it comes after their commit.
            let contents = [frames, natives, ack.map(StepContent::Ack)].into_iter().flatten();
            let step = |content| StreamStep::Session(SessionStep { entry: Arc::clone(&entry), content });
            self.steps.extend(contents.map(step));
        }
        self.by_session.clear();
        self.current = 0;
    }
}

impl FrameGroup {
    fn new(entry: Arc<SessionEntry>, out: BytesMut) -> Self {
        let natives = NativeLines::default();
        let (heads, meanings, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { entry, out, heads, meanings, notes, ack: None, natives }
    }

    /// Whether the event may be passed on: a record only when it is the next one.
    fn admit(&mut self, seq: Option<u64>, resends_count: bool) -> EventAdmission {
        let entry = &self.entry;
        let Some(seq) = seq else { return EventAdmission::Take };
        let last = entry.last_seq.load(Ordering::Relaxed);
        if seq == last + 1 {
            entry.last_seq.store(seq, Ordering::Relaxed);
            return EventAdmission::Take;
        }
        if seq > last {
            return EventAdmission::Hole { expected: last + 1, found: seq };
        }
        if resends_count {
            return EventAdmission::Take;
        }
        // The runner sends it again because the ack was lost, so it is acknowledged again.
        self.ack = Some(last);
        EventAdmission::Skip
    }
}
