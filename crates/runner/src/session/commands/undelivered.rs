//! Inputs that an earlier agent accepted and never read: they go to the next agent, each at most once.

use std::sync::Arc;

use qd_core::agent::{AgentRequest, WhenBusy};
use qd_core::command_queue::{QueueInput, Undelivered};
use qd_core::ledger::SubmissionToken;
use qd_core::session::{ExpectedPrompt, UndeliveredInput};

use super::prompts::{answer_of, disposition_of, new_images_key, turn_of};
use crate::clock::now_ms;
use crate::driver::{ExecuteResult, PromptDisposition};
use crate::session::actor::SessionActor;

impl SessionActor {
    /// Writes the next undelivered input to the agent, if it may still have it now.
    pub(crate) async fn write_undelivered(&mut self) {
        if !self.commands.queue().is_delivery_awaited() {
            return;
        }
        if self.agent_activity().undelivered == Undelivered::Nothing {
            return self.notify_queue(QueueInput::DeliveryNotWritten { is_refused: false });
        }
        let token = self.shared.submissions.token();
        let Some(kept) = self.session.take_kept(now_ms(), token, &mut self.out) else {
            return self.notify_queue(QueueInput::DeliveryNotWritten { is_refused: false });
        };
        // On its way, and not in the list any more, before the agent can see it: it never runs twice.
        self.publish().await;
        if !self.finished {
            self.write_kept_to_agent(token, kept);
        }
    }

    fn write_kept_to_agent(&mut self, token: SubmissionToken, kept: UndeliveredInput) {
        let UndeliveredInput {
            text,
            client_id,
            user_id,
            is_steering,
            image_count,
            images_key,
            images,
            is_requeued,
        } = kept;
        let Some(handle) = self.handle() else {
            let error = self.not_running();
            return self.delivery_refused(&error.message);
        };
        let (busy, is_command) = (self.session.is_working(), text.starts_with('/'));
        let prompt =
            ExpectedPrompt { token, text: text.clone(), client_id, user_id, is_steering, image_count };
        self.session.expect_prompt(prompt);
        if let Some(images) = &images {
            let key = images_key.unwrap_or_else(|| new_images_key(token));
            self.session.hold_images(token, key, Arc::clone(images));
        }
        let images = images.map(|images| images.to_vec()).unwrap_or_default();
        // An idle agent begins with it at once, a working one reads it when it is done; what goes back into the queue
        // goes back to where it was.
        let when_busy = if is_requeued && is_steering { WhenBusy::Steer } else { WhenBusy::FollowUp };
        let request = AgentRequest::Prompt { message: text, images, when_busy: Some(when_busy) };
        match handle.send_request(request) {
            Ok(sent) => {
                self.notify_queue(QueueInput::DeliveryWritten { token });
                self.await_prompt_answer(token, handle, sent, is_command, busy);
            }
            Err(failure) => {
                self.session.forget_prompt(token);
                self.delivery_refused(&failure.error);
            }
        }
    }

    /// The agent has answered an undelivered input that was written when this many turns had begun.
    pub(crate) fn undelivered_answered(
        &mut self,
        token: SubmissionToken,
        turns_before: u64,
        result: ExecuteResult,
    ) {
        let has_begun = self.session.turns() > turns_before;
        let disposition = disposition_of(&result, has_begun);
        let answer = answer_of(&result, disposition);
        let turn = turn_of(disposition, turns_before);
        if turn.is_none() {
            self.session.forget_prompt(token);
        }
        match result {
            Ok(_) => {
                // Before the queue is told: what waits next goes before any prompt.
                match turn {
                    Some(turn) => self.session.kept_accepted(now_ms(), token, turn, &mut self.out),
                    None => drop(self.session.kept_delivered()),
                }
                self.session.tell_queue(now_ms(), &mut self.out);
                if disposition == Some(PromptDisposition::Handled) {
                    self.poll_agent_changes();
                }
                self.notify_queue(QueueInput::Answered { token, answer });
            }
            // The agent is gone, and its end tells of the input.
            Err(failure) if failure.lost => self.notify_queue(QueueInput::Answered { token, answer }),
            Err(failure) => {
                self.notify_queue(QueueInput::Answered { token, answer });
                self.session.kept_refused(now_ms(), &failure.error, &mut self.out);
            }
        }
    }

    /// Whoever waited behind it need not wait any more.
    fn delivery_refused(&mut self, error: &str) {
        self.notify_queue(QueueInput::DeliveryNotWritten { is_refused: true });
        self.session.kept_refused(now_ms(), error, &mut self.out);
    }
}
