//! For those who watch: the same events once more, in the form of a face that has its own.
//!
//! Questions are the machine's own for every harness, because it decides what is open.

use std::fmt::Debug;

use qd_wire::InputRequest;
use qd_wire::input::InputOutcome;

use super::Session;
use crate::agent::AgentEvent;
use crate::event_writer::EventWriter;

/// How the messages changed without events of their own, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConversationChange {
    Replaced,
    Added,
    Compacted,
}

impl ConversationChange {
    pub const fn as_str(self) -> &'static str {
        match self {
            ConversationChange::Replaced => "replaced",
            ConversationChange::Added => "added",
            ConversationChange::Compacted => "compacted",
        }
    }
}

/// A further form of a session's events. Each text that is told is one event of that form, in JSON.
pub trait EventForm: Debug + Send + Sync {
    /// One event of the agent, before what it means. Questions come by [`EventForm::question`].
    fn event(&mut self, now: i64, event: &AgentEvent, tell: &mut dyn FnMut(&str));

    /// The agent is gone in the middle of its work, or with a prompt that it had accepted, and will not say that it
    /// is over; who waits for that must hear it.
    fn cut_off(&mut self, now: i64, tell: &mut dyn FnMut(&str));

    /// The messages are not what who watches has seen.
    fn conversation_changed(&self, change: ConversationChange, tell: &mut dyn FnMut(&str));

    fn question(&self, request: &InputRequest, tell: &mut dyn FnMut(&str));

    fn settled(&self, request_id: &str, outcome: InputOutcome, tell: &mut dyn FnMut(&str));
}

impl Session {
    /// Whether somebody watches.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Begins or ends the events in a further form.
    pub fn set_watched(&mut self, form: Option<Box<dyn EventForm>>) {
        self.watch = form;
    }

    /// Says one event of the agent in that form, before what it means.
    pub(super) fn show_native(&mut self, now: i64, event: &AgentEvent, out: &mut EventWriter) {
        let front = &self.front;
        if let Some(form) = &mut self.watch {
            form.event(now, event, &mut |native| out.native(front, now, native));
        }
    }

    /// The agent is gone in the middle of its work.
    pub(super) fn show_cut_off(&mut self, now: i64, out: &mut EventWriter) {
        let front = &self.front;
        if let Some(form) = &mut self.watch {
            form.cut_off(now, &mut |native| out.native(front, now, native));
        }
    }

    /// The messages are not what who watches has seen.
    pub(super) fn show_conversation_change(
        &self,
        now: i64,
        change: ConversationChange,
        out: &mut EventWriter,
    ) {
        if let Some(form) = &self.watch {
            form.conversation_changed(change, &mut |native| out.native(&self.front, now, native));
        }
    }

    pub(super) fn show_question(&self, now: i64, request: &InputRequest, out: &mut EventWriter) {
        if let Some(form) = &self.watch {
            form.question(request, &mut |native| out.native(&self.front, now, native));
        }
    }

    pub(super) fn show_settled(
        &self,
        now: i64,
        request_id: &str,
        outcome: InputOutcome,
        out: &mut EventWriter,
    ) {
        if let Some(form) = &self.watch {
            form.settled(request_id, outcome, &mut |native| out.native(&self.front, now, native));
        }
    }
}
