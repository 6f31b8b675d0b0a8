//! `queue.set`: what waits for the agent is made what a person wants.

use qd_core::command_queue::{AgentAnswer, AgentWork, QueueInput};
use qd_core::session::QueueEdit;
use qd_wire::command::QueueSetParams;
use qd_wire::data::{QueueState, SessionStatus};
use qd_wire::{CodedError, Command, ErrorCode};

use super::admission::AdmittedCommand;
use crate::clock::now_ms;
use crate::driver::{AgentFailure, ExecuteResult, ExecutedCommand};
use crate::session::SessionInput;
use crate::session::actor::SessionActor;

/// Messages that may be in a queue.
const MESSAGES_MAX: usize = 256;

impl SessionActor {
    /// `queue.set`: one change at a time, and no prompt meanwhile, which would come before what is put back.
    pub(crate) fn enqueue_queue_edit(&mut self, admitted: AdmittedCommand) {
        if let Err(error) = self.check_queue(&admitted.command) {
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        let token = admitted.token();
        self.commands.put(admitted);
        self.notify_queue(QueueInput::EditQueue { token });
    }

    /// Makes the queue what is wanted, when the agent has given back what it has.
    pub(crate) fn edit_queue(&mut self, mut admitted: AdmittedCommand) {
        if let Err(error) = self.check_queue(&admitted.command) {
            return self.finish(admitted, Err(AgentFailure::refused(error)));
        }
        let edit = self.session.begin_queue_edit();
        let Some(handle) = self.handle().filter(|_| self.session.is_queue_in_agent()) else {
            // All that waits is here.
            return self.replace_queue(admitted, &edit, &QueueState::default());
        };
        let sent = match handle.reclaim_queue() {
            Ok(sent) => sent,
            Err(failure) => {
                self.session.give_up_queue_edit(now_ms(), &mut self.out);
                return self.finish(admitted, Err(failure));
            }
        };
        let token = admitted.token();
        admitted.queue_edit = Some(edit);
        self.commands.put(admitted);
        self.notify_queue(QueueInput::Running { token, work: AgentWork::QueueEdit });
        self.spawn_input(async move {
            let result =
                sent.await.map(|queue| ExecutedCommand { queue: Some(queue), ..ExecutedCommand::default() });
            SessionInput::Executed { token, result: Box::new(result) }
        });
    }

    /// Refuses a text that the agent must not be sent.
    pub(crate) fn check_input(&self, text: &str) -> Result<(), CodedError> {
        self.shared.config.harnesses.check_input(&self.config.harness, text)
    }

    fn check_queue(&self, command: &Command) -> Result<(), CodedError> {
        if self.is_run() {
            refuse!(Unsupported, "A program in a terminal has no queue");
        }
        if self.session.status() == SessionStatus::Closed {
            return Err(self.closed());
        }
        if self.session.is_moving() {
            refuse!(Busy, "The session is switching to another conversation. Please retry.");
        }
        let Command::QueueSet(QueueSetParams { steering, follow_up }) = command else { return Ok(()) };
        if steering.len() + follow_up.len() > MESSAGES_MAX {
            refuse!(TooLarge, "Too many messages for the queue (max {MESSAGES_MAX})");
        }
        for text in steering.iter().chain(follow_up) {
            if text.trim().is_empty() {
                refuse!(InvalidRequest, "A message of the queue is empty; leave it out to remove it");
            }
            self.check_input(text)?;
        }
        Ok(())
    }

    /// The agent has given back its queue, or cannot.
    pub(crate) fn queue_given_back(&mut self, mut admitted: AdmittedCommand, result: ExecuteResult) {
        let token = admitted.token();
        self.notify_queue(QueueInput::Answered { token, answer: AgentAnswer::Done });
        match (result, admitted.queue_edit.take()) {
            (Ok(executed), Some(edit)) => {
                self.replace_queue(admitted, &edit, &executed.queue.unwrap_or_default());
            }
            (Ok(_), None) => {
                let error = ErrorCode::Internal.with("The queue could not be changed. Please retry.");
                self.finish(admitted, Err(error.into()));
            }
            (Err(failure), _) => {
                self.session.give_up_queue_edit(now_ms(), &mut self.out);
                self.finish(admitted, Err(AgentFailure { lost: false, ..not_given_back(failure) }));
            }
        }
    }

    fn replace_queue(&mut self, admitted: AdmittedCommand, edit: &QueueEdit, cleared: &QueueState) {
        let Command::QueueSet(QueueSetParams { steering, follow_up }) = admitted.command.clone() else {
            return;
        };
        let wanted = QueueState { steering, follow_up };
        let user = Some(admitted.incoming.principal.as_str()).filter(|user| !user.is_empty());
        let data = self.session.set_queue(now_ms(), edit, cleared, wanted, user, &mut self.out);
        self.answer_with(admitted, &data);
    }
}

/// Why the queue is as it was.
fn not_given_back(failure: AgentFailure) -> AgentFailure {
    if failure.lost {
        // What was in its queue waits for the next one.
        let error = "The agent ended before its queue could be changed; the queue is as it was";
        return AgentFailure::refused(ErrorCode::AgentGone.with(error));
    }
    failure
}
