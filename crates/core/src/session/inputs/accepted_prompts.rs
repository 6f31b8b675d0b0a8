//! Prompts between the agent's yes and their place in the conversation.
//!
//! The sender was told that all is well, so what it typed is ours to keep. Each prompt is stored with the answer that
//! accepts it, and stays stored until the conversation shows it. If the agent or we end before that, it becomes a message
//! of the conversation all the same, marked as interrupted: it may or may not have been read, and a person can send it
//! again.

use qd_wire::data::QueueState;
use qd_wire::event::{Event, NotifyLevel};
use qd_wire::message::{KnownPart, MediaSource, Message, Part, Role};
use serde::{Deserialize, Serialize};

use crate::encoding::base36;
use crate::event_writer::EventWriter;
use crate::session::conversation::sent_by;
use crate::session::{ExpectedPrompt, Session, UNSHOWN_PROMPTS_MAX, UndeliveredInput};

/// A prompt the agent has accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcceptedPrompt {
    /// The command it came by; of no use in another life of the runner, as the rest of what is not stored. Zero where
    /// nobody knows how it came.
    #[serde(skip)]
    pub token: u64,
    #[serde(flatten)]
    pub input: UndeliveredInput,
    /// Unix milliseconds; zero where an older version stored it.
    #[serde(default)]
    pub accepted_at: i64,
    #[serde(skip)]
    pub turn: PromptTurn,
    /// The agent has taken it from its queue.
    #[serde(skip)]
    pub has_left_queue: bool,
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
    /// The agent has said yes to a prompt. If it was gone before its yes was heard, the prompt is shown as interrupted.
    pub fn prompt_accepted(&mut self, now: i64, token: u64, turn: PromptTurn, out: &mut EventWriter) {
        let has_begun = matches!(turn, PromptTurn::After(turns) if self.turns > turns);
        if let Some(position) = self.unanswered_prompts.iter().position(|prompt| prompt.token == token) {
            let prompt = self.unanswered_prompts.remove(position);
            if self.turn.is_none() {
                self.show_cut_off(now, out);
            }
            return self.show_interrupted(now, vec![AcceptedPrompt { accepted_at: now, ..prompt }], out);
        }
        let expected = self.expected_prompts.iter().find(|prompt| prompt.token == token);
        let Some(prompt) = expected.filter(|prompt| !is_queued(&self.memory.queue, &prompt.text)) else {
            return;
        };
        let input = self.kept_of(prompt.text.clone(), prompt.is_steering, Some(prompt));
        let accepted = AcceptedPrompt { token, input, accepted_at: now, turn, has_left_queue: false };
        if has_begun && self.turn.is_none() {
            self.accepted_after_its_turn(now, accepted, out);
        } else {
            self.memory.accepted.push(accepted);
        }
    }

    /// The turn of a prompt was over before the agent's yes to it was heard. Either the turn showed it under another text,
    /// or it never showed it.
    fn accepted_after_its_turn(&mut self, now: i64, prompt: AcceptedPrompt, out: &mut EventWriter) {
        self.expected_prompts.retain(|expected| expected.token != prompt.token);
        if self.unclaimed_inputs > 0 {
            self.unclaimed_inputs -= 1;
        } else {
            self.show_interrupted(now, vec![prompt], out);
        }
    }

    /// The agent has taken these from its queue, and not yet shown that it has read them.
    pub(in crate::session) fn left_queue(&mut self, now: i64, texts: Vec<(String, bool)>) {
        for (text, is_steering) in texts {
            let is_free = |prompt: &&ExpectedPrompt| {
                prompt.text == text && !self.memory.accepted.iter().any(|other| other.token == prompt.token)
            };
            let prompt = self.expected_prompts.iter().find(is_free);
            let accepted = AcceptedPrompt {
                token: prompt.map_or(0, |prompt| prompt.token),
                input: self.kept_of(text, is_steering, prompt),
                accepted_at: now,
                turn: PromptTurn::Running,
                has_left_queue: true,
            };
            self.memory.accepted.push(accepted);
        }
    }

    /// A turn has settled: what was to be read in it has been, also under another text (extensions may change it). What
    /// the turn has not shown in any form was cut off by its end.
    pub(in crate::session) fn accepted_are_read(&mut self, now: i64, out: &mut EventWriter) {
        let has_queue = self.memory.queue != QueueState::default();
        let turns = self.turns;
        let is_due = |accepted: &AcceptedPrompt| match accepted.turn {
            // What is still in the queue may be one of these under another text.
            PromptTurn::Running => accepted.has_left_queue || !has_queue,
            PromptTurn::After(before) => turns > before,
        };
        let (mut due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.memory.accepted).into_iter().partition(is_due);
        self.memory.accepted = waiting;
        let foreign = self.turn.as_ref().map_or(0, |turn| turn.foreign_inputs);
        let lost = due.split_off(foreign.min(due.len()));
        self.unclaimed_inputs = foreign - due.len();
        for prompt in due.iter().chain(&lost) {
            self.expected_prompts.retain(|expected| expected.token != prompt.token);
        }
        self.show_interrupted(now, lost, out);
    }

    /// The agent ended; its answers to these may still come. Those in its queue are looked after there.
    pub(in crate::session) fn expected_are_unanswered(&mut self) {
        let (queue, accepted) = (&self.memory.queue, &self.memory.accepted);
        let unread = self.expected_prompts.iter().filter(|prompt| {
            !is_queued(queue, &prompt.text) && !accepted.iter().any(|other| other.token == prompt.token)
        });
        let unread: Vec<AcceptedPrompt> = unread
            .map(|prompt| AcceptedPrompt {
                token: prompt.token,
                input: self.kept_of(prompt.text.clone(), prompt.is_steering, Some(prompt)),
                accepted_at: 0,
                turn: PromptTurn::Running,
                has_left_queue: false,
            })
            .collect();
        self.unanswered_prompts.extend(unread);
        let excess = self.unanswered_prompts.len().saturating_sub(UNSHOWN_PROMPTS_MAX);
        self.unanswered_prompts.drain(..excess);
    }

    /// Those in the agent's queue are looked after there.
    pub(in crate::session) fn accepted_are_queued(&mut self) {
        let queue = &self.memory.queue;
        self.memory
            .accepted
            .retain(|accepted| accepted.has_left_queue || !is_queued(queue, &accepted.input.text));
    }

    /// Whether a prompt was accepted, or is on its way, that the conversation does not show: before it is called
    /// interrupted, the agent's own file may tell more.
    pub fn has_unshown(&self) -> bool {
        !self.memory.accepted.is_empty()
            || self.memory.delivering.is_some()
            || !self.expected_prompts.is_empty()
            || !self.memory.kept.is_empty()
    }

    /// The agent ended before they showed up.
    pub(in crate::session) fn accepted_lost(&mut self, now: i64, out: &mut EventWriter) {
        let lost = std::mem::take(&mut self.memory.accepted);
        self.show_interrupted(now, lost, out);
    }

    /// The agent's own file shows that it had read a prompt before it ended; whose it was.
    pub(in crate::session) fn accepted_was_read(&mut self, text: &str) -> Option<UndeliveredInput> {
        let position = self.memory.accepted.iter().position(|accepted| accepted.input.text == text)?;
        let accepted = self.memory.accepted.remove(position);
        self.expected_prompts.retain(|prompt| prompt.token != accepted.token);
        Some(accepted.input)
    }

    /// A message of a person had begun to show and will not be told to its end: it was the oldest prompt the agent had.
    pub(in crate::session) fn show_begun(
        &mut self,
        now: i64,
        message_id: &str,
        out: &mut EventWriter,
    ) -> bool {
        if self.memory.accepted.is_empty() {
            return false;
        }
        let AcceptedPrompt { token, input, accepted_at, .. } = self.memory.accepted.remove(0);
        self.expected_prompts.retain(|prompt| prompt.token != token);
        let message = Message { id: message_id.to_owned(), ..self.interrupted_message(accepted_at, input) };
        self.append_message(now, message, out);
        self.tell_interrupted(now, out);
        true
    }

    /// Puts prompts into the conversation that no agent has shown to have read.
    pub(in crate::session) fn show_interrupted(
        &mut self,
        now: i64,
        prompts: Vec<AcceptedPrompt>,
        out: &mut EventWriter,
    ) {
        if prompts.is_empty() {
            return;
        }
        for AcceptedPrompt { input, accepted_at, .. } in prompts {
            let created_at = if accepted_at == 0 { now } else { accepted_at };
            let message = self.interrupted_message(created_at, input);
            self.append_message(now, message, out);
        }
        self.tell_interrupted(now, out);
    }

    fn tell_interrupted(&mut self, now: i64, out: &mut EventWriter) {
        let message =
            "The agent stopped before it showed that it had read a message. The message is marked in the \
                       conversation: send it again if it still matters."
                .to_owned();
        self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
    }

    fn interrupted_message(&self, created_at: i64, input: UndeliveredInput) -> Message {
        // No agent gives such an id, and no record has the same number.
        let id = format!("i{}", base36(self.memory.last_seq + 1));
        let text = KnownPart::Text { id: "p0".to_owned(), text: input.text, format: None, meta: None };
        let images = input.images.iter().flat_map(|images| images.iter()).enumerate();
        let images = images.map(|(place, image)| KnownPart::Image {
            id: format!("p{}", place + 1),
            source: MediaSource::Base64 { data: image.data.clone(), mime_type: image.media_type.clone() },
            alt: None,
            meta: None,
        });
        Message {
            id,
            idx: 0,
            role: Role::User,
            parts: std::iter::once(text).chain(images).map(Part::Known).collect(),
            created_at,
            model: None,
            provider: None,
            stop_reason: None,
            usage: None,
            tool_call_id: None,
            tool_name: None,
            is_error: None,
            client_id: input.client_id,
            sender: input.user_id.map(sent_by),
            interrupted: Some(true),
            metadata: None,
        }
    }
}

pub(in crate::session) fn is_queued(queue: &QueueState, text: &str) -> bool {
    queue.steering.iter().chain(&queue.follow_up).any(|queued| queued == text)
}
