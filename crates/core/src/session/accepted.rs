//! Prompts between the agent's yes and their place in the conversation.
//!
//! The sender was told that all is well. If the agent or we die before the prompt shows up anywhere, a person must
//! hear of it: it may or may not have been read.

use qd_wire::data::QueueState;
use qd_wire::event::{Event, NotifyLevel};
use serde::{Deserialize, Serialize};

use super::{EXPECTED_PROMPTS_MAX, Session};
use crate::outbox::Outbox;

/// As much of a prompt as a person needs to know it again.
const TEXT_CHARS_MAX: usize = 500;

/// Accepted prompts that are watched over; beyond it the oldest would be told of no more.
const ACCEPTED_MAX: usize = 64;

/// A prompt the agent has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedPrompt {
    /// The command it came by; of no use in another life of the runner, as the rest of what is not stored.
    #[serde(skip)]
    pub token: u64,
    pub text: String,
    #[serde(skip)]
    pub turn: PromptTurn,
}

/// The turn in which an accepted prompt is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PromptTurn {
    /// The one that runs; the agent reads its queue before it settles.
    #[default]
    Running,
    /// The one that begins after this many.
    After(u64),
}

impl Session {
    /// The agent has said yes to a prompt. If it was gone before its yes was heard, a person is told now.
    pub fn prompt_accepted(&mut self, now: i64, token: u64, turn: PromptTurn, out: &mut Outbox) {
        let has_begun = matches!(turn, PromptTurn::After(turns) if self.turns > turns);
        if let Some(position) = self.unanswered_prompts.iter().position(|prompt| prompt.token == token) {
            let prompt = self.unanswered_prompts.remove(position);
            if !has_begun {
                if self.turn.is_none() {
                    self.show_cut_off(now, out);
                }
                self.tell_accepted_lost(now, &shortened(&prompt.text), out);
            }
            return;
        }
        if has_begun && self.turn.is_none() {
            // Its turn was over before the yes was heard.
            return;
        }
        let expected = self.expected_prompts.iter().find(|prompt| prompt.token == token);
        let Some(prompt) = expected.filter(|prompt| !is_queued(&self.memory.queue, &prompt.text)) else {
            return;
        };
        if self.memory.accepted.len() == ACCEPTED_MAX {
            self.memory.accepted.remove(0);
        }
        let text = shortened(&prompt.text);
        self.memory.accepted.push(AcceptedPrompt { token, text, turn });
    }

    /// A turn has settled: what was to be read in it has been, also under another text (agents expand templates
    /// and skills). A queue that is left may hold such a text.
    pub(super) fn accepted_are_read(&mut self) {
        let has_queue = self.memory.queue != QueueState::default();
        let turns = self.turns;
        self.memory.accepted.retain(|accepted| match accepted.turn {
            PromptTurn::Running => has_queue,
            PromptTurn::After(before) => turns <= before,
        });
    }

    /// The agent ended; its answers to these may still come. Those in its queue are looked after there.
    pub(super) fn expected_are_unanswered(&mut self) {
        let queue = &self.memory.queue;
        let unread = self.expected_prompts.iter().filter(|prompt| !is_queued(queue, &prompt.text));
        self.unanswered_prompts.extend(unread.cloned());
        let excess = self.unanswered_prompts.len().saturating_sub(EXPECTED_PROMPTS_MAX);
        self.unanswered_prompts.drain(..excess);
    }

    /// Those in the agent's queue are looked after there.
    pub(super) fn accepted_are_queued(&mut self) {
        let (queue, expected) = (&self.memory.queue, &self.expected_prompts);
        self.memory.accepted.retain(|accepted| {
            let prompt = expected.iter().find(|prompt| prompt.token == accepted.token);
            prompt.is_some_and(|prompt| !is_queued(queue, &prompt.text))
        });
    }

    /// The agent ended before they showed up.
    pub(super) fn accepted_lost(&mut self, now: i64, out: &mut Outbox) {
        for AcceptedPrompt { text, .. } in std::mem::take(&mut self.memory.accepted) {
            self.tell_accepted_lost(now, &text, out);
        }
    }

    fn tell_accepted_lost(&mut self, now: i64, text: &str, out: &mut Outbox) {
        let message = format!(
            "The agent had accepted a message and ended before it showed that it has read it. Send it again if it is \
             missing:\n{text}"
        );
        self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn is_queued(queue: &QueueState, text: &str) -> bool {
    queue.steering.iter().chain(&queue.follow_up).any(|queued| queued == text)
}
