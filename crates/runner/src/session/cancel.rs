//! Commands whose time is over: the hub has answered for them, and what is left of them is ended.

use qd_core::agent::AgentRequest;
use qd_core::breaker::BashEnd;
use qd_core::ledger::Token;
use qd_wire::{CodedError, Command, ErrorCode};

use super::Incoming;
use super::actor::SessionActor;
use super::admit::{Admitted, Held};
use crate::driver::AgentFailure;

/// Commands whose answer we still listen for after their time; of more, the oldest answers are not missed.
const GIVEN_UP_MAX: usize = 256;

/// Where a command was found.
enum Found {
    /// It had not begun, so it never will.
    Waiting(Box<Admitted>),
    /// The agent has it.
    Running(Token),
}

impl SessionActor {
    /// Ends the command with this key of the same principal, wherever it is. There may be none any more.
    pub(super) fn cancel(&mut self, incoming: &Incoming) {
        #[derive(serde::Deserialize)]
        struct Parameters {
            key: String,
        }
        let key = match serde_json::from_str::<Parameters>(incoming.text()) {
            Ok(Parameters { key }) => key,
            Err(error) => {
                return self
                    .refuse(incoming, &CodedError::invalid(format!("Invalid '{}': {error}", incoming.cmd)));
            }
        };
        match self.find(&incoming.principal, &key) {
            Some(Found::Waiting(admitted)) => self.conclude(&admitted, Err(timed_out(&admitted)), true),
            Some(Found::Running(token)) => self.give_up(token),
            None => {}
        }
        self.confirm(incoming);
    }

    fn find(&mut self, principal: &str, key: &str) -> Option<Found> {
        let is_it = |admitted: &Admitted| {
            let incoming = &admitted.incoming;
            incoming.principal == principal && incoming.idempotency_key.as_deref() == Some(key)
        };
        // A repeat has no outcome of its own: it gets that of the one it waits for.
        let held = |held: &Held| !held.joined && is_it(&held.admitted);
        if let Some(token) = self.held.iter().find(|(_, one)| held(one)).map(|(token, _)| *token) {
            return self.held.remove(&token).map(|held| Found::Waiting(Box::new(held.admitted)));
        }
        if let Some(place) = self.lane.iter().position(is_it) {
            return self.lane.remove(place).map(|admitted| Found::Waiting(Box::new(admitted)));
        }
        if let Some(place) = self.shell.iter().position(is_it) {
            return self.shell.remove(place).map(|admitted| Found::Waiting(Box::new(admitted)));
        }
        if let Some(place) = self.parked.iter().position(is_it) {
            return Some(Found::Waiting(Box::new(self.parked.remove(place))));
        }
        if let Some(admitted) = self.door.take_waiting(is_it) {
            return Some(Found::Waiting(Box::new(admitted)));
        }
        self.running.iter().find(|(_, one)| is_it(one)).map(|(token, _)| Found::Running(*token))
    }

    /// Answers for a command that the agent has, and asks the agent to stop it where it can. What the agent says of
    /// it later is heard for its effects only, and an agent that never says anything is not busy with it.
    fn give_up(&mut self, token: Token) {
        let Some(mut admitted) = self.running.remove(&token) else { return };
        let hook = match &admitted.command {
            Command::Bash(_) => Some(AgentRequest::AbortBash),
            Command::Compact(_) => Some(AgentRequest::Abort),
            _ => None,
        };
        if let Some((request, handle)) = hook.zip(self.handle()) {
            // Nobody waits for the answer: the command's own tells how it ended.
            match handle.begin(request) {
                Ok(begun) => drop(begun),
                Err(failure) => tracing::warn!(error = failure.error, "a command could not be stopped"),
            }
        }
        self.bash_over(token, BashEnd::TimedOut);
        self.conclude(&admitted, Err(timed_out(&admitted)), true);
        self.aborts.remove(&token);
        admitted.is_given_up = true;
        if self.given_up.len() >= GIVEN_UP_MAX {
            self.given_up.pop_first();
        }
        self.given_up.insert(token, admitted);
    }
}

fn timed_out(admitted: &Admitted) -> AgentFailure {
    ErrorCode::TimedOut.with(format!("Command '{}' timed out", admitted.incoming.cmd)).into()
}
