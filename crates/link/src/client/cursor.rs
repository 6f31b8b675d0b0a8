//! What a client has seen of one session, so that a reconnect shows nothing twice and leaves nothing out.
//! Pure: events in, verdicts out.
//!
//! Records are recognised by their number, deltas by the message's id and the offset, and messages of a snapshot by
//! their id. So the server may send more than was asked for.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use qd_wire::data::{AttachData, Partial, PartialBlock, PartialKind, Resume};
use qd_wire::{Event, EventEnvelope, EventPayload};

/// Messages whose blocks are followed at one time; agents write one, so older ones are leftovers.
const OPEN_MESSAGES_MAX: usize = 8;
/// Finished messages remembered, for what comes late and for snapshots; more than any snapshot holds (the hub's 200),
/// so that of a snapshot everything seen is known.
const ENDED_MESSAGES_MAX: usize = 1024;

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorVerdict {
    /// New, as it came.
    New,
    /// New in part: what was seen before has been cut off.
    Trimmed,
    /// Seen before.
    Known,
    /// Records before it are missing; attach again after this one.
    Hole { after: u64 },
}

/// The cursor of one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SessionCursor {
    last_seq: Option<u64>,
    open: VecDeque<OpenMessage>,
    ended: EndedMessages,
}

/// The ids of the messages that ended last. Ids and not places: a conversation made anew counts from zero again.
#[derive(Debug, Clone, Default, PartialEq)]
struct EndedMessages {
    order: VecDeque<Arc<str>>,
    ids: HashSet<Arc<str>>,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct OpenMessage {
    id: String,
    /// Characters seen, by content index.
    blocks: BTreeMap<u32, u64>,
}

impl SessionCursor {
    /// A cursor after this record; `None` knows nothing.
    pub fn after(seq: Option<u64>) -> SessionCursor {
        SessionCursor { last_seq: seq, ..SessionCursor::default() }
    }

    /// The last record seen, to attach after.
    pub fn last_seq(&self) -> Option<u64> {
        self.last_seq
    }

    /// Judges an event and remembers it.
    pub fn admit(&mut self, envelope: &mut EventEnvelope) -> CursorVerdict {
        if let Some(seq) = envelope.seq {
            match self.admit_number(seq) {
                CursorVerdict::New => {}
                other => return other,
            }
        }
        let EventPayload::Known(event) = &mut envelope.payload else { return CursorVerdict::New };
        match event {
            Event::MessageStart { message_id, .. } => {
                if self.is_ended(message_id) || self.open.iter().any(|open| open.id == *message_id) {
                    return CursorVerdict::Known;
                }
                self.open_message(message_id);
                CursorVerdict::New
            }
            Event::TextDelta { message_id, delta, content_index, offset: Some(offset) }
            | Event::ThinkingDelta { message_id, delta, content_index, offset: Some(offset) }
            | Event::ToolCallDelta { message_id, delta, content_index, offset: Some(offset), .. } => {
                self.admit_delta(message_id, *content_index, delta, offset)
            }
            Event::ToolCallStart { message_id, content_index, .. } => {
                if self.is_ended(message_id) || self.has_block(message_id, *content_index) {
                    return CursorVerdict::Known;
                }
                self.open_message(message_id).blocks.insert(*content_index, 0);
                CursorVerdict::New
            }
            Event::MessageEnd { message } => {
                // A snapshot may be newer than its cursor; then the end of a message in it follows.
                if self.end_message(&message.id) { CursorVerdict::New } else { CursorVerdict::Known }
            }
            Event::Messages { messages } => {
                self.ended = EndedMessages::default();
                for message in messages.iter() {
                    self.end_message(&message.id);
                }
                CursorVerdict::New
            }
            Event::SessionNativeChanged { .. } => {
                self.ended = EndedMessages::default();
                CursorVerdict::New
            }
            _ => CursorVerdict::New,
        }
    }

    /// Judges a record by its number alone and remembers it: all there is of one that cannot be read.
    pub fn admit_number(&mut self, seq: u64) -> CursorVerdict {
        match self.last_seq {
            Some(last) if seq <= last => return CursorVerdict::Known,
            Some(last) if seq - last > 1 => return CursorVerdict::Hole { after: last },
            Some(_) | None => self.last_seq = Some(seq),
        }
        CursorVerdict::New
    }

    /// Gives up the records before this one: what is missing of them will not come.
    pub fn give_up_before(&mut self, seq: u64) {
        self.last_seq = self.last_seq.max(Some(seq.saturating_sub(1)));
    }

    /// Takes in the answer to an attach (or a resync); cuts messages from its snapshot that were seen before. Returns
    /// the record at which its `partial` stands: what comes before it is history.
    pub fn take_attach(&mut self, attach: &mut AttachData) -> u64 {
        let has_snapshot = attach.messages.is_some();
        if let Some(messages) = &mut attach.messages {
            messages.retain(|message| self.end_message(&message.id));
        }
        let until = match attach.resume {
            Resume::Gap if !has_snapshot => attach.replay_until.unwrap_or(attach.state.seq).max(attach.seq),
            Resume::Ok | Resume::Gap => attach.seq,
        };
        let is_replayed = match attach.resume {
            Resume::Ok => self.last_seq.is_some(),
            // The records after the cursor follow, unless the cursor is of another session with the same name.
            Resume::Gap => until > attach.seq && self.last_seq.is_some_and(|last| last <= until),
        };
        if !is_replayed {
            self.last_seq = Some(attach.seq);
        }
        until
    }

    /// The live events that lead from what was seen to the message being generated now.
    pub fn catch_up(&mut self, head: &EventEnvelope, partial: &Partial) -> Vec<EventEnvelope> {
        let mut events = Vec::new();
        let Some(message) = &partial.message else { return events };
        let mut push = |cursor: &mut SessionCursor, event| {
            let mut envelope =
                EventEnvelope { seq: None, payload: EventPayload::Known(event), ..head.clone() };
            match cursor.admit(&mut envelope) {
                CursorVerdict::New | CursorVerdict::Trimmed => events.push(envelope),
                CursorVerdict::Known | CursorVerdict::Hole { .. } => {}
            }
        };
        let message_id = &message.message_id;
        let role = message.role.as_str().to_owned();
        push(self, Event::MessageStart { message_id: message_id.clone(), role });
        for block in &message.blocks {
            for event in block_events(message_id, block) {
                push(self, event);
            }
        }
        events
    }

    fn admit_delta(
        &mut self,
        message_id: &str,
        index: u32,
        delta: &mut String,
        offset: &mut u64,
    ) -> CursorVerdict {
        if self.is_ended(message_id) {
            return CursorVerdict::Known;
        }
        let seen = self.open_message(message_id).blocks.entry(index).or_insert(0);
        let length = delta.chars().count() as u64;
        let end = *offset + length;
        if *offset >= *seen {
            *seen = end;
            return CursorVerdict::New;
        }
        if end <= *seen {
            return CursorVerdict::Known;
        }
        let cut = usize::try_from(*seen - *offset).unwrap_or(usize::MAX);
        *delta = delta.chars().skip(cut).collect();
        *offset = *seen;
        *seen = end;
        CursorVerdict::Trimmed
    }

    fn open_message(&mut self, id: &str) -> &mut OpenMessage {
        let position = self.open.iter().position(|open| open.id == id).unwrap_or_else(|| {
            if self.open.len() >= OPEN_MESSAGES_MAX {
                self.open.pop_front();
            }
            self.open.push_back(OpenMessage { id: id.to_owned(), blocks: BTreeMap::new() });
            self.open.len() - 1
        });
        &mut self.open[position]
    }

    fn has_block(&self, id: &str, index: u32) -> bool {
        self.open.iter().any(|open| open.id == id && open.blocks.contains_key(&index))
    }

    fn is_ended(&self, id: &str) -> bool {
        self.ended.ids.contains(id)
    }

    /// Whether this is the first end of the message.
    fn end_message(&mut self, id: &str) -> bool {
        self.open.retain(|open| open.id != id);
        self.ended.insert(id)
    }
}

impl EndedMessages {
    /// Whether the id is new.
    fn insert(&mut self, id: &str) -> bool {
        if self.ids.contains(id) {
            return false;
        }
        if self.order.len() >= ENDED_MESSAGES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let id: Arc<str> = id.into();
        self.order.push_back(Arc::clone(&id));
        self.ids.insert(id)
    }
}

fn block_events(message_id: &str, block: &PartialBlock) -> Vec<Event> {
    let message_id = message_id.to_owned();
    let (delta, content_index) = (block.text.clone(), block.content_index);
    let offset = Some(0);
    match block.kind {
        PartialKind::Text => vec![Event::TextDelta { message_id, delta, content_index, offset }],
        PartialKind::Thinking => vec![Event::ThinkingDelta { message_id, delta, content_index, offset }],
        PartialKind::ToolCall => {
            let tool_call_id = block.tool_call_id.clone().unwrap_or_default();
            let name = block.name.clone().unwrap_or_default();
            let start = Event::ToolCallStart {
                message_id: message_id.clone(),
                tool_call_id: tool_call_id.clone(),
                name,
                content_index,
            };
            vec![start, Event::ToolCallDelta { message_id, tool_call_id, delta, content_index, offset }]
        }
    }
}

#[cfg(test)]
#[path = "cursor_tests.rs"]
mod tests;
