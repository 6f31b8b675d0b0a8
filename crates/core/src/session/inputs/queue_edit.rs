//! The queue as a person wants it: messages changed, taken out, put in another order.
//!
//! The agent's own queue can only be emptied. So it is, and what is to stay becomes input that waits for the agent, which
//! is delivered as ever: each at most once. What the agent has read before its queue was empty stays read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use qd_wire::Message;
use qd_wire::data::{QueueSetData, QueueState};

use crate::agent::Image;
use crate::event_writer::EventWriter;
use crate::session::accepted_prompts::is_queued;
use crate::session::conversation_move::{remove_one, texts_of};
use crate::session::{Session, SessionMemory, UndeliveredInput};

/// Bytes of images that are held, and stored, for prompts the agent has not read; more are refused until it has.
const IMAGE_BYTES_MAX: usize = 32 << 20;

/// Somebody who changes the queue may not have seen yet that the agent has read something of it this long ago.
const READ_MS_MAX: i64 = 10_000;

/// Texts remembered for that.
const READS_MAX: usize = 64;

/// Images of prompts that the agent has.
#[derive(Debug, Default)]
pub(in crate::session) struct HeldImages {
    by_token: BTreeMap<u64, HeldImage>,
}

#[derive(Debug)]
pub(in crate::session) struct HeldImage {
    /// The name under which they are stored.
    pub(in crate::session) key: String,
    pub(in crate::session) images: Arc<Vec<Image>>,
}

impl HeldImages {
    pub(in crate::session) fn of(&self, token: u64) -> Option<&HeldImage> {
        self.by_token.get(&token)
    }

    pub(in crate::session) fn forget(&mut self, token: u64) {
        self.by_token.remove(&token);
    }
}

/// The agent is asked to give back its queue.
#[derive(Debug, Default)]
pub(in crate::session) struct QueueRecall {
    /// What it said of it last.
    pub(in crate::session) last: Option<QueueState>,
}

/// What has left the agent's queue lately.
#[derive(Debug, Default)]
pub(in crate::session) struct QueueReads {
    /// It is in no queue, and may show up as a message.
    left: VecDeque<String>,
    /// It has shown up as a message, and the agent has not said yet that it left the queue.
    shown: Vec<String>,
    /// It has, at this time.
    read: VecDeque<(i64, String)>,
}

impl QueueReads {
    /// The queue is another: what is in it no more, and whether that was for the agent's next step.
    pub(in crate::session) fn left(
        &mut self,
        now: i64,
        before: &QueueState,
        after: &QueueState,
    ) -> Vec<(String, bool)> {
        let mut still_there = texts_of(after);
        let mut left = Vec::new();
        for (texts, is_steering) in [(&before.steering, true), (&before.follow_up, false)] {
            for text in texts.iter().filter(|text| !remove_one(&mut still_there, text)) {
                if remove_one(&mut self.shown, text) {
                    push_bounded(&mut self.read, (now, text.clone()));
                } else {
                    push_bounded(&mut self.left, text.clone());
                    left.push((text.clone(), is_steering));
                }
            }
        }
        self.shown.retain(|text| is_queued(after, text));
        // What went to the agent directly, as it seemed, and is in its queue after all has not left it.
        let mut were_there = texts_of(before);
        for text in texts_of(after).iter().filter(|text| !remove_one(&mut were_there, text)) {
            if let Some(place) = self.left.iter().rposition(|left| left == text) {
                self.left.remove(place);
            }
        }
        left
    }

    /// What waited with us went to the agent directly, not by way of its own queue.
    pub(in crate::session) fn delivered(&mut self, text: String) {
        push_bounded(&mut self.left, text);
    }

    /// A message shows what the queue still has.
    pub(in crate::session) fn shown_early(&mut self, text: String) {
        self.shown.push(text);
    }

    /// A message of a person has come.
    pub(in crate::session) fn read(&mut self, now: i64, message: &Message) {
        if self.left.is_empty() {
            return;
        }
        let text = message.flattened_text();
        if let Some(place) = self.left.iter().position(|left| *left == text) {
            self.left.remove(place);
            push_bounded(&mut self.read, (now, text));
        }
    }

    /// What was read so lately that not everybody knows.
    fn lately(&self, now: i64) -> Vec<String> {
        let is_late = |at: i64| (0..READ_MS_MAX).contains(&(now - at));
        self.read.iter().filter(|(at, _)| is_late(*at)).map(|(_, text)| text.clone()).collect()
    }
}

fn image_bytes(images: &[Image]) -> usize {
    images.iter().map(|image| image.data.len()).sum()
}

fn push_bounded<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == READS_MAX {
        list.pop_front();
    }
    list.push_back(item);
}

/// A change of the queue that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueEdit {
    /// What waited when it began.
    base: QueueState,
    waits_for_prompt: bool,
}

/// One message of the queue that is to be.
struct WantedQueue {
    text: String,
    is_steering: bool,
    found: Option<UndeliveredInput>,
    is_taken: bool,
}

impl Session {
    /// Whether the images of one more prompt can be held. Those of one alone always can: frames have a bound.
    pub fn has_room_for_images(&self, images: &[Image]) -> bool {
        let held = self.images.by_token.values().map(|held| image_bytes(&held.images)).sum::<usize>();
        images.is_empty() || held == 0 || held + image_bytes(images) <= IMAGE_BYTES_MAX
    }

    /// Holds the images of a prompt on its way to the agent, should it have to be sent again. `key` names them in the
    /// store.
    pub fn hold_images(&mut self, token: u64, key: String, images: Arc<Vec<Image>>) {
        let expected = &self.expected_prompts;
        self.images.by_token.retain(|token, _| expected.iter().any(|prompt| prompt.token == *token));
        if !images.is_empty() {
            self.images.by_token.insert(token, HeldImage { key, images });
        }
    }

    /// The images of everything that was accepted and that the conversation does not show, by the names under which they
    /// are stored.
    pub fn unshown_images(&self) -> BTreeMap<&str, &Arc<Vec<Image>>> {
        let SessionMemory { queue, kept, delivering, accepted, .. } = &self.memory;
        let inputs = kept.iter().chain(delivering).chain(accepted.iter().map(|accepted| &accepted.input));
        let own = inputs.filter_map(|input| Some((input.images_key.as_deref()?, input.images.as_ref()?)));
        let queued = self.images.by_token.iter().filter(|(token, _)| {
            let prompt = self.expected_prompts.iter().find(|prompt| prompt.token == **token);
            prompt.is_some_and(|prompt| is_queued(queue, &prompt.text))
        });
        own.chain(queued.map(|(_, held)| (held.key.as_str(), &held.images))).collect()
    }

    /// The names under which images of inputs are stored, after a restart.
    pub fn missing_images(&self) -> BTreeSet<String> {
        let SessionMemory { kept, delivering, accepted, .. } = &self.memory;
        let inputs = kept.iter().chain(delivering).chain(accepted.iter().map(|accepted| &accepted.input));
        inputs.filter(|input| input.images.is_none()).filter_map(|input| input.images_key.clone()).collect()
    }

    /// Gives inputs of before a restart their images back.
    pub fn restore_images(&mut self, stored: &BTreeMap<String, Arc<Vec<Image>>>) {
        let SessionMemory { kept, delivering, accepted, .. } = &mut self.memory;
        let accepted = accepted.iter_mut().map(|accepted| &mut accepted.input);
        for input in kept.iter_mut().chain(delivering).chain(accepted) {
            if let Some(images) = input.images_key.as_deref().and_then(|key| stored.get(key)) {
                input.images = Some(Arc::clone(images));
            }
        }
    }

    /// What the agent has put into its queue under another text than it was sent with goes by that text from now on.
    pub(in crate::session) fn name_expanded(&mut self, queue: &QueueState) {
        if self.moving.is_some() {
            return;
        }
        let mut new = texts_of(queue);
        for text in texts_of(&self.memory.queue) {
            remove_one(&mut new, &text);
        }
        new.retain(|text| !self.expected_prompts.iter().any(|prompt| prompt.text == *text));
        for text in new {
            let Some(place) = self.expanded_prompt() else { return };
            let Some(prompt) = self.expected_prompts.get_mut(place) else { return };
            prompt.text = text;
            let token = prompt.token;
            self.memory.accepted.retain(|accepted| accepted.token != token);
        }
    }

    /// Whether anything waits in the agent itself, which then has to give it back first.
    pub fn is_queue_in_agent(&self) -> bool {
        self.memory.queue != QueueState::default()
    }

    /// Begins to change the queue. If the agent has to give back its own first, that is waited for by `set_queue` or
    /// `give_up_queue_edit`.
    pub fn begin_queue_edit(&mut self) -> QueueEdit {
        self.emptying = self.is_queue_in_agent().then(QueueRecall::default);
        QueueEdit { base: self.whole_queue(), waits_for_prompt: self.memory.waits_for_prompt }
    }

    /// The agent does not give back its queue: all is as it was.
    pub fn give_up_queue_edit(&mut self, now: i64, out: &mut EventWriter) {
        if let Some(queue) = self.emptying.take().and_then(|emptying| emptying.last) {
            self.queue_changed(now, queue, out);
        }
    }

    /// Makes the queue what is wanted. `cleared` is what the agent has given back of its own; of the rest of what waited
    /// there when the change began, it has read what is missing.
    pub fn set_queue(
        &mut self,
        now: i64,
        edit: &QueueEdit,
        cleared: &QueueState,
        wanted: QueueState,
        user_id: Option<&str>,
        out: &mut EventWriter,
    ) -> QueueSetData {
        if let Some(emptying) = self.emptying.take() {
            // Empty, but for what it has said to be in it since.
            self.memory.queue = emptying.last.unwrap_or_default();
        }
        let mut available = self.take_back(cleared);
        let mut base = texts_of(&edit.base);
        let mut gone = base.clone();
        for kept in &available {
            remove_one(&mut gone, &kept.text);
        }
        // Of those that were read before the change began nobody can say what was to replace them.
        let mut read_before = self.reads.lately(now);
        for text in &gone {
            remove_one(&mut read_before, text);
        }

        let mut wanted = wanted_of(wanted);
        find_same(&mut wanted, &mut available, &mut base);
        // What is in the queue now and was not when the change began is nobody's to remove.
        let (removed, newer): (Vec<_>, Vec<_>) =
            available.into_iter().partition(|kept| remove_one(&mut base, &kept.text));
        let mut replaceable = removed.len();
        for message in wanted.iter_mut().filter(|message| message.found.is_none()) {
            message.is_taken =
                remove_one(&mut gone, &message.text) || remove_one(&mut read_before, &message.text);
        }
        for message in wanted.iter_mut().filter(|message| message.found.is_none() && !message.is_taken) {
            if replaceable > 0 {
                replaceable -= 1;
            } else if !gone.is_empty() {
                // It was to replace one that the agent has read.
                gone.remove(0);
                message.is_taken = true;
            }
        }
        let taken = wanted.iter().filter(|message| message.is_taken).map(|message| message.text.clone());
        let taken = taken.collect();
        self.memory.kept = in_order(wanted, newer, user_id);
        self.memory.waits_for_prompt = edit.waits_for_prompt && !self.memory.kept.is_empty();
        self.emit_queue(now, out);
        let QueueState { steering, follow_up } = self.whole_queue();
        QueueSetData { steering, follow_up, taken }
    }

    /// All that waits and that we have, with what came with it: what the agent has given back, then what it never had.
    fn take_back(&mut self, cleared: &QueueState) -> Vec<UndeliveredInput> {
        let mut available = Vec::new();
        for (texts, is_steering) in [(&cleared.steering, true), (&cleared.follow_up, false)] {
            for text in texts {
                let place = self.expected_prompts.iter().position(|prompt| prompt.text == *text);
                let prompt = place.and_then(|place| self.expected_prompts.remove(place));
                available.push(self.kept_of(text.clone(), is_steering, prompt.as_ref()));
                if let Some(prompt) = prompt {
                    self.images.forget(prompt.token);
                    self.memory.accepted.retain(|accepted| accepted.token != prompt.token);
                    if self.delivering_token == Some(prompt.token) {
                        self.kept_delivered();
                    }
                }
                let queue = &mut self.memory.queue;
                let own = if is_steering { &mut queue.steering } else { &mut queue.follow_up };
                remove_one(own, text);
            }
        }
        self.kept_is_queued();
        self.accepted_are_queued();
        available.append(&mut self.memory.kept);
        available
    }

    /// The turn was aborted: what goes back into the queue stays there until the next prompt, as the rest of it does.
    pub(in crate::session) fn requeued_waits(&mut self) {
        if self.memory.kept.iter().any(|kept| kept.is_requeued) {
            self.memory.waits_for_prompt = true;
        }
    }
}

fn wanted_of(wanted: QueueState) -> Vec<WantedQueue> {
    let message = |text, is_steering| WantedQueue { text, is_steering, found: None, is_taken: false };
    let QueueState { steering, follow_up } = wanted;
    let steering = steering.into_iter().map(|text| message(text, true));
    steering.chain(follow_up.into_iter().map(|text| message(text, false))).collect()
}

/// Finds each wanted message among those that wait: first in its own half of the queue, then in the other.
fn find_same(wanted: &mut [WantedQueue], available: &mut Vec<UndeliveredInput>, base: &mut Vec<String>) {
    for same_half in [true, false] {
        for message in wanted.iter_mut().filter(|message| message.found.is_none()) {
            let is_it = |kept: &UndeliveredInput| {
                kept.text == message.text && (!same_half || kept.is_steering == message.is_steering)
            };
            if let Some(place) = available.iter().position(is_it) {
                let kept = available.remove(place);
                remove_one(base, &kept.text);
                message.found = Some(kept);
            }
        }
    }
}

/// What is to wait from now on, in the order in which the agent gets it.
fn in_order(
    wanted: Vec<WantedQueue>,
    newer: Vec<UndeliveredInput>,
    user_id: Option<&str>,
) -> Vec<UndeliveredInput> {
    let wanted = wanted.into_iter().filter(|message| !message.is_taken).map(|message| {
        let new = || UndeliveredInput {
            text: message.text.clone(),
            is_steering: message.is_steering,
            client_id: None,
            user_id: user_id.map(str::to_owned),
            image_count: 0,
            images_key: None,
            images: None,
            is_requeued: true,
        };
        UndeliveredInput { is_steering: message.is_steering, ..message.found.clone().unwrap_or_else(new) }
    });
    let mut kept: Vec<UndeliveredInput> = wanted.chain(newer).collect();
    kept.iter_mut().for_each(|kept| kept.is_requeued = true);
    kept.sort_by_key(|kept| !kept.is_steering);
    kept
}
