//! A session's events in the document's form, which is pi's own.
//!
//! An agent that tells them itself is passed on; for all others they are made from what the agent does.

use qd_wire::InputRequest;
use qd_wire::input::InputOutcome;
use qd_wire::pi_server::FaceEvent;

use super::answer::ui_request;
use super::event::EventProducer;
use crate::agent::AgentEvent;
use crate::session::{ConversationChange, EventForm};

/// How work ends, here without the messages of it.
const AGENT_END: &str = "{\"type\":\"agent_end\",\"messages\":[]}";

/// How it is said that nothing more comes.
const AGENT_SETTLED: &str = "{\"type\":\"agent_settled\",\"aborted\":true}";

/// The form for an agent that tells it itself, or does not.
pub fn form(tells_it: bool) -> Box<dyn EventForm> {
    Box::new(PiServerForm { producer: (!tells_it).then(Box::default) })
}

#[derive(Debug)]
struct PiServerForm {
    /// Makes the events; none for an agent that says them in this form itself.
    producer: Option<Box<EventProducer>>,
}

impl EventForm for PiServerForm {
    fn event(&mut self, now: i64, event: &AgentEvent, tell: &mut dyn FnMut(&str)) {
        match (&mut self.producer, event) {
            (None, AgentEvent::Native(native)) => tell(native),
            (None, _) | (Some(_), AgentEvent::InputNeeded(_)) => {}
            (Some(producer), event) => {
                let mut made = Vec::new();
                producer.produce(now, event, &mut made);
                made.iter().for_each(|native| tell(native));
            }
        }
    }

    fn cut_off(&mut self, now: i64, tell: &mut dyn FnMut(&str)) {
        if self.producer.is_none() {
            tell(AGENT_END);
            tell(AGENT_SETTLED);
        }
        self.event(now, &AgentEvent::TurnSettled { aborted: true }, tell);
    }

    fn conversation_changed(&self, change: ConversationChange, tell: &mut dyn FnMut(&str)) {
        told(&FaceEvent::ConversationChanged { reason: change.as_str().to_owned() }, tell);
    }

    fn question(&self, request: &InputRequest, tell: &mut dyn FnMut(&str)) {
        told(&ui_request(request), tell);
    }

    fn settled(&self, request_id: &str, outcome: InputOutcome, tell: &mut dyn FnMut(&str)) {
        told(&FaceEvent::ExtensionUiResolved { request_id: request_id.to_owned(), outcome }, tell);
    }
}

fn told(event: &FaceEvent, tell: &mut dyn FnMut(&str)) {
    match serde_json::to_string(event) {
        Ok(native) => tell(&native),
        Err(error) => debug_assert!(false, "a wire type must serialise: {error}"),
    }
}
