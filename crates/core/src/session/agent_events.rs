//! The transitions: one agent event in, canonical events out.
//!
//! Agents are not trusted to be consistent: a message gets the start or the end that the agent left out, and tools
//! that run when a turn ends are ended, because clients and views build on pairs.

mod tools;

use qd_wire::ErrorCode;
use qd_wire::data::{MessageVersion, ModelRef, PartialKind, QueueState, SessionStatus};
use qd_wire::event::{AgentPhase, Event, EventPayload, OtherEvent};
use qd_wire::message::{Role, StopReason};
use serde_json::json;

use tools::ToolEnd;

use super::event_form::ConversationChange;
use super::turn::agent_error;
use super::{MessageAssembly, Session, Turn};
use crate::agent::{AgentEvent, MessageHead, NativeMessage};
use crate::event_writer::{Delta, EventWriter};

/// Status texts kept for clients that attach later.
const STATUS_TEXTS_MAX: usize = 256;

impl Session {
    /// Takes one event of the agent.
    pub fn agent_event(&mut self, now: i64, event: AgentEvent, out: &mut EventWriter) {
        // Before what it means, so that a watcher of both forms sees them in this order.
        if self.is_watched() {
            self.show_native(now, &event, out);
        }
        match event {
            AgentEvent::TextDelta { index, delta } => {
                self.text_delta(now, PartialKind::Text, index, &delta, out)
            }
            AgentEvent::ThinkingDelta { index, delta } => {
                self.text_delta(now, PartialKind::Thinking, index, &delta, out);
            }
            AgentEvent::ToolCallDelta { index, delta } => self.tool_call_delta(now, index, &delta, out),
            AgentEvent::TurnStarted => self.turn_started(now, out),
            // Not the end of the turn: the agent may retry or read its queue. `TurnSettled` is.
            AgentEvent::RunEnded { will_retry: _ } => {}
            AgentEvent::TurnSettled { aborted } => self.turn_settled(now, aborted, out),
            AgentEvent::MessageStarted(head) => self.message_started(now, head, out),
            AgentEvent::ToolCallStarted { index, tool_call_id, name } => {
                self.tool_call_started(now, index, tool_call_id, name, out);
            }
            AgentEvent::ToolCallEnded { index, tool_call_id, name, input } => {
                self.tool_call_ended(now, index, tool_call_id, name, input, out);
            }
            AgentEvent::StreamDone { reason } => self.emit(now, &Event::StreamDone { reason }, out),
            AgentEvent::StreamFailed { error, recoverable } => {
                let phase = self.phase;
                self.emit(
                    now,
                    &Event::AgentError { error, recoverable, phase, code: Some(ErrorCode::AgentFailed) },
                    out,
                );
            }
            AgentEvent::MessageEnded(message) => self.message_ended(now, message, out),
            AgentEvent::ToolStarted { tool_call_id, name, input } => {
                self.tool_started(now, tool_call_id, name, input, out);
            }
            AgentEvent::ToolProgress { tool_call_id, name, partial_output } => {
                self.tool_progress(now, tool_call_id, name, partial_output, out);
            }
            AgentEvent::ToolEnded { tool_call_id, name, output, is_error, duration_ms } => {
                self.tool_ended(now, ToolEnd { tool_call_id, name, output, is_error, duration_ms }, out);
            }
            AgentEvent::RetryStarted { attempt, max_attempts, delay_ms, error } => {
                self.retrying(now, &Event::RetryStart { attempt, max_attempts, delay_ms, error }, true, out);
            }
            AgentEvent::RetryEnded { success, attempt, final_error } => {
                self.retrying(now, &Event::RetryEnd { success, attempt, final_error }, false, out);
            }
            AgentEvent::CompactionStarted { reason } => self.compaction_started(now, reason, out),
            AgentEvent::CompactionEnded { success, will_retry, error, summary, tokens_before, .. } => {
                let end = Event::CompactEnd { success, will_retry, error, summary, tokens_before };
                self.compaction_ended(now, &end, success, out);
            }
            AgentEvent::QueueChanged(queue) => self.queue_changed(now, queue, out),
            AgentEvent::InputNeeded(request) => self.ask(now, request, out),
            AgentEvent::Notify { level, message } => self.emit(now, &Event::Notify { level, message }, out),
            AgentEvent::Status { key, text } => self.status_text(now, key, text, out),
            AgentEvent::PhaseHint { phase, detail } => self.phase_hint(now, phase, detail, out),
            AgentEvent::ModelChanged { provider, model_id } => {
                self.model_changed(now, ModelRef { provider, model_id }, out);
            }
            AgentEvent::ThinkingLevelChanged { level } => self.thinking_level_changed(now, level, out),
            AgentEvent::TitleChanged { title } => self.title_changed(now, title, out),
            AgentEvent::Unknown { event, fields } => {
                self.unknown_events += 1;
                self.emit_payload(now, &EventPayload::Other(OtherEvent { event, rest: fields }), out);
            }
            AgentEvent::Native(_) => {}
        }
    }

    /// The agent tries again after a failure, or has done so.
    fn retrying(&mut self, now: i64, event: &Event, is_start: bool, out: &mut EventWriter) {
        self.emit(now, event, out);
        // Outside a turn a phase would make an idle session look busy.
        if is_start && self.turn.is_some() {
            self.set_phase(now, AgentPhase::Retrying, None, out);
        }
        if !is_start && self.phase == Some(AgentPhase::Retrying) {
            self.set_phase(now, AgentPhase::Generating, None, out);
        }
    }

    /// Whether a person asked to stop the turn that runs.
    pub fn is_abort_requested(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.abort_requested)
    }

    /// A person asked to stop the turn; its outcome is then `aborted` whatever the agent calls it.
    pub fn abort_requested(&mut self) {
        if let Some(turn) = &mut self.turn {
            turn.abort_requested = true;
        }
    }

    fn turn_started(&mut self, now: i64, out: &mut EventWriter) {
        if self.turn.is_none() {
            self.turn = Some(Turn::default());
            self.turns += 1;
            // Agents read their queue in any turn.
            self.memory.waits_for_prompt = false;
        }
        self.set_phase(now, AgentPhase::Generating, None, out);
    }

    fn turn_settled(&mut self, now: i64, aborted: bool, out: &mut EventWriter) {
        // Messages first: whoever hears `agent.idle` must find the conversation complete.
        self.close_open_work(now, "The turn ended before the tool did", out);
        // Whatever the agent accepted for this turn it has read by now: there is no later sign of it.
        self.accepted_are_read(now, out);
        let turn = self.turn.take().unwrap_or_default();
        let reason = turn.outcome(aborted);
        // Whoever stops an agent does not want it to begin again by itself with what waits.
        if reason == StopReason::Aborted {
            self.requeued_waits();
        }
        if reason == StopReason::Error {
            let error = turn.last_error.unwrap_or_else(|| "The model failed without saying why".to_owned());
            self.emit(now, &agent_error(ErrorCode::AgentFailed, error, true), out);
        }
        self.go_idle(now, Some(reason), out);
    }

    /// Ends what cannot go on: a message as aborted, tools as failed. Questions stay open, because a command of
    /// an extension may ask outside any turn.
    pub(super) fn close_open_work(&mut self, now: i64, why: &str, out: &mut EventWriter) {
        self.close_assembly(now, out);
        for tool in std::mem::take(&mut self.tools) {
            let event = Event::ToolEnd {
                tool_call_id: tool.tool_call_id,
                name: tool.name,
                output: json!({ "error": why }),
                is_error: true,
                duration_ms: u64::try_from(now - tool.started_at).ok(),
            };
            self.emit(now, &event, out);
        }
    }

    pub(super) fn go_idle(&mut self, now: i64, reason: Option<StopReason>, out: &mut EventWriter) {
        self.status = SessionStatus::Idle;
        self.note_what_waits();
        self.phase = None;
        self.detail = None;
        self.emit_idle(now, reason, out);
    }

    /// The version is the `seq` of this very record, so that a client can tell whether it has everything before it.
    pub(super) fn emit_idle(&mut self, now: i64, reason: Option<StopReason>, out: &mut EventWriter) {
        let message_version = Some(MessageVersion {
            version: self.memory.last_seq + 1,
            message_count: Some(self.memory.next_idx),
        });
        self.emit(now, &Event::AgentIdle { reason, message_version }, out);
    }

    fn close_assembly(&mut self, now: i64, out: &mut EventWriter) {
        if let Some(assembly) = self.assembly.take() {
            let message = assembly.close_as_aborted();
            if message.role == Role::User
                && message.parts.is_empty()
                && self.show_begun(now, &message.id, out)
            {
                return;
            }
            let is_answer = message.role == Role::Assistant;
            self.append_message(now, message, out);
            if is_answer {
                self.emit(now, &Event::StreamDone { reason: StopReason::Aborted }, out);
            }
        }
    }

    fn message_started(&mut self, now: i64, head: MessageHead, out: &mut EventWriter) {
        // A start while another message is open means its end was lost.
        self.close_assembly(now, out);
        // An answer outside any turn means its start was lost, or the agent settled too early.
        if head.role == Role::Assistant && self.turn.is_none() {
            self.turn_started(now, out);
        }
        let message_id = self.ids.mint(head.role, head.created_at);
        let role = head.role.as_str().to_owned();
        self.emit(now, &Event::MessageStart { message_id: message_id.clone(), role }, out);
        self.assembly = Some(MessageAssembly::new(message_id, head));
    }

    fn message_ended(&mut self, now: i64, native: NativeMessage, out: &mut EventWriter) {
        // An end that fits no start means that the start was lost. It is made up, so that clients see both.
        let same = |assembly: &MessageAssembly| {
            assembly.head.role == native.head.role && assembly.head.created_at == native.head.created_at
        };
        if !self.assembly.as_ref().is_some_and(same) {
            self.message_started(now, native.head.clone(), out);
        }
        let Some(assembly) = self.assembly.take() else { return };
        if native.head.role == Role::Assistant
            && let Some(turn) = &mut self.turn
        {
            turn.last_stop = native.stop_reason;
            turn.last_error.clone_from(&native.error);
        }
        let mut message = Self::canonical(assembly.message_id, native);
        let is_input = message.role == Role::User;
        if is_input {
            self.read_before_move(&message);
            self.recognise_prompt(&mut message);
            self.reads.read(now, &message);
        }
        self.append_message(now, message, out);
        if is_input {
            self.tell_queue(now, out);
        }
    }

    fn text_delta(&mut self, now: i64, kind: PartialKind, index: u32, delta: &str, out: &mut EventWriter) {
        let (event, phase) = match kind {
            PartialKind::Thinking => ("stream.thinking_delta", AgentPhase::Thinking),
            PartialKind::Text | PartialKind::ToolCall => ("stream.text_delta", AgentPhase::Generating),
        };
        self.streaming(now, phase, out);
        let front = &self.front;
        if let Some(assembly) = &mut self.assembly {
            let offset = assembly.push(index, kind, delta);
            let message_id = &assembly.message_id;
            out.delta(
                front,
                now,
                Delta { event, message_id, tool_call_id: None, delta, content_index: index, offset },
            );
        }
    }

    fn compaction_started(&mut self, now: i64, reason: String, out: &mut EventWriter) {
        self.compacting_alone = self.turn.is_none();
        self.emit(now, &Event::CompactStart { reason }, out);
        self.set_phase(now, AgentPhase::Compacting, None, out);
    }

    fn compaction_ended(&mut self, now: i64, end: &Event, success: bool, out: &mut EventWriter) {
        self.emit(now, end, out);
        if std::mem::take(&mut self.compacting_alone) && self.turn.is_none() {
            self.go_idle(now, None, out);
        } else if self.turn.is_some() {
            self.set_phase(now, AgentPhase::Generating, None, out);
        }
        // Last: views read the conversation anew on this, and must find the end of the compaction before it.
        if success {
            self.show_conversation_change(now, ConversationChange::Compacted, out);
        }
    }

    pub(super) fn queue_changed(&mut self, now: i64, queue: QueueState, out: &mut EventWriter) {
        // While the queue is being changed by a person, what the agent reports of it is a half-way state.
        if let Some(emptying) = &mut self.emptying {
            emptying.last = Some(queue);
            return;
        }
        if self.memory.queue != queue {
            // An agent names what waits by its text only. What is missing from the new list was read, or was taken
            // back.
            let left = self.reads.left(now, &self.memory.queue, &queue);
            self.name_expanded(&queue);
            self.left_queue(now, left);
            self.memory.queue = queue;
            self.kept_is_queued();
            self.accepted_are_queued();
            self.note_what_waits();
            self.emit_queue(now, out);
        }
    }

    pub(super) fn status_text(&mut self, now: i64, key: String, text: Option<String>, out: &mut EventWriter) {
        match &text {
            None => drop(self.status_texts.remove(&key)),
            Some(text)
                if self.status_texts.len() < STATUS_TEXTS_MAX || self.status_texts.contains_key(&key) =>
            {
                self.status_texts.insert(key.clone(), text.clone());
            }
            // Shown live, but not kept for those who come later.
            Some(_) => {}
        }
        self.emit(now, &Event::Status { key, text }, out);
    }

    /// The bridge refines the phase within a turn; it never starts or ends one. Tools are counted natively,
    /// so a hint cannot end a tool's phase early.
    fn phase_hint(
        &mut self,
        now: i64,
        phase: Option<AgentPhase>,
        detail: Option<String>,
        out: &mut EventWriter,
    ) {
        if self.turn.is_some() && self.tools.is_empty() && self.assembly.is_none() {
            self.set_phase(now, phase.unwrap_or(AgentPhase::Generating), detail, out);
        }
    }

    /// The model changed, as far as anyone can tell; told only when it is news.
    pub fn model_changed(&mut self, now: i64, model: ModelRef, out: &mut EventWriter) {
        if self.memory.model.as_ref() != Some(&model) {
            self.memory.model = Some(model.clone());
            // What the agent said of the last one; it is asked again.
            self.memory.native_model = None;
            let event = Event::ModelChanged { provider: model.provider, model_id: model.model_id };
            self.emit(now, &event, out);
        }
    }

    pub fn thinking_level_changed(&mut self, now: i64, level: String, out: &mut EventWriter) {
        if self.memory.thinking_level.as_ref() != Some(&level) {
            self.memory.thinking_level = Some(level.clone());
            self.emit(now, &Event::ThinkingLevelChanged { level }, out);
        }
    }

    /// Something else is checked out where the session works; told only when it is news.
    pub fn branch_changed(&mut self, now: i64, branch: Option<String>, out: &mut EventWriter) {
        if self.memory.branch != branch {
            self.memory.branch.clone_from(&branch);
            self.emit(now, &Event::SessionBranchChanged { branch }, out);
        }
    }

    pub fn title_changed(&mut self, now: i64, title: String, out: &mut EventWriter) {
        if self.memory.title.as_ref() != Some(&title) {
            self.memory.title = Some(title.clone());
            self.emit(now, &Event::SessionTitleChanged { title }, out);
        }
    }

    /// A delta proves what the model does; while tools run the tools are what matters.
    pub(super) fn streaming(&mut self, now: i64, phase: AgentPhase, out: &mut EventWriter) {
        if self.turn.is_some() && self.phase != Some(phase) && self.tools.is_empty() {
            self.set_phase(now, phase, None, out);
        }
    }

    pub(super) fn set_phase(
        &mut self,
        now: i64,
        phase: AgentPhase,
        detail: Option<String>,
        out: &mut EventWriter,
    ) {
        let working = self.status == SessionStatus::Working;
        if working && self.phase == Some(phase) && self.detail == detail {
            return;
        }
        self.status = SessionStatus::Working;
        self.phase = Some(phase);
        self.detail.clone_from(&detail);
        self.emit(now, &Event::AgentWorking { phase, detail }, out);
    }
}
