//! The commands of a session that have no answer yet, and the queue that says which of them goes next.
//!
//! The queue knows commands by their tokens only; what they are and who asked is here.

use std::collections::BTreeMap;

use qd_core::command_queue::{AgentActivity, CommandQueue, QueueEffect, QueueInput};
use qd_core::ledger::SubmissionToken;

use super::admission::AdmittedCommand;
use crate::clock::now_ms;

/// Commands by their token, with the pure machine that orders them.
#[derive(Default)]
pub(crate) struct PendingCommands {
    queue: CommandQueue,
    /// Those that wait and those the agent has. One that is being executed is in the hands of whoever executes it.
    commands: BTreeMap<SubmissionToken, AdmittedCommand>,
    /// What the queue wants done and nobody has done yet.
    effects: Vec<QueueEffect>,
}

impl PendingCommands {
    /// Tells the queue how the agent stands and what happened.
    pub(crate) fn notify(&mut self, activity: AgentActivity, input: QueueInput) {
        let now = now_ms();
        self.effects.extend(self.queue.handle(now, QueueInput::Activity(activity)));
        self.effects.extend(self.queue.handle(now, input));
    }

    /// What is to be done, in this order.
    pub(crate) fn take_effects(&mut self) -> Vec<QueueEffect> {
        std::mem::take(&mut self.effects)
    }

    /// The answers among what is to be done; they go out at once.
    pub(crate) fn take_answers(&mut self) -> Vec<QueueEffect> {
        self.effects.extract_if(.., |effect| is_answer(effect)).collect()
    }

    pub(crate) fn queue(&self) -> &CommandQueue {
        &self.queue
    }

    pub(crate) fn put(&mut self, admitted: AdmittedCommand) {
        self.commands.insert(admitted.token(), admitted);
    }

    pub(crate) fn take(&mut self, token: SubmissionToken) -> Option<AdmittedCommand> {
        self.commands.remove(&token)
    }

    pub(crate) fn get(&self, token: SubmissionToken) -> Option<&AdmittedCommand> {
        self.commands.get(&token)
    }

    /// The commands that the agent has been asked to carry out and has not answered, given up or not.
    pub(crate) fn with_agent(&self) -> impl Iterator<Item = &AdmittedCommand> {
        self.queue.unanswered().filter_map(|token| self.commands.get(&token))
    }

    /// The command under this key of a principal, as far as it can be ended.
    pub(crate) fn find(&self, principal: &str, key: &str) -> Option<SubmissionToken> {
        let is_it = |admitted: &&AdmittedCommand| {
            let incoming = &admitted.incoming;
            // A repeat has no outcome of its own: it gets that of the one it waits for.
            incoming.principal == principal
                && incoming.idempotency_key.as_deref() == Some(key)
                && !admitted.is_repeat
                && !admitted.is_given_up
        };
        self.commands.values().find(is_it).map(|admitted| admitted.token())
    }
}

/// Whether an effect is nothing but an answer to somebody.
fn is_answer(effect: &QueueEffect) -> bool {
    matches!(
        effect,
        QueueEffect::Refuse { .. }
            | QueueEffect::FailDependencies { .. }
            | QueueEffect::TimeOut { .. }
            | QueueEffect::GiveUp { .. }
            | QueueEffect::Forget { .. }
            | QueueEffect::Lose { .. }
    )
}
