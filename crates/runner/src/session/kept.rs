//! What an earlier agent had accepted and not read goes to the next one, each input at most once.

use std::sync::Arc;

use qd_core::agent::{AgentRequest, WhenBusy};
use qd_core::ledger::Token;
use qd_core::session::{ExpectedPrompt, KeptInput};

use super::actor::{AgentState, SessionActor};
use super::prompts::{disposition_of, new_images_key, turn_of};
use crate::clock::now_ms;
use crate::driver::{AgentFailure, Disposition, Executed};

/// A kept input on its way to the agent.
pub(super) struct Delivery {
    pub(super) token: Token,
    turns_before: u64,
}

impl SessionActor {
    /// Whether a kept input is to go before everything else. One that a turn left over goes when a prompt comes,
    /// and not because somebody looked at the session.
    pub(super) fn has_deliveries(&self) -> bool {
        let is_due = !self.session.waits_for_prompt() || self.door.has_waiting();
        is_due && !self.queue_edits.is_under_way() && self.has_deliveries_before_prompts()
    }

    /// Whether a kept input is to go before the next prompt.
    pub(super) fn has_deliveries_before_prompts(&self) -> bool {
        self.agent == AgentState::Ready
            && !self.is_delivery_blocked
            && self.session.has_kept()
            && !self.session.is_delivering()
            && !self.session.is_moving()
    }

    /// Gives the agent the next kept input, if it may have it now.
    pub(super) async fn deliver_kept(&mut self) {
        if !self.has_deliveries() || !self.door.is_open() || self.finished {
            return;
        }
        let token = self.shared.submissions.token();
        let Some(kept) = self.session.take_kept(now_ms(), token, &mut self.out) else { return };
        // On its way, and not in the list any more, before the agent can see it: it never runs twice.
        self.publish().await;
        if !self.finished {
            self.send_kept(token, kept);
        }
    }

    fn send_kept(&mut self, token: Token, kept: KeptInput) {
        let KeptInput { text, client_id, user_id, is_steering, image_count, images_key, images, is_requeued } =
            kept;
        let Some(handle) = self.handle() else {
            let error = self.not_running();
            return self.delivery_refused(&error.message);
        };
        let (busy, is_command) = (self.session.is_working(), text.starts_with('/'));
        let turns_before = self.session.turns();
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
        match handle.begin(request) {
            Ok(begun) => {
                self.delivery = Some(Delivery { token, turns_before });
                self.door.close(token, turns_before);
                self.await_prompt(token, handle, begun, is_command, busy);
            }
            Err(failure) => {
                self.session.forget_prompt(token);
                self.delivery_refused(&failure.error);
            }
        }
    }

    /// The agent has answered a kept input.
    pub(super) fn kept_answered(&mut self, result: Result<Executed, AgentFailure>) {
        let Some(Delivery { token, turns_before }) = self.delivery.take() else { return };
        let has_begun = self.session.turns() > turns_before;
        let disposition = disposition_of(&result, has_begun);
        self.door.answered(token, has_begun, disposition);
        let turn = turn_of(disposition, turns_before);
        if turn.is_none() {
            self.session.forget_prompt(token);
        }
        match result {
            Ok(_) => {
                match turn {
                    Some(turn) => self.session.kept_accepted(now_ms(), token, turn, &mut self.out),
                    None => self.session.kept_delivered(),
                }
                self.session.tell_queue(now_ms(), &mut self.out);
                if disposition == Some(Disposition::Handled) {
                    self.look_for_changes();
                }
            }
            // The agent is gone, and its end tells of the input.
            Err(failure) if failure.lost => {}
            Err(failure) => self.delivery_refused(&failure.error),
        }
        self.pump_door();
    }

    fn delivery_refused(&mut self, error: &str) {
        self.is_delivery_blocked = true;
        self.session.kept_refused(now_ms(), error, &mut self.out);
        // Whoever waited behind it need not wait any more.
        self.pump_door();
    }
}
