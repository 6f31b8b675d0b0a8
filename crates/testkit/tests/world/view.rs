//! What one client has seen of one session: the rules of cursors and deltas, checked at every frame.

use std::collections::{BTreeMap, BTreeSet};

use qd_wire::data::{AttachData, PartialMessage, Resume};
use qd_wire::message::{KnownPart, Message, Part};
use qd_wire::{Event, EventEnvelope, EventPayload};

use crate::trace;

/// A message as everybody must see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SeenMessage {
    pub(crate) id: String,
    pub(crate) text: String,
}

/// A block of a message so far.
#[derive(Default)]
struct Streamed {
    text: String,
    /// Counted as it grows: a long text has many deltas.
    characters: u64,
}

impl Streamed {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.characters += text.chars().count() as u64;
    }
}

/// The fold of one client's frames of one session.
pub(crate) struct SessionView {
    /// Who looks, for the trace.
    who: String,
    session: String,
    /// Whether the library has dropped repeats before us; then a number seen again is the library's fault.
    is_library: bool,
    /// The number the next record must have; none while not attached.
    next: Option<u64>,
    /// The last record folded.
    pub(crate) last: Option<u64>,
    pub(crate) messages: BTreeMap<u64, SeenMessage>,
    /// Texts of messages being generated, by content index.
    open: BTreeMap<String, BTreeMap<u32, Streamed>>,
    ended: BTreeSet<String>,
    pub(crate) questions: BTreeSet<String>,
    pub(crate) is_offline: bool,
}

impl SessionView {
    pub(crate) fn new(who: &str, session: &str, is_library: bool) -> SessionView {
        SessionView {
            who: who.to_owned(),
            session: session.to_owned(),
            is_library,
            next: None,
            last: None,
            messages: BTreeMap::new(),
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            questions: BTreeSet::new(),
            is_offline: false,
        }
    }

    fn violate(&self, invariant: &str, detail: &str) {
        trace::violate(&self.who, invariant, &format!("session {}: {detail}", self.session));
    }

    /// The connection is gone, or we are no longer interested: what comes now is not for this attachment.
    pub(crate) fn detach(&mut self) {
        self.next = None;
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.next.is_some()
    }

    /// The answer to an attach after `after`, or a resync (which knows no `after`).
    pub(crate) fn attached(&mut self, after: Option<u64>, attach: &AttachData, is_resync: bool) {
        let cursor = match (attach.resume, after) {
            (Resume::Ok, Some(after)) if !is_resync => after,
            _ => attach.seq,
        };
        if attach.resume == Resume::Ok && attach.seq < cursor {
            self.violate("cursor", &format!("an answer at {} to a cursor at {cursor}", attach.seq));
        }
        if is_resync && attach.messages.is_none() && self.last.is_some_and(|last| attach.seq > last) {
            self.violate("cursor", &format!("a resync jumps from {:?} to {}", self.last, attach.seq));
        }
        trace::count(match (is_resync, attach.resume) {
            (true, _) => "resyncs",
            (false, Resume::Ok) if after.is_some() => "attached again",
            (false, Resume::Ok) => "attached",
            (false, Resume::Gap) => "attached with a gap",
        });
        self.next = Some(cursor + 1);
        if let Some(messages) = &attach.messages {
            self.messages.clear();
            for message in messages {
                self.put_message(message);
            }
            self.last = Some(attach.seq);
        } else if self.last.is_none() {
            self.last = Some(cursor);
        }
        self.questions = attach.pending_input.iter().map(|request| request.request_id().to_owned()).collect();
        self.is_offline = attach.state.status == qd_wire::data::SessionStatus::Offline;
        if self.is_offline {
            trace::count("attached while the runner is away");
        }
        if let Some(message) = attach.partial.as_ref().and_then(|partial| partial.message.as_ref()) {
            self.take_partial(message);
        }
    }

    /// The library attached, again attached or was resynced. It shows each record and each message once, so of a
    /// snapshot it gives what is new only, and the records it gives next follow what it gave before.
    pub(crate) fn reattached(&mut self, attach: &AttachData) {
        let is_first = self.last.is_none();
        for message in attach.messages.iter().flatten() {
            self.put_message(message);
        }
        if is_first || attach.messages.is_some() {
            self.last = Some(attach.seq);
        }
        self.next = self.last.map(|last| last + 1);
        self.questions = attach.pending_input.iter().map(|request| request.request_id().to_owned()).collect();
        self.is_offline = attach.state.status == qd_wire::data::SessionStatus::Offline;
    }

    fn take_partial(&mut self, message: &PartialMessage) {
        let known = self.open.entry(message.message_id.clone()).or_default();
        for block in &message.blocks {
            let mut streamed = Streamed::default();
            streamed.push(&block.text);
            known.insert(block.content_index, streamed);
        }
    }

    /// An event of this session; returns whether it is one of an attachment.
    pub(crate) fn event(&mut self, envelope: &EventEnvelope) {
        let Some(next) = self.next else { return };
        if let EventPayload::Known(Event::SessionResync { attach }) = &envelope.payload {
            trace::note(&self.who, &format!("{} resync at {}", self.session, attach.seq));
            return self.attached(None, attach, true);
        }
        if let Some(seq) = envelope.seq {
            // Of a message that was in a snapshot already the library does not show the record that ends it.
            let is_skipped = self.is_library && seq > next;
            if seq != next && !is_skipped {
                let what = if seq < next { "again" } else { "too early" };
                self.violate("cursor", &format!("record {seq} came {what}, {next} is next"));
            }
            self.next = Some(seq + 1);
            // After a resync without a snapshot records come again that were folded already.
            if !self.is_library && self.last.is_some_and(|last| seq <= last) {
                return;
            }
            self.last = Some(seq);
        }
        if let EventPayload::Known(event) = &envelope.payload {
            self.fold(event);
        }
    }

    fn fold(&mut self, event: &Event) {
        match event {
            Event::MessageStart { message_id, .. } if !self.ended.contains(message_id) => {
                self.open.entry(message_id.clone()).or_default();
            }
            Event::TextDelta { message_id, delta, content_index, offset }
            | Event::ThinkingDelta { message_id, delta, content_index, offset }
            | Event::ToolCallDelta { message_id, delta, content_index, offset, .. } => {
                self.take_delta(message_id, delta, *content_index, *offset);
            }
            Event::MessageEnd { message } => self.end_message(message),
            Event::Messages { messages } => {
                self.messages.clear();
                messages.iter().for_each(|message| self.put_message(message));
            }
            Event::AgentInputNeeded { request } => {
                self.questions.insert(request.request_id().to_owned());
            }
            Event::AgentInputResolved { request_id, .. } => {
                self.questions.remove(request_id);
            }
            _ => {}
        }
    }

    fn take_delta(&mut self, message_id: &str, delta: &str, index: u32, offset: Option<u64>) {
        if self.ended.contains(message_id) {
            return self.violate("deltas", &format!("a delta of {message_id}, which has ended"));
        }
        let Some(blocks) = self.open.get_mut(message_id) else {
            return self.violate("deltas", &format!("a delta of {message_id}, which never started"));
        };
        let streamed = blocks.entry(index).or_default();
        let known = streamed.characters;
        let offset = offset.unwrap_or(known);
        if offset > known {
            let hole = format!("{message_id}: a delta at {offset}, but only {known} characters are known");
            return self.violate("deltas", &hole);
        }
        if offset == known {
            return streamed.push(delta);
        }
        let overlap = usize::try_from(known - offset).unwrap_or(usize::MAX);
        let repeated: String =
            streamed.text.chars().skip(usize::try_from(offset).unwrap_or(usize::MAX)).collect();
        let news: String = delta.chars().skip(overlap).collect();
        if !delta.starts_with(&repeated) && !repeated.starts_with(delta) {
            let detail = format!("{message_id}: {repeated:?} was known, {delta:?} comes in its place");
            return self.violate("deltas", &detail);
        }
        streamed.push(&news);
    }

    fn end_message(&mut self, message: &Message) {
        if let Some(blocks) = self.open.remove(&message.id) {
            for (index, streamed) in blocks {
                let whole = part_text(message, index);
                if !whole.as_deref().is_some_and(|whole| whole.starts_with(&streamed.text)) {
                    let detail =
                        format!("{}: {:?} was streamed, {whole:?} it became", message.id, streamed.text);
                    self.violate("deltas", &detail);
                }
            }
        }
        self.ended.insert(message.id.clone());
        self.put_message(message);
    }

    fn put_message(&mut self, message: &Message) {
        let seen = SeenMessage { id: message.id.clone(), text: message.flattened_text() };
        if let Some(before) = self.messages.get(&message.idx)
            && *before != seen
        {
            self.violate("messages", &format!("{before:?} at {} became {seen:?}", message.idx));
        }
        self.messages.insert(message.idx, seen);
    }
}

/// The whole text of the block that streamed at `index`, if it is of a kind that streams text.
fn part_text(message: &Message, index: u32) -> Option<String> {
    match message.parts.get(usize::try_from(index).ok()?)? {
        Part::Known(KnownPart::Text { text, .. } | KnownPart::Thinking { text, .. }) => Some(text.clone()),
        Part::Known(KnownPart::ToolCall { input, .. }) => input.as_ref().map(ToString::to_string),
        _ => None,
    }
}
