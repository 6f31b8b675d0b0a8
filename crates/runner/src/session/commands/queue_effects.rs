//! Does what the command queue wants done.
//!
//! The way of a command: `admit` checks it, `enqueue` stores that it is under way and hands it to the queue, the queue
//! says when to `execute` it. What needs the agent goes by `execute_on_agent`: a prompt to `enqueue_prompt`, and when the
//! queue says so to `write_prompt_to_agent`; everything else to `write_request_to_agent`. `finish` is the one end.

use std::collections::VecDeque;

use qd_core::command_queue::{AgentActivity, QueueEffect, QueueInput, QueueLimits, Undelivered};
use qd_core::ledger::SubmissionToken;
use qd_wire::{CodedError, ErrorCode};

use super::admission::AdmittedCommand;
use crate::driver::AgentFailure;
use crate::session::actor::SessionActor;

impl SessionActor {
    /// Tells the command queue what happened. What it wants done because of that is done between inputs: a command that
    /// ends at once must not start the next from within itself.
    pub(crate) fn notify_queue(&mut self, input: QueueInput) {
        let activity = self.agent_activity();
        self.commands.notify(activity, input);
    }

    /// How the agent stands, as far as the queue needs to know.
    pub(crate) fn agent_activity(&self) -> AgentActivity {
        let session = &self.session;
        let undelivered = if !session.has_kept() || session.is_delivering() || session.is_moving() {
            Undelivered::Nothing
        } else if session.waits_for_prompt() {
            Undelivered::WithNextPrompt
        } else {
            Undelivered::Now
        };
        // A program in a terminal does what it does; nothing waits for its end.
        let is_working = session.is_working() && !self.is_run();
        AgentActivity { turns: session.turns(), is_working, undelivered }
    }

    /// Does everything the queue wants. What one effect leads to comes before the effects after it, so that commands
    /// reach the agent in the order they came.
    pub(crate) async fn carry_out_effects(&mut self) {
        self.notify_queue(QueueInput::Activity(self.agent_activity()));
        let mut waiting = VecDeque::from(self.commands.take_effects());
        while let Some(effect) = waiting.pop_front() {
            if self.finished {
                // What has not begun never will, and is refused with the session; answers that are known go out.
                self.carry_out_answer(effect);
                continue;
            }
            self.carry_out(effect).await;
            self.notify_queue(QueueInput::Activity(self.agent_activity()));
            for effect in self.commands.take_effects().into_iter().rev() {
                waiting.push_front(effect);
            }
        }
    }

    async fn carry_out(&mut self, effect: QueueEffect) {
        match effect {
            QueueEffect::Execute { token } => {
                if let Some(admitted) = self.commands.take(token) {
                    self.execute(admitted).await;
                }
            }
            QueueEffect::ExecuteParked { token } => {
                if let Some(admitted) = self.commands.take(token) {
                    self.execute_checked(admitted).await;
                }
            }
            QueueEffect::StartAgent => self.start_agent_now(),
            QueueEffect::AnswerStart { token } => self.answer_start(token).await,
            QueueEffect::WritePrompt { token, is_follow_up } => {
                self.with_command(token, |actor, admitted| {
                    actor.write_prompt_to_agent(admitted, is_follow_up)
                });
            }
            QueueEffect::WriteUndelivered => self.write_undelivered().await,
            QueueEffect::EditQueue { token } => self.with_command(token, SessionActor::edit_queue),
            QueueEffect::AbortTurn => self.abort_turn(),
            answer => self.carry_out_answer(answer),
        }
    }

    /// Sends the answers the queue wants sent, now and not between inputs.
    pub(crate) fn carry_out_answers(&mut self) {
        for effect in self.commands.take_answers() {
            self.carry_out_answer(effect);
        }
    }

    fn carry_out_answer(&mut self, effect: QueueEffect) {
        match effect {
            QueueEffect::Refuse { token, refusal } => {
                let error = CodedError::from(refusal);
                self.with_command(token, |actor, admitted| {
                    if admitted.is_repeat {
                        actor.refuse(&admitted.incoming, &error);
                    } else {
                        actor.finish(admitted, Err(AgentFailure::refused(error)));
                    }
                });
            }
            QueueEffect::FailDependencies { token } => {
                let missing = self.shared.submissions.missing(token).join(", ");
                let waited = QueueLimits::default().dependency_wait_ms;
                let error = ErrorCode::TimedOut
                    .with(format!("Command 'depends_on:{missing}' timed out after {waited}ms"));
                self.with_command(token, |actor, admitted| actor.finish(admitted, Err(error.into())));
            }
            QueueEffect::TimeOut { token } => {
                self.with_command(token, |actor, admitted| actor.time_out(&admitted))
            }
            QueueEffect::GiveUp { token } => self.give_up(token),
            QueueEffect::Forget { token } => drop(self.commands.take(token)),
            QueueEffect::Lose { token } => {
                let ended = "The session ended before the command did";
                self.with_command(token, |actor, admitted| {
                    actor.finish(admitted, Err(AgentFailure::lost(ended)))
                });
            }
            _ => {}
        }
    }

    /// Does something with a command, if that is still there.
    fn with_command(
        &mut self,
        token: SubmissionToken,
        action: impl FnOnce(&mut SessionActor, AdmittedCommand),
    ) {
        if let Some(admitted) = self.commands.take(token) {
            action(self, admitted);
        }
    }
}
