//! Prompts between the agent's yes and their place in the conversation.
//!
//! The sender was told that all is well. If the agent or we die before the prompt shows up anywhere, a person must
//! hear of it: it may or may not have been read.

use qd_wire::data::QueueState;
use qd_wire::event::{Event, NotifyLevel};
use serde::{Deserialize, Serialize};

use super::Session;
use crate::outbox::Outbox;

/// As much of a prompt as a person needs to know it again.
const TEXT_CHARS_MAX: usize = 500;

/// A prompt the agent has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedPrompt {
    /// The command it came by; of no use in another life of the runner.
    #[serde(skip)]
    pub token: u64,
    pub text: String,
}

impl Session {
    /// The agent has said yes to a prompt.
    pub fn prompt_accepted(&mut self, token: u64) {
        let expected = self.expected_prompts.iter().find(|prompt| prompt.token == token);
        let Some(prompt) = expected.filter(|prompt| !is_queued(&self.memory.queue, &prompt.text)) else {
            return;
        };
        let text = prompt.text.chars().take(TEXT_CHARS_MAX).collect();
        self.memory.accepted.push(AcceptedPrompt { token, text });
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
            let message = format!(
                "The agent had accepted a message and ended before it showed that it has read it. Send it again if \
                 it is missing:\n{text}"
            );
            self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
        }
    }
}

fn is_queued(queue: &QueueState, text: &str) -> bool {
    queue.steering.iter().chain(&queue.follow_up).any(|queued| queued == text)
}
