//! What a client that comes (or comes back) is told.

use qd_wire::data::{AttachData, Partial, Resume};

use qd_wire::event::Event;

use super::Session;
use crate::event_writer::EventWriter;

/// Stores number records with 40 bits; half of them are left for what comes after.
const SKIP_TO_MAX: u64 = 1 << 39;

impl Session {
    /// The answer to `session.attach`. The hub adds a snapshot of messages where one is due.
    pub fn attach(&self, after: Option<u64>) -> AttachData {
        let resume = match after {
            Some(after) if after > self.memory.last_seq => Resume::Gap,
            Some(_) | None => Resume::Ok,
        };
        let state = self.state();
        AttachData {
            resume,
            seq: self.memory.last_seq,
            replay_until: None,
            pending_input: state.pending_input.clone(),
            state,
            partial: self.partial(),
            messages: None,
            terminal: None,
        }
    }

    /// Tells everybody how the session stands, after live events were lost on the way.
    pub fn resync(&mut self, now: i64, out: &mut EventWriter) {
        let mut attach = self.attach(None);
        attach.resume = Resume::Gap;
        attach.replay_until = Some(attach.seq);
        self.emit(now, &Event::SessionResync { attach: Box::new(attach) }, out);
    }

    /// A number somebody else has seen is never given again, whatever became of our own records. One that no
    /// session can have reached is not believed: after it there would be no numbers left.
    pub fn skip_to(&mut self, seq: u64) {
        if seq <= SKIP_TO_MAX {
            self.memory.last_seq = self.memory.last_seq.max(seq);
        }
    }

    fn partial(&self) -> Option<Partial> {
        if self.assembly.is_none() && self.tools.is_empty() {
            return None;
        }
        Some(Partial {
            message: self.assembly.as_ref().map(super::MessageAssembly::snapshot),
            tools: self.tools.clone(),
        })
    }
}
