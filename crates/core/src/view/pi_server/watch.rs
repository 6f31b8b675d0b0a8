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
    if tells_it { Box::new(PassThrough) } else { Box::new(ProducedEvents(Box::default())) }
}

/// The agent says its events in this form itself.
#[derive(Debug)]
struct PassThrough;

/// They are made here.
#[derive(Debug)]
struct ProducedEvents(Box<EventProducer>);

impl EventForm for PassThrough {
    fn event(&mut self, _now: i64, event: &AgentEvent, tell: &mut dyn FnMut(&str)) {
        if let AgentEvent::Native(native) = event {
            tell(native);
        }
    }

    fn cut_off(&mut self, _now: i64, tell: &mut dyn FnMut(&str)) {
        tell(AGENT_END);
        tell(AGENT_SETTLED);
    }

    fn conversation_changed(&self, change: ConversationChange, tell: &mut dyn FnMut(&str)) {
        conversation_changed(change, tell);
    }

    fn question(&self, request: &InputRequest, tell: &mut dyn FnMut(&str)) {
        told(&ui_request(request), tell);
    }

    fn settled(&self, request_id: &str, outcome: InputOutcome, tell: &mut dyn FnMut(&str)) {
        settled(request_id, outcome, tell);
    }
}

impl EventForm for ProducedEvents {
    fn event(&mut self, now: i64, event: &AgentEvent, tell: &mut dyn FnMut(&str)) {
        if matches!(event, AgentEvent::InputNeeded(_)) {
            return;
        }
        let mut made = Vec::new();
        self.0.produce(now, event, &mut made);
        made.iter().for_each(|native| tell(native));
    }

    fn cut_off(&mut self, now: i64, tell: &mut dyn FnMut(&str)) {
        self.event(now, &AgentEvent::TurnSettled { aborted: true }, tell);
    }

    fn conversation_changed(&self, change: ConversationChange, tell: &mut dyn FnMut(&str)) {
        conversation_changed(change, tell);
    }

    fn question(&self, request: &InputRequest, tell: &mut dyn FnMut(&str)) {
        told(&ui_request(request), tell);
    }

    fn settled(&self, request_id: &str, outcome: InputOutcome, tell: &mut dyn FnMut(&str)) {
        settled(request_id, outcome, tell);
    }
}

fn conversation_changed(change: ConversationChange, tell: &mut dyn FnMut(&str)) {
    told(&FaceEvent::ConversationChanged { reason: change.as_str().to_owned() }, tell);
}

fn settled(request_id: &str, outcome: InputOutcome, tell: &mut dyn FnMut(&str)) {
    told(&FaceEvent::ExtensionUiResolved { request_id: request_id.to_owned(), outcome }, tell);
}

fn told(event: &FaceEvent, tell: &mut dyn FnMut(&str)) {
    match serde_json::to_string(event) {
        Ok(native) => tell(&native),
        Err(error) => debug_assert!(false, "a wire type must serialise: {error}"),
    }
}
