//! For those who watch through the pi-server face: the same events in pi's own form.
//!
//! pi says them itself; for other harnesses they are made from what the agent does. Questions are the machine's own
//! for every harness, because it decides what is open.

use qd_wire::InputRequest;
use qd_wire::input::InputOutcome;
use qd_wire::pi_server::FaceEvent;

use super::Session;
use crate::agent::AgentEvent;
use crate::outbox::Outbox;
use crate::view::pi_server::answer::ui_request;
use crate::view::pi_server::event::Producer;

/// The harness whose own events are pi's form.
const PI: &str = "pi";

/// How pi ends its work, here without the messages of it.
const AGENT_END: &str = "{\"type\":\"agent_end\",\"messages\":[]}";

/// How pi says that nothing more comes.
const AGENT_SETTLED: &str = "{\"type\":\"agent_settled\",\"aborted\":true}";

/// How the messages changed without events of their own, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConversationChange {
    Replaced,
    Added,
    Compacted,
}

impl ConversationChange {
    const fn as_str(self) -> &'static str {
        match self {
            ConversationChange::Replaced => "replaced",
            ConversationChange::Added => "added",
            ConversationChange::Compacted => "compacted",
        }
    }
}

/// What is needed while somebody watches.
#[derive(Debug)]
pub(super) enum Watch {
    /// The agent says its events in pi's form itself.
    PassThrough,
    /// They are made here.
    Produce(Box<Producer>),
}

impl Session {
    /// Whether somebody watches through the pi-server face.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }

    /// Begins or ends the events in pi's form; beginning twice changes nothing.
    pub fn set_watched(&mut self, on: bool) {
        if on == self.is_watched() {
            return;
        }
        self.watch = on.then(|| {
            if self.identity.harness == PI { Watch::PassThrough } else { Watch::Produce(Box::default()) }
        });
    }

    /// Says one event of the agent in pi's form, before what it means.
    pub(super) fn show_native(&mut self, now: i64, event: &AgentEvent, out: &mut Outbox) {
        match (&mut self.watch, event) {
            (None, _) | (Some(_), AgentEvent::InputNeeded(_)) => {}
            (Some(Watch::PassThrough), AgentEvent::Native(native)) => out.native(&self.front, now, native),
            (Some(Watch::PassThrough), _) => {}
            (Some(Watch::Produce(producer)), event) => {
                let mut made = Vec::new();
                producer.produce(now, event, &mut made);
                made.iter().for_each(|native| out.native(&self.front, now, native));
            }
        }
    }

    /// The agent is gone in the middle of its work, or with a prompt that it had accepted, and will not say that it is
    /// over; who waits for that must hear it.
    pub(super) fn show_cut_off(&mut self, now: i64, out: &mut Outbox) {
        match &self.watch {
            None => {}
            Some(Watch::Produce(_)) => self.show_native(now, &AgentEvent::TurnSettled { aborted: true }, out),
            Some(Watch::PassThrough) => {
                out.native(&self.front, now, AGENT_END);
                out.native(&self.front, now, AGENT_SETTLED);
            }
        }
    }

    /// The messages are not what who watches has seen.
    pub(super) fn show_conversation_change(&self, now: i64, change: ConversationChange, out: &mut Outbox) {
        if self.is_watched() {
            let reason = change.as_str().to_owned();
            self.show_face_event(now, &FaceEvent::ConversationChanged { reason }, out);
        }
    }

    pub(super) fn show_question(&self, now: i64, request: &InputRequest, out: &mut Outbox) {
        if self.is_watched() {
            self.show_face_event(now, &ui_request(request), out);
        }
    }

    pub(super) fn show_settled(&self, now: i64, request_id: &str, outcome: InputOutcome, out: &mut Outbox) {
        if self.is_watched() {
            let request_id = request_id.to_owned();
            self.show_face_event(now, &FaceEvent::ExtensionUiResolved { request_id, outcome }, out);
        }
    }

    fn show_face_event(&self, now: i64, event: &FaceEvent, out: &mut Outbox) {
        match serde_json::to_string(event) {
            Ok(native) => out.native(&self.front, now, &native),
            Err(error) => debug_assert!(false, "a wire type must serialise: {error}"),
        }
    }
}
