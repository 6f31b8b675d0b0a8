//! What a client that comes (or comes back) is told.

use qd_wire::data::{AttachData, Partial, Resume};

use super::Session;

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
        }
    }

    fn partial(&self) -> Option<Partial> {
        if self.assembly.is_none() && self.tools.is_empty() {
            return None;
        }
        Some(Partial {
            message: self.assembly.as_ref().map(super::Assembly::snapshot),
            tools: self.tools.clone(),
        })
    }
}
