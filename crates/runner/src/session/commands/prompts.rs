//! Prompts: what a person says to the agent. The command queue says when each is written.
//!
//! A prompt that the agent has accepted must end up in the conversation exactly once, whatever crashes in between. So
//! it is noted before it is written, recognised when the agent shows it, and its images are stored until then.

use std::sync::Arc;

use qd_core::agent::{AgentRequest, Image, WhenBusy};
use qd_core::command_queue::{AgentAnswer, QueueInput};
use qd_core::ledger::SubmissionToken;
use qd_core::session::{ExpectedPrompt, PromptTurn, UNSHOWN_PROMPTS_MAX};
use qd_wire::command::StreamingBehavior;
use qd_wire::{Command, ErrorCode};
use serde_json::json;

use super::admission::AdmittedCommand;
use super::json_text;
use crate::clock::now_ms;
use crate::driver::{DriverHandle, ExecuteResult, PromptDisposition, SentRequest};
use crate::session::SessionInput;
use crate::session::actor::SessionActor;

const IMAGES_WAIT: &str =
    "Too many images wait for the agent. Send this when the agent has read what was sent before.";

/// A prompt for the agent, whatever command it came by.
struct PromptRequest {
    message: String,
    images: Vec<Image>,
    client_id: Option<String>,
    when_busy: Option<WhenBusy>,
}

impl SessionActor {
    /// Queues a prompt: it is written to the agent, now or when it is its turn.
    pub(crate) fn enqueue_prompt(&mut self, admitted: AdmittedCommand) {
        let token = admitted.token();
        let may_interrupt = when_busy_of(&admitted.command).is_some();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::EnqueuePrompt { token, may_interrupt });
    }

    /// Writes a prompt to the agent, whose turn it is. `is_follow_up` is for one whose sender saw an idle agent that has
    /// got work since from inputs that waited longer.
    pub(crate) fn write_prompt_to_agent(&mut self, admitted: AdmittedCommand, is_follow_up: bool) {
        let Some(prompt) = prompt_of(&admitted.command) else {
            let error = ErrorCode::Internal.with(format!("'{}' is no prompt", admitted.incoming.cmd));
            return self.finish(admitted, Err(error.into()));
        };
        let PromptRequest { message, images, client_id, when_busy } = prompt;
        let when_busy = when_busy.or(is_follow_up.then_some(WhenBusy::FollowUp));
        if !self.session.has_room_for_prompt() {
            let error = ErrorCode::Busy
                .with(format!("Too many messages wait for the agent (max {UNSHOWN_PROMPTS_MAX}). Retry when it has read some."));
            return self.finish(admitted, Err(error.into()));
        }
        if !self.session.has_room_for_images(&images) {
            return self.finish(admitted, Err(ErrorCode::Busy.with(IMAGES_WAIT).into()));
        }
        let Some(handle) = self.handle() else {
            let error = self.not_running();
            return self.finish(admitted, Err(error.into()));
        };
        let (token, is_command) = (admitted.token(), message.starts_with('/'));
        let busy = self.session.is_working();
        // Before it is written: the agent may show the message before it answers, and then it must be recognised.
        self.session.expect_prompt(ExpectedPrompt {
            token,
            text: message.clone(),
            client_id,
            user_id: Some(admitted.incoming.principal.clone()).filter(|user| !user.is_empty()),
            is_steering: when_busy == Some(WhenBusy::Steer),
            image_count: images.len(),
        });
        if !images.is_empty() {
            self.session.hold_images(token, new_images_key(token), Arc::new(images.clone()));
        }
        let sent = match handle.send_request(AgentRequest::Prompt { message, images, when_busy }) {
            Ok(sent) => sent,
            Err(failure) => {
                // It never reached the agent, so a later message with the same text is another one.
                self.session.forget_prompt(token);
                return self.finish(admitted, Err(failure));
            }
        };
        self.commands.put(admitted);
        self.notify_queue(QueueInput::PromptWritten { token, is_command });
        self.await_prompt_answer(token, handle, sent, is_command, busy);
    }

    /// The agent has answered a prompt that was written when this many turns had begun.
    pub(crate) fn prompt_answered(
        &mut self,
        admitted: AdmittedCommand,
        turns_before: u64,
        result: ExecuteResult,
    ) {
        let token = admitted.token();
        let has_begun = self.session.turns() > turns_before;
        let disposition = disposition_of(&result, has_begun);
        match turn_of(disposition, turns_before) {
            Some(turn) => self.session.prompt_accepted(now_ms(), token, turn, &mut self.out),
            None => self.session.forget_prompt(token),
        }
        if disposition == Some(PromptDisposition::Handled) {
            self.poll_agent_changes();
            self.end_provider_call(token);
        }
        self.notify_queue(QueueInput::Answered { token, answer: answer_of(&result, disposition) });
        let data = disposition.map(|disposition| match &admitted.command {
            Command::RunInput(params) => json!({ "input_id": params.input_id, "duplicate": false }),
            _ => json!({ "disposition": disposition.as_str() }),
        });
        let result = result.and_then(|_| data.as_ref().map(json_text).transpose());
        self.finish(admitted, result);
    }

    /// Waits for the agent's answer to a prompt; it comes back as an input.
    pub(crate) fn await_prompt_answer(
        &self,
        token: SubmissionToken,
        handle: DriverHandle,
        sent: SentRequest,
        is_command: bool,
        busy: bool,
    ) {
        self.spawn_input(async move {
            let result = Box::new(handle.await_prompt_reply(sent, is_command, busy).await);
            SessionInput::Executed { token, result }
        });
    }
}

/// The name under which a prompt's images are stored; none of this session had it before.
pub(crate) fn new_images_key(token: SubmissionToken) -> String {
    format!("{}-{token}", now_ms())
}

/// The turn in which the agent reads a prompt, if it reads it at all.
pub(crate) fn turn_of(disposition: Option<PromptDisposition>, turns_before: u64) -> Option<PromptTurn> {
    match disposition {
        Some(PromptDisposition::Started) => Some(PromptTurn::After(turns_before)),
        Some(PromptDisposition::Queued) => Some(PromptTurn::Running),
        Some(PromptDisposition::Handled) | None => None,
    }
}

/// What became of a prompt. The agent's own word is old by now if its turn began meanwhile.
pub(crate) fn disposition_of(result: &ExecuteResult, has_begun: bool) -> Option<PromptDisposition> {
    let disposition = result.as_ref().ok().and_then(|executed| executed.disposition)?;
    let is_old = has_begun && disposition == PromptDisposition::Handled;
    Some(if is_old { PromptDisposition::Started } else { disposition })
}

/// What the agent's answer to a prompt means for those that wait behind it.
pub(crate) fn answer_of(result: &ExecuteResult, disposition: Option<PromptDisposition>) -> AgentAnswer {
    match result {
        Ok(_) if disposition == Some(PromptDisposition::Started) => AgentAnswer::StartsTurn,
        Err(failure) if !failure.lost => AgentAnswer::Refused,
        Ok(_) | Err(_) => AgentAnswer::Done,
    }
}

/// The text of a prompt.
pub(crate) fn prompt_text(command: &Command) -> Option<&str> {
    match command {
        Command::Prompt(params) => Some(&params.message),
        Command::Steer(params) | Command::FollowUp(params) => Some(&params.message),
        // What ends a line in a terminal ends the message here.
        Command::RunInput(params) => Some(params.text.trim_end_matches(['\r', '\n'])),
        _ => None,
    }
}

/// How a prompt is to be read by an agent that works, if it says so.
fn when_busy_of(command: &Command) -> Option<WhenBusy> {
    match command {
        Command::Prompt(params) => params.streaming_behavior.map(|behavior| match behavior {
            StreamingBehavior::Steer => WhenBusy::Steer,
            StreamingBehavior::FollowUp => WhenBusy::FollowUp,
        }),
        Command::Steer(_) => Some(WhenBusy::Steer),
        Command::FollowUp(_) | Command::RunInput(_) => Some(WhenBusy::FollowUp),
        _ => None,
    }
}

/// The prompt in a command, if it is one. Steering an idle agent starts it, so all of them are prompts.
fn prompt_of(command: &Command) -> Option<PromptRequest> {
    let (images, client_id) = match command {
        Command::Prompt(params) => (params.images.clone(), params.client_id.clone()),
        Command::Steer(params) | Command::FollowUp(params) => {
            (params.images.clone(), params.client_id.clone())
        }
        Command::RunInput(params) => (None, Some(params.input_id.clone())),
        _ => return None,
    };
    let images = images.unwrap_or_default().into_iter();
    Some(PromptRequest {
        message: prompt_text(command)?.to_owned(),
        images: images.map(|image| Image { data: image.data, media_type: image.media_type }).collect(),
        client_id,
        when_busy: when_busy_of(command),
    })
}
