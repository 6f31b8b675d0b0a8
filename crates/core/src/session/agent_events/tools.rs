//! Tool calls: as the model writes them, and as the agent runs them.

use qd_wire::data::{PartialKind, RunningTool};
use qd_wire::event::{AgentPhase, Event, ToolCall};
use serde_json::Value;

use super::super::Session;
use crate::event_writer::{Delta, EventWriter};

/// Tools one turn may run at once, in our books; more run unseen until they end.
const TOOLS_MAX: usize = 256;

/// A tool that has ended.
pub(super) struct ToolEnd {
    pub(super) tool_call_id: String,
    pub(super) name: String,
    pub(super) output: Value,
    pub(super) is_error: bool,
    pub(super) duration_ms: Option<u64>,
}

impl Session {
    pub(super) fn tool_call_started(
        &mut self,
        now: i64,
        index: u32,
        tool_call_id: String,
        name: String,
        out: &mut EventWriter,
    ) {
        self.streaming(now, AgentPhase::Generating, out);
        if let Some(assembly) = &mut self.assembly {
            assembly.tool_call(index, &tool_call_id, &name);
            let message_id = assembly.message_id.clone();
            self.emit(
                now,
                &Event::ToolCallStart { message_id, tool_call_id, name, content_index: index },
                out,
            );
        }
    }

    pub(super) fn tool_call_delta(&mut self, now: i64, index: u32, delta: &str, out: &mut EventWriter) {
        self.streaming(now, AgentPhase::Generating, out);
        let front = &self.front;
        if let Some(assembly) = &mut self.assembly {
            let offset = assembly.push(index, PartialKind::ToolCall, delta);
            // Empty where the agent has not said it yet: deltas of a tool call always have the field.
            let tool_call_id = Some(assembly.tool_call_id(index).unwrap_or_default());
            let message_id = &assembly.message_id;
            let event = "stream.tool_call_delta";
            out.delta(
                front,
                now,
                Delta { event, message_id, tool_call_id, delta, content_index: index, offset },
            );
        }
    }

    pub(super) fn tool_call_ended(
        &mut self,
        now: i64,
        index: u32,
        tool_call_id: String,
        name: String,
        input: Value,
        out: &mut EventWriter,
    ) {
        if let Some(assembly) = &mut self.assembly {
            assembly.tool_call_end(index, &tool_call_id, &name, &input);
            let message_id = assembly.message_id.clone();
            let tool_call = ToolCall { id: tool_call_id.clone(), name, input };
            let event = Event::ToolCallEnd { message_id, tool_call_id, tool_call, content_index: index };
            self.emit(now, &event, out);
        }
    }

    pub(super) fn tool_started(
        &mut self,
        now: i64,
        tool_call_id: String,
        name: String,
        input: Option<Value>,
        out: &mut EventWriter,
    ) {
        // The bound is on our memory only; the event goes out in any case.
        if self.tools.len() < TOOLS_MAX {
            self.tools.push(RunningTool {
                tool_call_id: tool_call_id.clone(),
                name: name.clone(),
                input: input.clone(),
                partial_output: None,
                started_at: now,
            });
        }
        self.emit(now, &Event::ToolStart { tool_call_id, name, input }, out);
        self.tool_phase(now, out);
    }

    pub(super) fn tool_progress(
        &mut self,
        now: i64,
        tool_call_id: String,
        name: String,
        partial: Value,
        out: &mut EventWriter,
    ) {
        if let Some(tool) = self.tools.iter_mut().find(|tool| tool.tool_call_id == tool_call_id) {
            tool.partial_output = Some(partial.clone());
        }
        self.emit(now, &Event::ToolProgress { tool_call_id, name, partial_output: partial }, out);
    }

    pub(super) fn tool_ended(&mut self, now: i64, end: ToolEnd, out: &mut EventWriter) {
        let position = self.tools.iter().position(|tool| tool.tool_call_id == end.tool_call_id);
        let started_at = position.map(|position| self.tools.remove(position).started_at);
        // Agents that do not measure leave it to us. A clock that was set back gives no duration rather than a wrong
        // one.
        let measured = started_at.and_then(|started_at| u64::try_from(now - started_at).ok());
        let event = Event::ToolEnd {
            tool_call_id: end.tool_call_id,
            name: end.name,
            output: end.output,
            is_error: end.is_error,
            duration_ms: end.duration_ms.or(measured),
        };
        self.emit(now, &event, out);
        self.tool_phase(now, out);
    }

    /// With tools running the phase names them; without it is generating again.
    pub(super) fn tool_phase(&mut self, now: i64, out: &mut EventWriter) {
        // Outside a turn a phase would make an idle session look busy.
        if self.turn.is_none() {
            return;
        }
        match self.tools.as_slice() {
            [] => self.set_phase(now, AgentPhase::Generating, None, out),
            [tool] => {
                let name = tool.name.clone();
                self.set_phase(now, AgentPhase::ToolRunning, Some(name), out);
            }
            several => {
                let names: Vec<&str> = several.iter().map(|tool| tool.name.as_str()).collect();
                let detail = names.join(", ");
                self.set_phase(now, AgentPhase::ToolRunning, Some(detail), out);
            }
        }
    }
}
