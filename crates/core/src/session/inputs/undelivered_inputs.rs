//! Inputs that outlive their agent: accepted by one, read by the next.
//!
//! Each is delivered at most once. It leaves the stored list in the same commit that notes it as on its way; if we
//! or the agent die before it has arrived for sure, a person is told instead of it being run twice.

use std::sync::Arc;

use qd_wire::data::QueueState;
use qd_wire::event::{Event, NotifyLevel};
use serde::{Deserialize, Serialize};

use crate::agent::Image;
use crate::event_writer::EventWriter;
use crate::session::accepted_prompts::is_queued;
use crate::session::conversation_move::remove_one;
use crate::session::{AcceptedPrompt, ExpectedPrompt, PromptTurn, Session};

/// An input that waits for an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredInput {
    pub text: String,
    /// It was to be read before the agent's next step, not after its turn.
    #[serde(default)]
    pub is_steering: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Images that came with it.
    #[serde(default)]
    pub image_count: usize,
    /// The name under which they are stored, apart from the rest: they would be written with every change of the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_key: Option<String>,
    #[serde(skip)]
    pub images: Option<Arc<Vec<Image>>>,
    /// It goes back into the queue it was taken from, so it is shown there also while it is on its way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_requeued: bool,
}

impl Session {
    /// What waits: in the agent that is there, and for it or another one to take it.
    pub(in crate::session) fn whole_queue(&self) -> QueueState {
        let on_its_way = self.memory.delivering.iter().filter(|delivering| delivering.is_requeued);
        let kept = |is_steering: bool| {
            let own = on_its_way.clone().chain(&self.memory.kept);
            own.filter(move |kept| kept.is_steering == is_steering).map(|kept| kept.text.clone())
        };
        let QueueState { steering, follow_up } = &self.memory.queue;
        QueueState {
            steering: steering.iter().cloned().chain(kept(true)).collect(),
            follow_up: follow_up.iter().cloned().chain(kept(false)).collect(),
        }
    }

    /// Everything that waits, as it must be stored: a crash may come at any moment.
    pub fn waiting_inputs(&self) -> Vec<UndeliveredInput> {
        let mut known: Vec<&ExpectedPrompt> = self.expected_prompts.iter().collect();
        let mut kept = Vec::new();
        let QueueState { steering, follow_up } = &self.memory.queue;
        for (texts, is_steering) in [(steering, true), (follow_up, false)] {
            for text in texts {
                let position = known.iter().position(|prompt| prompt.text == *text);
                let prompt = position.map(|position| known.remove(position));
                kept.push(self.kept_of(text.clone(), is_steering, prompt));
            }
        }
        kept.extend(self.memory.kept.iter().cloned());
        kept
    }

    /// An input that leaves the agent's queue, with what came with it.
    pub(in crate::session) fn kept_of(
        &self,
        text: String,
        is_steering: bool,
        prompt: Option<&ExpectedPrompt>,
    ) -> UndeliveredInput {
        let held = prompt.and_then(|prompt| self.images.of(prompt.token));
        UndeliveredInput {
            text,
            is_steering,
            client_id: prompt.and_then(|prompt| prompt.client_id.clone()),
            user_id: prompt.and_then(|prompt| prompt.user_id.clone()),
            image_count: prompt.map_or(0, |prompt| prompt.image_count),
            images_key: held.map(|held| held.key.clone()),
            images: held.map(|held| Arc::clone(&held.images)),
            is_requeued: false,
        }
    }

    /// Whether any input waits: for an agent to come, in the agent, or on its way to it.
    pub fn has_waiting(&self) -> bool {
        self.has_kept()
            || self.memory.delivering.is_some()
            || self.memory.queue != QueueState::default()
            || !self.memory.accepted.is_empty()
    }

    /// Whether an input waits for an agent.
    pub fn has_kept(&self) -> bool {
        !self.memory.kept.is_empty()
    }

    /// Whether what waits goes ahead of the next prompt only.
    pub fn waits_for_prompt(&self) -> bool {
        self.memory.waits_for_prompt
    }

    /// What is left in an idle agent's queue waits for a prompt; where nothing waits there is nothing to say.
    pub(in crate::session) fn note_what_waits(&mut self) {
        if !self.is_working() && self.memory.queue != QueueState::default() {
            self.memory.waits_for_prompt = true;
        } else if self.memory.kept.is_empty() && self.memory.queue == QueueState::default() {
            self.memory.waits_for_prompt = false;
        }
    }

    /// Takes the next kept input to deliver it. It must be committed as on its way before the agent gets it.
    pub fn take_kept(&mut self, now: i64, token: u64, out: &mut EventWriter) -> Option<UndeliveredInput> {
        if self.memory.delivering.is_some() || self.memory.kept.is_empty() {
            return None;
        }
        let kept = self.memory.kept.remove(0);
        self.memory.delivering = Some(kept.clone());
        self.delivering_token = Some(token);
        if !kept.is_requeued {
            self.emit_queue(now, out);
        }
        if kept.image_count > 0 && kept.images.is_none() {
            let message = format!(
                "A message that waited is delivered without its images ({}); send them again:\n{}",
                kept.image_count, kept.text
            );
            self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
        }
        Some(kept)
    }

    /// The agent has said yes to it; until the conversation shows it, it is looked after like any accepted prompt.
    pub fn kept_accepted(&mut self, now: i64, token: u64, turn: PromptTurn, out: &mut EventWriter) {
        self.prompt_accepted(now, token, turn, out);
        self.kept_is_read_next();
    }

    /// The agent has it, and shows it as its next message unless it is in its queue.
    pub(in crate::session) fn kept_is_read_next(&mut self) {
        if let Some(delivered) = self.kept_delivered()
            && !is_queued(&self.memory.queue, &delivered.text)
        {
            self.reads.delivered(delivered.text);
        }
    }

    /// It is not on its way any more: the agent has it, has done what it says, or has given it back.
    pub fn kept_delivered(&mut self) -> Option<UndeliveredInput> {
        self.delivering_token = None;
        let delivered = self.memory.delivering.take()?;
        self.is_queue_untold |= delivered.is_requeued;
        Some(delivered)
    }

    /// Tells what waits, if that is another than was told last.
    pub fn tell_queue(&mut self, now: i64, out: &mut EventWriter) {
        if self.is_queue_untold {
            self.emit_queue(now, out);
        }
    }

    /// The agent (or we) refused it: it waits on, for another try.
    pub fn kept_refused(&mut self, now: i64, error: &str, out: &mut EventWriter) {
        self.delivering_token = None;
        let Some(kept) = self.memory.delivering.take() else { return };
        let message = format!("A message that waits could not be delivered: {error}\n{}", kept.text);
        self.memory.kept.insert(0, kept);
        self.emit(now, &Event::Notify { level: NotifyLevel::Warning, message }, out);
        self.emit_queue(now, out);
    }

    /// Whether the input taken last is still on its way.
    pub fn is_delivering(&self) -> bool {
        self.memory.delivering.is_some()
    }

    pub(in crate::session) fn emit_queue(&mut self, now: i64, out: &mut EventWriter) {
        self.is_queue_untold = false;
        let queue = self.whole_queue();
        self.emit(now, &Event::QueueChanged { queue }, out);
    }

    /// An input on its way that is in the agent's own queue has arrived.
    pub(in crate::session) fn kept_is_queued(&mut self) {
        let QueueState { steering, follow_up } = &self.memory.queue;
        let is_there =
            |kept: &UndeliveredInput| steering.contains(&kept.text) || follow_up.contains(&kept.text);
        if self.memory.delivering.as_ref().is_some_and(is_there) {
            self.kept_delivered();
        }
    }

    /// The agent's own file shows that it had read an input before it ended; whose it was.
    pub(in crate::session) fn input_was_read(
        &mut self,
        now: i64,
        text: &str,
        out: &mut EventWriter,
    ) -> Option<UndeliveredInput> {
        if let Some(input) = self.accepted_was_read(text) {
            return Some(input);
        }
        if self.memory.delivering.as_ref().is_some_and(|input| input.text == text) {
            let input = self.memory.delivering.take();
            self.delivering_token = None;
            return input;
        }
        let input = match self.memory.kept.iter().position(|kept| kept.text == text) {
            Some(position) => self.memory.kept.remove(position),
            None => self.take_queued(text)?,
        };
        self.emit_queue(now, out);
        Some(input)
    }

    /// Takes a text out of the agent's queue, which is where the agent had it from.
    fn take_queued(&mut self, text: &str) -> Option<UndeliveredInput> {
        let QueueState { steering, follow_up } = &mut self.memory.queue;
        let is_steering = remove_one(steering, text);
        if !is_steering && !remove_one(follow_up, text) {
            return None;
        }
        let position = self.expected_prompts.iter().position(|prompt| prompt.text == text);
        let prompt = position.and_then(|position| self.expected_prompts.remove(position));
        Some(self.kept_of(text.to_owned(), is_steering, prompt.as_ref()))
    }

    /// The agent ended while an input was on its way to it.
    pub(in crate::session) fn delivery_lost(&mut self, now: i64, out: &mut EventWriter) {
        self.delivering_token = None;
        if let Some(input) = self.memory.delivering.take() {
            self.is_queue_untold |= input.is_requeued;
            self.show_interrupted(now, vec![unread(input)], out);
        }
    }

    /// What the agent had accepted and not read waits for the next one.
    pub(in crate::session) fn keep_queue(&mut self) {
        self.memory.kept = self.waiting_inputs();
        self.memory.queue = QueueState::default();
    }

    /// Nobody will read what waits: the session was closed. It stays in the conversation, marked.
    pub(in crate::session) fn lose_kept(&mut self, now: i64, out: &mut EventWriter) {
        let kept = std::mem::take(&mut self.memory.kept);
        if kept.is_empty() {
            return self.tell_queue(now, out);
        }
        self.show_interrupted(now, kept.into_iter().map(unread).collect(), out);
        self.emit_queue(now, out);
    }
}

/// An input that nobody has shown to have read.
fn unread(input: UndeliveredInput) -> AcceptedPrompt {
    AcceptedPrompt { token: 0, input, accepted_at: 0, turn: PromptTurn::Running, has_left_queue: false }
}
