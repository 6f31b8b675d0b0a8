//! What the session tells the runner's circuit breakers, and what they forbid.

use std::collections::{BTreeMap, VecDeque};

use qd_core::agent::AgentEvent;
use qd_core::breaker::{BashCall, BashEnd, ProviderCall, blames_provider};
use qd_core::ledger::SubmissionToken;
use qd_wire::command_table::CommandClass;
use qd_wire::message::{Role, StopReason};
use qd_wire::{CodedError, Command};

use crate::clock::now_ms;
use crate::session::actor::SessionActor;

/// A command that made the agent ask its provider, until the provider's first answer.
struct UnansweredCall {
    token: SubmissionToken,
    call: ProviderCall,
    /// When it went out; not known of one that waits for the turn that runs.
    since: Option<i64>,
}

/// What the agent was asked that the breakers learn from.
#[derive(Default)]
pub(crate) struct ProviderCalls {
    /// Commands whose first answer of the provider is still to come, oldest first.
    unanswered: VecDeque<UnansweredCall>,
    /// Shell commands under way.
    bash: BTreeMap<SubmissionToken, BashCall>,
}

impl SessionActor {
    /// Asks the breakers before a command goes to the agent.
    pub(crate) fn admit_provider_call(
        &mut self,
        token: SubmissionToken,
        command: &Command,
    ) -> Result<(), CodedError> {
        let now = now_ms();
        let session_id = &self.session.identity().session_id;
        match command {
            Command::Bash(_) => {
                let call = self.shared.breakers.lock().admit_bash(now, session_id);
                self.provider_calls.bash.insert(token, call.map_err(CodedError::from)?);
            }
            Command::Prompt(_)
            | Command::Steer(_)
            | Command::FollowUp(_)
            | Command::RunInput(_)
            | Command::Compact(_) => {
                // Of an agent that does not name its provider nothing can be learned.
                let Some(model) = &self.session.memory().model else { return Ok(()) };
                let call = self.shared.breakers.lock().admit(now, &model.provider);
                let call = call.map_err(CodedError::from)?;
                let since = (!self.session.is_working()).then_some(now);
                self.provider_calls.unanswered.push_back(UnansweredCall { token, call, since });
            }
            _ => {}
        }
        Ok(())
    }

    /// Learns from what the agent did.
    pub(crate) fn learn_from_event(&mut self, now: i64, event: &AgentEvent) {
        match event {
            AgentEvent::MessageEnded(message) if message.head.role == Role::Assistant => {
                let own = self.session.memory().model.as_ref().map(|model| &model.provider);
                let Some(provider) = message.provider.as_ref().or(own).cloned() else { return };
                let is_aborted = self.session.is_abort_requested();
                let mut latency_ms = None;
                let call = self.provider_calls.unanswered.pop_front();
                match message.stop_reason {
                    Some(StopReason::Aborted) => {}
                    Some(StopReason::Error) if is_aborted || self.is_moving() => {}
                    Some(StopReason::Error) if !message.error.as_deref().is_none_or(blames_provider) => {}
                    Some(StopReason::Error) => self.shared.breakers.lock().failed(now, &provider),
                    _ => {
                        let since = call.as_ref().and_then(|call| call.since);
                        latency_ms = since.and_then(|since| u64::try_from(now - since).ok());
                        self.shared.breakers.lock().succeeded(now, &provider);
                    }
                }
                if let Some(UnansweredCall { call, .. }) = call {
                    self.shared.breakers.lock().done(&call, latency_ms);
                }
            }
            AgentEvent::CompactionEnded { summary_failed: true, error: Some(error), .. } => {
                if let Some(model) = &self.session.memory().model
                    && blames_provider(error)
                {
                    self.shared.breakers.lock().failed(now, &model.provider);
                }
            }
            AgentEvent::TurnSettled { .. } => self.end_provider_calls(),
            _ => {}
        }
    }

    /// Whether the agent is asked to leave its conversation, which cuts the turn that runs there.
    fn is_moving(&self) -> bool {
        self.commands.with_agent().any(|admitted| admitted.command.spec().class == CommandClass::Switch)
    }

    /// The session runs no shell commands any more.
    pub(crate) fn forget_bash_circuit(&self) {
        self.shared.breakers.lock().forget_bash(&self.session.identity().session_id);
    }

    /// Nothing more comes of the calls the agent had; prompts that wait are still to go.
    fn end_provider_calls(&mut self) {
        let calls = std::mem::take(&mut self.provider_calls.unanswered);
        for call in calls {
            if self.commands.queue().is_prompt_waiting(call.token) {
                self.provider_calls.unanswered.push_back(call);
            } else {
                self.shared.breakers.lock().done(&call.call, None);
            }
        }
    }

    /// A command came to nothing, or needed no provider.
    pub(crate) fn end_provider_call(&mut self, token: SubmissionToken) {
        if let Some(place) = self.provider_calls.unanswered.iter().position(|call| call.token == token)
            && let Some(UnansweredCall { call, .. }) = self.provider_calls.unanswered.remove(place)
        {
            self.shared.breakers.lock().done(&call, None);
        }
        self.end_bash_call(token, BashEnd::Unknown);
    }

    /// A command that asks the provider without a turn went well.
    pub(crate) fn call_succeeded(&mut self, token: SubmissionToken, command: &Command) {
        match command {
            Command::Bash(_) => self.end_bash_call(token, BashEnd::Done),
            Command::Compact(_) => {
                if let Some(model) = &self.session.memory().model {
                    self.shared.breakers.lock().succeeded(now_ms(), &model.provider);
                }
                self.end_provider_call(token);
            }
            _ => {}
        }
    }

    pub(crate) fn end_bash_call(&mut self, token: SubmissionToken, end: BashEnd) {
        if let Some(call) = self.provider_calls.bash.remove(&token) {
            self.shared.breakers.lock().bash_done(now_ms(), &call, end);
        }
    }

    /// The agent is gone, and with it what it was asked.
    pub(crate) fn forget_provider_calls(&mut self) {
        self.end_provider_calls();
        let tokens: Vec<SubmissionToken> = self.provider_calls.bash.keys().copied().collect();
        tokens.into_iter().for_each(|token| self.end_bash_call(token, BashEnd::Unknown));
    }
}
