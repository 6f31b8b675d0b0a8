//! The door to the agent's ears: one prompt at a time.
//!
//! pi loses a prompt that comes before it has acknowledged the one before and begun its turn, even when it says
//! yes to both. So the next goes through when the last one is accepted and its turn has begun (or it needed none).

use std::collections::VecDeque;
use std::sync::Arc;

use qd_core::agent::{AgentRequest, WhenBusy};
use qd_core::ledger::Token;
use qd_core::session::{ExpectedPrompt, PromptTurn, UNSHOWN_PROMPTS_MAX};
use qd_wire::{Command, ErrorCode};
use serde_json::json;

use super::SessionInput;
use super::actor::SessionActor;
use super::admit::Admitted;
use super::commands::json_text;
use crate::clock::now_ms;
use crate::driver::{AgentFailure, Begun, Disposition, DriverHandle, Executed};

/// Prompts that may wait at the door.
const WAITING_MAX: usize = 256;

/// The door opens after this in any case: an extension's command may ask a person before it is accepted.
const CLOSED_MS_MAX: i64 = 2_000;

const BUSY: &str = "The agent is working. Set streaming_behavior to \"steer\" (read before its next step) or \
                    \"follow_up\" (read when it is done), or abort first.";

const IMAGES_WAIT: &str =
    "Too many images wait for the agent. Send this when the agent has read what was sent before.";

/// A prompt with everything needed to send it.
pub(super) struct Prompt {
    pub(super) admitted: Admitted,
    pub(super) request: AgentRequest,
    pub(super) client_id: Option<String>,
}

/// Who may speak to the agent next.
#[derive(Default)]
pub(super) struct Door {
    waiting: VecDeque<Prompt>,
    closed: Option<Closed>,
}

struct Closed {
    token: Token,
    turns_before: u64,
    is_accepted: bool,
    until: i64,
}

impl Door {
    pub(super) fn deadline(&self) -> Option<i64> {
        self.closed.as_ref().map(|closed| closed.until)
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed.is_none()
    }

    /// Nobody speaks and nobody waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.closed.is_none() && self.waiting.is_empty()
    }

    /// Whether somebody waits.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a command's prompt waits here.
    pub(super) fn is_waiting(&self, token: Token) -> bool {
        self.waiting.iter().any(|prompt| prompt.admitted.token() == token)
    }

    /// Takes one out who waits.
    pub(super) fn take_waiting(&mut self, is_it: impl Fn(&Admitted) -> bool) -> Option<Admitted> {
        let place = self.waiting.iter().position(|prompt| is_it(&prompt.admitted))?;
        self.waiting.remove(place).map(|prompt| prompt.admitted)
    }

    /// Somebody is speaking to the agent.
    pub(super) fn close(&mut self, token: Token, turns_before: u64) {
        let until = now_ms() + CLOSED_MS_MAX;
        self.closed = Some(Closed { token, turns_before, is_accepted: false, until });
    }

    /// The agent has answered; if that began a turn, the door waits to see it.
    pub(super) fn answered(&mut self, token: Token, has_begun: bool, disposition: Option<Disposition>) {
        if let Some(closed) = self.closed.as_mut().filter(|closed| closed.token == token) {
            closed.is_accepted = true;
            if has_begun || disposition != Some(Disposition::Started) {
                self.closed = None;
            }
        }
    }

    /// Gives up on everybody who waits, and opens.
    pub(super) fn empty(&mut self) -> Vec<Admitted> {
        self.closed = None;
        self.waiting.drain(..).map(|prompt| prompt.admitted).collect()
    }
}

impl SessionActor {
    /// Takes a prompt to the agent, now or when it is its turn.
    pub(super) fn offer_prompt(&mut self, prompt: Prompt) {
        if self.door.waiting.len() >= WAITING_MAX {
            let error =
                ErrorCode::Busy.with(format!("Too many prompts wait for the agent (max {WAITING_MAX})"));
            return self.finish(prompt.admitted, Err(error.into()));
        }
        self.door.waiting.push_back(prompt);
        self.pump_door();
    }

    /// The agent has answered a prompt.
    pub(super) fn prompt_answered(&mut self, admitted: Admitted, result: Result<Executed, AgentFailure>) {
        let token = admitted.token();
        let has_begun = self.session.turns() > admitted.turns_before;
        let disposition = disposition_of(&result, has_begun);
        match turn_of(disposition, admitted.turns_before) {
            Some(turn) => self.session.prompt_accepted(now_ms(), token, turn, &mut self.out),
            None => self.session.forget_prompt(token),
        }
        if disposition == Some(Disposition::Handled) {
            self.look_for_changes();
            self.call_over(token);
        }
        if disposition != Some(Disposition::Started) {
            // No turn comes of it that was to be aborted.
            self.abort_next = None;
        }
        self.door.answered(token, has_begun, disposition);
        let data = disposition.map(|disposition| match &admitted.command {
            Command::RunInput(params) => json!({ "input_id": params.input_id, "duplicate": false }),
            _ => json!({ "disposition": disposition.as_str() }),
        });
        let result = result.and_then(|_| data.as_ref().map(json_text).transpose());
        self.finish(admitted, result);
        self.pump_door();
    }

    /// A turn may have begun.
    pub(super) fn door_check(&mut self) {
        let turns = self.session.turns();
        if self.door.closed.as_ref().is_some_and(|closed| closed.is_accepted && turns > closed.turns_before) {
            self.door.closed = None;
            self.pump_door();
        }
    }

    pub(super) fn door_timer(&mut self, now: i64) {
        if self.door.closed.as_ref().is_some_and(|closed| closed.until <= now) {
            self.door.closed = None;
            self.pump_door();
        }
    }

    /// Lets the next ones through. What an earlier agent left unread goes first.
    pub(super) fn pump_door(&mut self) {
        while self.door.is_open() && !self.has_deliveries() && !self.queue_edits.is_under_way() {
            let Some(prompt) = self.door.waiting.pop_front() else { return };
            self.send_prompt(prompt);
        }
    }

    fn send_prompt(&mut self, prompt: Prompt) {
        let Prompt { mut admitted, request, client_id } = prompt;
        let AgentRequest::Prompt { message, when_busy, images } = &request else { return };
        let busy = self.session.is_working();
        if busy && when_busy.is_none() {
            return self.finish(admitted, Err(ErrorCode::AgentBusy.with(BUSY).into()));
        }
        if !self.session.has_room_for_prompt() {
            let error = format!("Too many messages wait for the agent (max {UNSHOWN_PROMPTS_MAX})");
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        if !self.session.has_room_for_images(images) {
            return self.finish(admitted, Err(AgentFailure::refused(IMAGES_WAIT)));
        }
        let Some(handle) = self.handle() else {
            let error = self.not_running();
            return self.finish(admitted, Err(error.into()));
        };
        let (token, is_command) = (admitted.token(), message.starts_with('/'));
        self.session.expect_prompt(ExpectedPrompt {
            token,
            text: message.clone(),
            client_id,
            user_id: Some(admitted.incoming.principal.clone()).filter(|user| !user.is_empty()),
            is_steering: *when_busy == Some(WhenBusy::Steer),
            image_count: images.len(),
        });
        if !images.is_empty() {
            self.session.hold_images(token, new_images_key(token), Arc::new(images.clone()));
        }
        let begun = match handle.begin(request) {
            Ok(begun) => begun,
            Err(failure) => {
                self.session.forget_prompt(token);
                return self.finish(admitted, Err(failure));
            }
        };
        let turns_before = self.session.turns();
        admitted.turns_before = turns_before;
        self.door.close(token, turns_before);
        self.running.insert(token, admitted);
        if is_command {
            // A command of an extension is answered when it is done, and it may ask a person first.
            self.lane_busy.take_if(|busy| *busy == token);
        }
        self.await_prompt(token, handle, begun, is_command, busy);
    }

    /// Waits for the agent's word on a prompt; it comes back as an input.
    pub(super) fn await_prompt(
        &self,
        token: Token,
        handle: DriverHandle,
        begun: Begun,
        is_command: bool,
        busy: bool,
    ) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let result = Box::new(handle.prompted(begun, is_command, busy).await);
            if sender.send(SessionInput::Executed { token, result }).await.is_err() {
                tracing::debug!(token, "a session ended while its agent took a prompt");
            }
        });
    }
}

/// The name under which a prompt's images are stored; none of this session had it before.
pub(super) fn new_images_key(token: Token) -> String {
    format!("{}-{token}", now_ms())
}

/// The turn in which the agent reads a prompt, if it reads it at all.
pub(super) fn turn_of(disposition: Option<Disposition>, turns_before: u64) -> Option<PromptTurn> {
    match disposition {
        Some(Disposition::Started) => Some(PromptTurn::After(turns_before)),
        Some(Disposition::Queued) => Some(PromptTurn::Running),
        Some(Disposition::Handled) | None => None,
    }
}

/// What became of a prompt. The agent's own word is old by now if its turn began meanwhile.
pub(super) fn disposition_of(
    result: &Result<Executed, AgentFailure>,
    has_begun: bool,
) -> Option<Disposition> {
    let disposition = result.as_ref().ok().and_then(|executed| executed.disposition)?;
    let is_old = has_begun && disposition == Disposition::Handled;
    Some(if is_old { Disposition::Started } else { disposition })
}
