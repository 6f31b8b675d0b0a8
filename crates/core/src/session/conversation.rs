//! Whole conversations: replaced by new, switch and fork; completed from the agent's own file.
//!
//! The agent's file is the authority on what was said, and our ids must come out the same whether a message was seen
//! live or read from the file. So ids are made from role and time, in the order of the file.

use std::collections::HashSet;

use qd_wire::JsonObject;
use qd_wire::event::Event;
use qd_wire::message::{Message, Role, Sender, SenderKind};
use serde_json::Value;

use super::accepted_prompts::is_queued;
use super::event_form::ConversationChange;
use super::{ExpectedPrompt, MessageIndexChange, Session, UndeliveredInput};
use crate::agent::NativeMessage;
use crate::event_writer::EventWriter;
use crate::ids::MessageIds;

impl Session {
    /// The agent moved to another conversation; `messages` is all of it.
    pub fn replace_conversation(
        &mut self,
        now: i64,
        native_session_id: String,
        native_session_file: Option<String>,
        messages: Vec<NativeMessage>,
        out: &mut EventWriter,
    ) {
        self.memory.native_session_id = Some(native_session_id.clone());
        self.memory.native_session_file.clone_from(&native_session_file);
        self.memory.is_native_file_written = false;
        self.emit(now, &Event::SessionNativeChanged { native_session_id, native_session_file }, out);
        self.ids = MessageIds::default();
        self.memory.next_idx = 0;
        self.index_changes.push(MessageIndexChange::Clear);
        let mut list = Vec::with_capacity(messages.len());
        for native in messages {
            let id = self.ids.mint(native.head.role, native.head.created_at);
            let mut message = Self::canonical(id, native);
            message.idx = self.memory.next_idx;
            self.memory.next_idx += 1;
            self.index_changes
                .push(MessageIndexChange::Add { idx: message.idx, message_id: message.id.clone() });
            list.push(message);
        }
        self.emit(now, &Event::Messages { messages: list }, out);
        self.show_conversation_change(now, ConversationChange::Replaced, out);
    }

    /// Adds what the agent's own file has and we do not: written by another program, or just before a crash.
    /// `conversation` is all of the file, so that ids come out as they did when the messages were live.
    pub fn complete_conversation(
        &mut self,
        now: i64,
        conversation: Vec<NativeMessage>,
        known: &HashSet<String>,
        out: &mut EventWriter,
    ) -> usize {
        // An agent that keeps no file goes on where it was: its next message may be of the same millisecond.
        if !conversation.is_empty() {
            self.ids = MessageIds::default();
        }
        let mut added = 0;
        for native in conversation {
            let id = self.ids.mint(native.head.role, native.head.created_at);
            if known.contains(&id) {
                continue;
            }
            // It had begun to show, and here is all of it.
            self.assembly.take_if(|assembly| assembly.message_id == id);
            let mut message = Self::canonical(id, native);
            if message.role == Role::User {
                self.recognise_read(now, &mut message, out);
            }
            self.append_message(now, message, out);
            added += 1;
        }
        if added > 0 {
            self.show_conversation_change(now, ConversationChange::Added, out);
        }
        added
    }

    /// Messages that came into the conversation without an event. One that streams now is not disturbed.
    pub fn add_messages(&mut self, now: i64, messages: Vec<NativeMessage>, out: &mut EventWriter) {
        if messages.is_empty() {
            return;
        }
        for native in messages {
            let id = self.ids.mint(native.head.role, native.head.created_at);
            self.append_message(now, Self::canonical(id, native), out);
        }
        self.show_conversation_change(now, ConversationChange::Added, out);
    }

    /// A message with its id; the position is given when it is appended.
    pub(super) fn canonical(id: String, native: NativeMessage) -> Message {
        let mut metadata = native.metadata;
        if let Some(error) = native.error {
            metadata.get_or_insert_with(JsonObject::new).insert("error".into(), Value::String(error));
        }
        Message {
            id,
            idx: 0,
            role: native.head.role,
            parts: native.parts,
            created_at: native.head.created_at,
            model: native.model,
            provider: native.provider,
            stop_reason: native.stop_reason,
            usage: native.usage,
            tool_call_id: native.head.tool_call_id,
            tool_name: native.tool_name,
            is_error: native.is_error,
            client_id: None,
            sender: None,
            interrupted: None,
            metadata,
        }
    }

    /// A user message that came by one of our prompts carries the client's own id and the sender.
    pub(super) fn recognise_prompt(&mut self, message: &mut Message) {
        let text = message.flattened_text();
        let by_text = self.expected_prompts.iter().position(|prompt| prompt.text == text);
        if by_text.is_none() && self.recognise_requeued(&text, message) {
            if is_queued(&self.memory.queue, &text) {
                self.reads.shown_early(text);
            }
            return;
        }
        if by_text.is_none() && self.recognise_accepted(&text, message) {
            return;
        }
        // What waits in the queue under this very text was not made from another.
        let expanded = || self.expanded_prompt().filter(|_| !is_queued(&self.memory.queue, &text));
        let place = by_text.or_else(expanded);
        let prompt = place.and_then(|place| self.expected_prompts.remove(place));
        let token = prompt.as_ref().map(|prompt| prompt.token);
        let was_accepted = self.memory.accepted.iter().any(|accepted| Some(accepted.token) == token);
        if !was_accepted && is_queued(&self.memory.queue, &text) {
            self.reads.shown_early(text);
        }
        let Some(prompt) = prompt else {
            if let Some(turn) = &mut self.turn {
                turn.foreign_inputs += 1;
            }
            return;
        };
        self.memory.accepted.retain(|accepted| accepted.token != prompt.token);
        self.images.forget(prompt.token);
        if self.delivering_token == Some(prompt.token) {
            self.kept_is_read_next();
        }
        message.client_id = prompt.client_id;
        message.sender = prompt.user_id.map(sent_by);
    }

    /// The oldest prompt that the agent may have made something else of: templates and skills begin with a slash.
    pub(super) fn expanded_prompt(&self) -> Option<usize> {
        let is_it = |prompt: &ExpectedPrompt| {
            prompt.text.starts_with('/') && !is_queued(&self.memory.queue, &prompt.text)
        };
        self.expected_prompts.iter().position(is_it)
    }

    /// A message of the agent's own file: what an earlier look at the agent has not shown may be in it.
    fn recognise_read(&mut self, now: i64, message: &mut Message, out: &mut EventWriter) {
        let text = message.flattened_text();
        match self.input_was_read(now, &text, out) {
            Some(input) => {
                message.client_id = input.client_id;
                message.sender = input.user_id.map(sent_by);
            }
            None => self.recognise_prompt(message),
        }
    }

    /// It was taken from the agent's queue, and nobody knows by which command it came there.
    fn recognise_accepted(&mut self, text: &str, message: &mut Message) -> bool {
        let Some(input) = self.accepted_was_read(text) else { return false };
        message.client_id = input.client_id;
        message.sender = input.user_id.map(sent_by);
        true
    }

    /// The agent had begun to read what it then gave back: it is not to get it again.
    fn recognise_requeued(&mut self, text: &str, message: &mut Message) -> bool {
        let is_it = |kept: &UndeliveredInput| kept.is_requeued && kept.text == text;
        let Some(position) = self.memory.kept.iter().position(is_it) else { return false };
        let kept = self.memory.kept.remove(position);
        self.is_queue_untold = true;
        message.client_id = kept.client_id;
        message.sender = kept.user_id.map(sent_by);
        true
    }
}

pub(super) fn sent_by(id: String) -> Sender {
    Sender { kind: SenderKind::User, id, name: None, runner_id: None, session_id: None }
}
