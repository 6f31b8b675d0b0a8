//! What waits belongs to its conversation: when the agent moves to another one, it does not go with it.

use qd_wire::Message;
use qd_wire::data::QueueState;
use qd_wire::event::{Event, NotifyLevel};

use super::Session;
use crate::event_writer::EventWriter;

/// What became of the agent's own queue when the agent moved to another conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueFate {
    /// The agent has it still, and reads it where it is now.
    Kept,
    /// It threw these away because we asked it to.
    Cleared(Vec<String>),
    /// It was left behind; in the new one this many wait.
    LeftBehind { waiting: u64 },
}

/// What waited when the agent was asked to move.
#[derive(Debug, Default)]
pub(super) struct ConversationMove {
    queued: Vec<String>,
    /// Accepted prompts that had not shown up, by their commands.
    accepted: Vec<u64>,
}

impl Session {
    /// The agent is asked to move to another conversation: what waits now is of the old one.
    pub fn move_begun(&mut self) {
        let queued = texts_of(&self.memory.queue);
        let accepted = self.memory.accepted.iter().map(|accepted| accepted.token).collect();
        self.moving = Some(ConversationMove { queued, accepted });
    }

    /// Whether the agent is between two conversations; nothing that waits may be given to it then.
    pub fn is_moving(&self) -> bool {
        self.moving.is_some()
    }

    /// The agent has moved, or has not: it has answered.
    pub fn move_over(&mut self) {
        self.moving = None;
    }

    /// A message of the old conversation was read before the agent left it.
    pub(super) fn read_before_move(&mut self, message: &Message) {
        if let Some(ConversationMove { queued, .. }) = &mut self.moving {
            remove_one(queued, &message.flattened_text());
        }
    }

    /// The agent is in another conversation: what waited for it in the old one is dropped, and a person is told.
    pub fn leave_queue_behind(&mut self, now: i64, fate: QueueFate, out: &mut EventWriter) {
        if fate == QueueFate::Kept {
            return;
        }
        // It is told once, also if the move shows in more than one way.
        let ConversationMove { queued, accepted } =
            self.moving.as_mut().map(std::mem::take).unwrap_or_default();
        let before = self.whole_queue();
        let kept = std::mem::take(&mut self.memory.kept).into_iter().map(|kept| kept.text);
        let mut dropped: Vec<String> = kept.collect();
        dropped.extend(match fate {
            QueueFate::Cleared(texts) => {
                self.memory.queue = QueueState::default();
                texts
            }
            QueueFate::LeftBehind { waiting: 0 } => self.drop_whole_queue(queued),
            QueueFate::LeftBehind { .. } | QueueFate::Kept => self.drop_queued(queued),
        });
        for text in &dropped {
            if let Some(place) = self.expected_prompts.iter().position(|prompt| prompt.text == *text) {
                self.expected_prompts.remove(place);
            }
        }
        for prompt in std::mem::take(&mut self.memory.accepted) {
            if prompt.has_left_queue && dropped.contains(&prompt.input.text) {
                // It left the queue because the agent left the conversation.
                continue;
            }
            if accepted.contains(&prompt.token) {
                dropped.push(prompt.input.text);
            } else {
                self.memory.accepted.push(prompt);
            }
        }
        self.note_what_waits();
        if !dropped.is_empty() {
            let message = format!(
                "The session moved to another conversation before the agent read these messages; send them again if \
                 they still matter:\n{}",
                dropped.join("\n")
            );
            self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
        }
        if self.whole_queue() != before {
            self.emit_queue(now, out);
        }
    }

    /// All that waited, as far as we know: the agent has nothing in its queue now.
    fn drop_whole_queue(&mut self, mut queued: Vec<String>) -> Vec<String> {
        for text in texts_of(&std::mem::take(&mut self.memory.queue)) {
            if !queued.contains(&text) {
                queued.push(text);
            }
        }
        queued
    }

    /// Only what waited before the move: the rest is of the new conversation.
    fn drop_queued(&mut self, queued: Vec<String>) -> Vec<String> {
        let QueueState { steering, follow_up } = &mut self.memory.queue;
        for text in &queued {
            if !remove_one(steering, text) {
                remove_one(follow_up, text);
            }
        }
        queued
    }
}

pub(super) fn texts_of(queue: &QueueState) -> Vec<String> {
    queue.steering.iter().chain(&queue.follow_up).cloned().collect()
}

/// Whether it was there.
pub(super) fn remove_one(texts: &mut Vec<String>, text: &str) -> bool {
    let place = texts.iter().position(|one| one == text);
    place.map(|place| texts.remove(place)).is_some()
}
