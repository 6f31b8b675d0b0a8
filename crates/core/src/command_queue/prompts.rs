//! Prompts go to the agent one at a time.
//!
//! An agent may lose a prompt that comes before it has acknowledged the one before and begun its turn, even when it says
//! yes to both. So the next is written when the last one is accepted and its turn has begun (or it needed none).

use std::collections::VecDeque;

use super::{AgentAnswer, AgentWork, CommandQueue, QueueEffect, QueueRefusal, QueuedCommand, Undelivered};
use crate::ledger::SubmissionToken;

/// A prompt that waits for the agent to take the ones before it.
#[derive(Debug, Clone, Copy)]
struct WaitingPrompt {
    command: QueuedCommand,
    /// The agent may have it while it works.
    may_interrupt: bool,
    is_follow_up: bool,
}

/// The prompt that the agent is given now.
#[derive(Debug, Default)]
pub(super) enum CurrentPrompt {
    #[default]
    None,
    /// The caller is to write this command's prompt.
    HandedOut(SubmissionToken),
    /// The caller is to write an undelivered input.
    DeliveryHandedOut,
    /// The agent has it.
    Taking { token: SubmissionToken, turns_before: u64, is_accepted: bool, until: i64 },
}

#[derive(Debug, Default)]
pub(super) struct PromptQueue {
    waiting: VecDeque<WaitingPrompt>,
    pub(super) current: CurrentPrompt,
    /// The agent refused an undelivered input: the rest waits for its next start.
    is_delivery_blocked: bool,
}

impl PromptQueue {
    pub(super) fn deadline(&self) -> Option<i64> {
        match self.current {
            CurrentPrompt::Taking { until, .. } => Some(until),
            CurrentPrompt::None | CurrentPrompt::HandedOut(_) | CurrentPrompt::DeliveryHandedOut => None,
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.current, CurrentPrompt::None)
    }

    /// The agent is taking a prompt.
    pub(super) fn is_taking(&self) -> bool {
        matches!(self.current, CurrentPrompt::Taking { .. })
    }

    pub(super) fn is_delivery_handed_out(&self) -> bool {
        matches!(self.current, CurrentPrompt::DeliveryHandedOut)
    }

    /// No prompt is on its way and none waits.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_open() && self.waiting.is_empty()
    }

    pub(super) fn is_waiting(&self, token: SubmissionToken) -> bool {
        self.waiting.iter().any(|prompt| prompt.command.token == token)
    }

    pub(super) fn remove(&mut self, token: SubmissionToken) -> Option<QueuedCommand> {
        let place = self.waiting.iter().position(|prompt| prompt.command.token == token)?;
        self.waiting.remove(place).map(|prompt| prompt.command)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueuedCommand> + '_ {
        self.waiting.drain(..).map(|prompt| prompt.command)
    }

    /// The prompt of this command was not written.
    pub(super) fn hand_back(&mut self, token: SubmissionToken) {
        if matches!(self.current, CurrentPrompt::HandedOut(own) if own == token) {
            self.current = CurrentPrompt::None;
        }
    }

    pub(super) fn expire(&mut self, now: i64) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.current = CurrentPrompt::None;
        }
    }

    /// A turn may have begun.
    pub(super) fn look_for_turn(&mut self, turns: u64) {
        if matches!(self.current, CurrentPrompt::Taking { turns_before, is_accepted: true, .. } if turns > turns_before)
        {
            self.current = CurrentPrompt::None;
        }
    }

    /// The agent takes commands, after a start.
    pub(super) fn agent_ready(&mut self) {
        self.is_delivery_blocked = false;
    }

    /// The agent is gone, and with it what it was taking.
    pub(super) fn agent_gone(&mut self) {
        self.current = CurrentPrompt::None;
    }
}

impl CommandQueue {
    pub(super) fn enqueue_prompt(
        &mut self,
        token: SubmissionToken,
        may_interrupt: bool,
        out: &mut Vec<QueueEffect>,
    ) {
        let Some(command) = self.executing.remove(&token) else { return };
        let max = self.limits.prompts_max;
        if self.prompts.waiting.len() >= max {
            return self.refuse(token, QueueRefusal::TooManyPrompts { max }, out);
        }
        // Whoever sent it saw an idle agent; what waited before it goes first.
        let is_follow_up = !may_interrupt && self.has_undelivered();
        let may_interrupt = may_interrupt || is_follow_up;
        self.prompts.waiting.push_back(WaitingPrompt { command, may_interrupt, is_follow_up });
    }

    /// Whether an undelivered input goes before the next prompt.
    fn has_undelivered(&self) -> bool {
        self.is_agent_ready
            && !self.prompts.is_delivery_blocked
            && self.activity.undelivered != Undelivered::Nothing
    }

    /// Whether an undelivered input goes before everything else. One that a turn left over goes when a prompt comes, and
    /// not because somebody looked at the session.
    pub(super) fn is_delivery_due(&self) -> bool {
        let waits_for_prompt = self.activity.undelivered == Undelivered::WithNextPrompt;
        let is_due = !waits_for_prompt || !self.prompts.waiting.is_empty();
        is_due && self.edit.is_none() && self.has_undelivered()
    }

    /// Hands out the next prompt, if the agent may have one. What an earlier agent left unread goes first.
    pub(super) fn start_prompts(&mut self, out: &mut Vec<QueueEffect>) {
        while self.is_agent_ready && self.edit.is_none() && self.prompts.is_open() {
            if self.is_delivery_due() {
                self.prompts.current = CurrentPrompt::DeliveryHandedOut;
                return out.push(QueueEffect::WriteUndelivered);
            }
            let Some(prompt) = self.prompts.waiting.pop_front() else { return };
            let WaitingPrompt { command, may_interrupt, is_follow_up } = prompt;
            let token = command.token;
            if self.activity.is_working && !may_interrupt {
                self.refuse(token, QueueRefusal::AgentBusy, out);
                continue;
            }
            self.prompts.current = CurrentPrompt::HandedOut(token);
            self.executing.insert(token, command);
            out.push(QueueEffect::WritePrompt { token, is_follow_up });
        }
    }

    pub(super) fn prompt_written(&mut self, now: i64, token: SubmissionToken, is_command: bool) {
        if self.executing.remove(&token).is_none() {
            return;
        }
        let turns_before = self.take(now, token);
        self.running.insert(token, AgentWork::Prompt { turns_before });
        if is_command {
            self.release_lane(token);
        }
    }

    pub(super) fn delivery_written(&mut self, now: i64, token: SubmissionToken) {
        if self.prompts.is_delivery_handed_out() {
            let turns_before = self.take(now, token);
            self.running.insert(token, AgentWork::Delivery { turns_before });
        }
    }

    pub(super) fn delivery_not_written(&mut self, is_refused: bool) {
        if self.prompts.is_delivery_handed_out() {
            self.prompts.current = CurrentPrompt::None;
            self.prompts.is_delivery_blocked = is_refused;
        }
    }

    /// The agent is taking a prompt from now on. Returns how many turns had begun.
    fn take(&mut self, now: i64, token: SubmissionToken) -> u64 {
        let turns_before = self.activity.turns;
        let until = now + self.limits.prompt_wait_ms;
        self.prompts.current = CurrentPrompt::Taking { token, turns_before, is_accepted: false, until };
        turns_before
    }

    /// The agent has answered a prompt or an undelivered input; if that begins a turn, the next waits to see it.
    pub(super) fn prompt_answered(
        &mut self,
        token: SubmissionToken,
        work: AgentWork,
        answer: AgentAnswer,
        has_begun: bool,
    ) {
        let starts_turn = answer == AgentAnswer::StartsTurn;
        let is_delivery = matches!(work, AgentWork::Delivery { .. });
        if is_delivery {
            self.prompts.is_delivery_blocked |= answer == AgentAnswer::Refused;
        } else if !starts_turn {
            // No turn comes of it that was to be aborted.
            self.abort_next = None;
        }
        if let CurrentPrompt::Taking { token: own, is_accepted, .. } = &mut self.prompts.current
            && *own == token
        {
            *is_accepted = true;
            if has_begun || !starts_turn {
                self.prompts.current = CurrentPrompt::None;
            }
        }
    }
}
