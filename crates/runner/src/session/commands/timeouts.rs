//! Commands whose time is over: the hub has answered for them, and what is left of them is ended.

use qd_core::agent::AgentRequest;
use qd_core::breaker::BashEnd;
use qd_core::command_queue::QueueInput;
use qd_core::ledger::SubmissionToken;
use qd_wire::{CodedError, Command, ErrorCode};

use super::admission::AdmittedCommand;
use crate::driver::AgentFailure;
use crate::session::IncomingCommand;
use crate::session::actor::SessionActor;

impl SessionActor {
    /// Ends the command with this key of the same principal, wherever it is. There may be none any more.
    pub(crate) fn cancel(&mut self, incoming: &IncomingCommand) {
        #[derive(serde::Deserialize)]
        struct TakeBackParameters {
            key: String,
        }
        let key = match serde_json::from_str::<TakeBackParameters>(incoming.text()) {
            Ok(TakeBackParameters { key }) => key,
            Err(error) => {
                return self
                    .refuse(incoming, &CodedError::invalid(format!("Invalid '{}': {error}", incoming.cmd)));
            }
        };
        if let Some(token) = self.commands.find(&incoming.principal, &key) {
            self.notify_queue(QueueInput::Cancel { token });
            self.carry_out_answers();
        }
        self.confirm(incoming);
    }

    /// Answers for a command that never began.
    pub(crate) fn time_out(&mut self, admitted: &AdmittedCommand) {
        let result = Err(timed_out(admitted));
        self.end_input_of(admitted, &result);
        self.conclude(admitted, result, true);
    }

    /// Answers for a command that the agent has, and asks the agent to stop it where it can. What the agent says of
    /// it later is heard for its effects only, and an agent that never says anything is not busy with it.
    pub(crate) fn give_up(&mut self, token: SubmissionToken) {
        let Some(mut admitted) = self.commands.take(token) else { return };
        let hook = match &admitted.command {
            Command::Bash(_) => Some(AgentRequest::AbortBash),
            Command::Compact(_) => Some(AgentRequest::Abort),
            _ => None,
        };
        if let Some((request, handle)) = hook.zip(self.handle()) {
            // Nobody waits for the answer: the command's own tells how it ended.
            match handle.send_request(request) {
                Ok(sent) => drop(sent),
                Err(failure) => tracing::warn!(error = failure.error, "a command could not be stopped"),
            }
        }
        self.end_bash_call(token, BashEnd::TimedOut);
        self.conclude(&admitted, Err(timed_out(&admitted)), true);
        // The name of an input stays begun until the agent says what became of it: it may yet take the input.
        admitted.is_given_up = true;
        self.commands.put(admitted);
    }
}

fn timed_out(admitted: &AdmittedCommand) -> AgentFailure {
    ErrorCode::TimedOut.with(format!("Command '{}' timed out", admitted.incoming.cmd)).into()
}
