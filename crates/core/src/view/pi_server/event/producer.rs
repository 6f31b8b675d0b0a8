//! Makes pi's events from those of another agent, in pi's order.
//!
//! Clients of pi rely on its pairs and its order (`agent_start`, `turn_start`, messages, tools, `turn_end`,
//! `agent_end`, `agent_settled`). Another agent tells less, and a watcher may come in the middle, so starts that were
//! missed are made up and everything open is closed at the end.

use std::collections::{BTreeMap, VecDeque};

use qd_wire::JsonObject;
use qd_wire::data::QueueState;
use qd_wire::message::Role;
use serde_json::{Value, json};

use super::super::answer::message::{of_native, tool_output};
use super::is_automatic;
use super::message_stream::MessageStream;
use crate::agent::{AgentEvent, MessageHead, NativeMessage};

/// `agent_end` repeats the messages of a run; of a longer run it has the newest.
const RUN_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Remembers what pi's events repeat: the run's messages, the turn's answer, the tools that run.
#[derive(Debug, Default)]
pub struct EventProducer {
    /// Between `agent_start` and `agent_end`.
    in_run: bool,
    /// `agent_end` was said and the agent has not settled yet.
    run_ended: bool,
    /// Between `turn_start` and `turn_end`.
    in_turn: bool,
    /// The answer that streams.
    stream: Option<MessageStream>,
    /// The answer of this turn, and what its tools gave.
    turn_answer: Option<Value>,
    turn_results: Vec<Value>,
    /// As JSON text, oldest first.
    run_messages: VecDeque<String>,
    run_bytes: usize,
    /// By the id of the call.
    tools: BTreeMap<String, RunningTool>,
    compaction_reason: String,
    /// Names the next thing an extension wants shown.
    shown: u64,
}

#[derive(Debug, Clone)]
struct RunningTool {
    name: String,
    args: Value,
}

impl EventProducer {
    /// Appends the events that say the same in pi's form, each a JSON object.
    pub fn produce(&mut self, now: i64, event: &AgentEvent, out: &mut Vec<String>) {
        match event {
            AgentEvent::TurnStarted => self.start_run(out),
            AgentEvent::RunEnded { will_retry } => self.end_run(*will_retry, out),
            AgentEvent::TurnSettled { aborted } => self.settle(*aborted, out),
            AgentEvent::MessageStarted(head) => self.message_started(head, out),
            AgentEvent::TextDelta { index, delta } => self.stream(now).text(*index, delta, out),
            AgentEvent::ThinkingDelta { index, delta } => self.stream(now).thinking(*index, delta, out),
            AgentEvent::ToolCallStarted { index, tool_call_id, name } => {
                self.stream(now).call_started(*index, tool_call_id, name, out);
            }
            AgentEvent::ToolCallDelta { index, delta } => self.stream(now).call_delta(*index, delta, out),
            AgentEvent::ToolCallEnded { index, tool_call_id, name, input } => {
                self.stream(now).call_ended(*index, tool_call_id, name, input, out);
            }
            AgentEvent::MessageEnded(message) => self.message_ended(message, out),
            AgentEvent::ToolStarted { tool_call_id, name, input } => {
                self.tool_started(tool_call_id, name, input.as_ref(), out);
            }
            AgentEvent::ToolProgress { tool_call_id, name, partial_output } => {
                self.tool_progress(tool_call_id, name, partial_output, out);
            }
            AgentEvent::ToolEnded { tool_call_id, name, output, is_error, duration_ms } => {
                // An end without a start is passed on all the same: the watcher may have come in between.
                self.tools.remove(tool_call_id);
                tool_ended((tool_call_id, name), output, *is_error, *duration_ms, out);
            }
            AgentEvent::RetryStarted { attempt, max_attempts, delay_ms, error } => push_event(
                out,
                &json!({
                    "type": "auto_retry_start", "attempt": attempt, "maxAttempts": max_attempts,
                    "delayMs": delay_ms, "errorMessage": error,
                }),
            ),
            AgentEvent::RetryEnded { success, attempt, final_error } => {
                let ended = json!({ "type": "auto_retry_end", "success": success, "attempt": attempt });
                push_event(out, &with(ended, "finalError", final_error.as_deref()));
            }
            AgentEvent::CompactionStarted { reason } => self.compaction_started(reason, out),
            AgentEvent::CompactionEnded { .. } => push_event(out, &self.compaction_ended(event)),
            AgentEvent::QueueChanged(QueueState { steering, follow_up }) => {
                push_event(
                    out,
                    &json!({ "type": "queue_update", "steering": steering, "followUp": follow_up }),
                );
            }
            AgentEvent::Notify { level, message } => {
                let notice = json!({ "method": "notify", "message": message, "notifyType": level.as_str() });
                push_event(out, &self.extension_request(notice));
            }
            AgentEvent::Status { key, text } => {
                let status = json!({ "method": "setStatus", "statusKey": key });
                push_event(out, &self.extension_request(with(status, "statusText", text.as_deref())));
            }
            AgentEvent::ThinkingLevelChanged { level } => {
                push_event(out, &json!({ "type": "thinking_level_changed", "level": level }));
            }
            AgentEvent::TitleChanged { title } => {
                push_event(out, &json!({ "type": "session_info_changed", "name": title }));
            }
            AgentEvent::Native(text) => out.push(text.to_string()),
            AgentEvent::Unknown { event, fields } => unknown(event, fields.clone(), out),
            // pi says nothing of these, or another event says the same.
            AgentEvent::StreamDone { .. } | AgentEvent::StreamFailed { .. } => {}
            AgentEvent::InputNeeded(_) | AgentEvent::PhaseHint { .. } | AgentEvent::ModelChanged { .. } => {}
        }
    }

    fn compaction_started(&mut self, reason: &str, out: &mut Vec<String>) {
        reason.clone_into(&mut self.compaction_reason);
        push_event(out, &json!({ "type": compaction_name(reason, "compaction_start"), "reason": reason }));
    }

    fn start_run(&mut self, out: &mut Vec<String>) {
        // Repeated starts inside one run change nothing.
        if !self.in_run {
            self.in_run = true;
            out.push(r#"{"type":"agent_start"}"#.to_owned());
            self.start_turn(out);
        }
    }

    fn start_turn(&mut self, out: &mut Vec<String>) {
        self.in_turn = true;
        out.push(r#"{"type":"turn_start"}"#.to_owned());
    }

    /// An answer, or input after one, begins the next turn of the run.
    fn next_turn(&mut self, out: &mut Vec<String>) {
        if self.in_run && self.turn_answer.is_some() {
            self.end_turn(out);
            self.start_turn(out);
        }
    }

    fn end_turn(&mut self, out: &mut Vec<String>) {
        let results = std::mem::take(&mut self.turn_results);
        let answer = self.turn_answer.take();
        if std::mem::take(&mut self.in_turn) {
            // Clients look into the answer, so a turn that ended before there was one has an empty one.
            let answer = answer.unwrap_or_else(|| cut_off(MessageStream::default().so_far()));
            out.push(json!({ "type": "turn_end", "message": answer, "toolResults": results }).to_string());
        }
    }

    fn end_run(&mut self, will_retry: bool, out: &mut Vec<String>) {
        self.end_turn(out);
        self.in_run = false;
        self.run_ended = true;
        let messages = std::mem::take(&mut self.run_messages);
        self.run_bytes = 0;
        let messages: Vec<String> = messages.into();
        out.push(format!(
            "{{\"type\":\"agent_end\",\"messages\":[{}],\"willRetry\":{will_retry}}}",
            messages.join(",")
        ));
    }

    /// What was cut off is closed first, so that every start has its end.
    fn settle(&mut self, aborted: bool, out: &mut Vec<String>) {
        if let Some(mut stream) = self.stream.take() {
            stream.finish(&[], out);
            let message = cut_off(stream.so_far());
            self.push_message_end(&message, out);
            self.turn_answer = Some(message);
        }
        for (tool_call_id, tool) in std::mem::take(&mut self.tools) {
            tool_ended((&tool_call_id, &tool.name), &Value::from("Operation aborted"), true, None, out);
        }
        // Who came in the middle of a run waits for its end too.
        if self.in_run || !self.run_ended {
            self.end_run(false, out);
        }
        self.run_ended = false;
        out.push(format!("{{\"type\":\"agent_settled\",\"aborted\":{aborted}}}"));
    }

    /// pi's start of a message has the message in it; only an answer begins empty.
    fn message_started(&mut self, head: &MessageHead, out: &mut Vec<String>) {
        if head.role == Role::Assistant {
            self.join_run();
            self.next_turn(out);
            let stream = MessageStream::new(head.created_at);
            out.push(json!({ "type": "message_start", "message": stream.so_far() }).to_string());
            self.stream = Some(stream);
        }
    }

    fn message_ended(&mut self, native: &NativeMessage, out: &mut Vec<String>) {
        let message = of_native(native);
        match native.head.role {
            Role::Assistant => {
                match self.stream.take() {
                    Some(mut stream) => stream.finish(&native.parts, out),
                    None => {
                        self.join_run();
                        self.next_turn(out);
                        out.push(json!({ "type": "message_start", "message": message }).to_string());
                    }
                }
                self.push_message_end(&message, out);
                self.turn_answer = Some(message);
            }
            role @ (Role::User | Role::System | Role::Tool) => {
                // The result of a tool belongs to the turn of the call; input from a person begins the next one.
                if role != Role::Tool {
                    self.next_turn(out);
                }
                out.push(json!({ "type": "message_start", "message": message }).to_string());
                self.push_message_end(&message, out);
                if role == Role::Tool && self.in_turn {
                    self.turn_results.push(message);
                }
            }
        }
    }

    /// The end of a message, which `agent_end` will repeat.
    fn push_message_end(&mut self, message: &Value, out: &mut Vec<String>) {
        let text = message.to_string();
        out.push(format!("{{\"type\":\"message_end\",\"message\":{text}}}"));
        self.run_bytes += text.len();
        self.run_messages.push_back(text);
        // A run can go on for hours; without the bound its end would repeat all of that in one line.
        while self.run_bytes > RUN_BYTES_MAX && self.run_messages.len() > 1 {
            let oldest = self.run_messages.pop_front().unwrap_or_default();
            self.run_bytes -= oldest.len();
        }
    }

    /// An answer without a start of the run: the watcher came in the middle of it.
    fn join_run(&mut self) {
        if !self.in_run {
            self.in_run = true;
            self.in_turn = true;
        }
    }

    /// Deltas may come without a start when a watcher came in the middle.
    fn stream(&mut self, now: i64) -> &mut MessageStream {
        self.join_run();
        self.stream.get_or_insert_with(|| MessageStream::new(now))
    }

    fn tool_started(&mut self, id: &str, name: &str, input: Option<&Value>, out: &mut Vec<String>) {
        let args = input.cloned().unwrap_or_else(|| json!({}));
        let started =
            json!({ "type": "tool_execution_start", "toolCallId": id, "toolName": name, "args": &args });
        out.push(started.to_string());
        self.tools.insert(id.to_owned(), RunningTool { name: name.to_owned(), args });
    }

    fn tool_progress(&mut self, id: &str, name: &str, partial: &Value, out: &mut Vec<String>) {
        let nothing = json!({});
        let args = self.tools.get(id).map_or(&nothing, |tool| &tool.args);
        let update = json!({
            "type": "tool_execution_update", "toolCallId": id, "toolName": name, "args": args,
            "partialResult": tool_output(partial),
        });
        out.push(update.to_string());
    }

    fn compaction_ended(&mut self, event: &AgentEvent) -> Value {
        let AgentEvent::CompactionEnded { success, will_retry, error, summary, tokens_before, .. } = event
        else {
            return Value::Null;
        };
        let reason = std::mem::take(&mut self.compaction_reason);
        let mut ended = json!({
            "type": compaction_name(&reason, "compaction_end"), "reason": reason,
            // pi has an error for what failed and none for what was stopped.
            "aborted": !success && error.is_none(), "willRetry": will_retry,
        });
        if *success {
            ended["result"] = json!({
                "summary": summary.as_deref().unwrap_or_default(), "firstKeptEntryId": "",
                "tokensBefore": tokens_before.unwrap_or(0),
            });
        }
        with(ended, "errorMessage", error.as_deref())
    }

    /// Something an extension wants shown and no answer to.
    fn extension_request(&mut self, mut request: Value) -> Value {
        self.shown += 1;
        request["type"] = Value::from("extension_ui_request");
        request["requestId"] = Value::from(format!("shown-{}", self.shown));
        request
    }
}

fn push_event(out: &mut Vec<String>, event: &Value) {
    out.push(event.to_string());
}

fn tool_ended(
    (tool_call_id, name): (&str, &str),
    output: &Value,
    is_error: bool,
    duration_ms: Option<u64>,
    out: &mut Vec<String>,
) {
    let mut ended = json!({
        "type": "tool_execution_end", "toolCallId": tool_call_id, "toolName": name,
        "result": tool_output(output), "isError": is_error,
    });
    if let Some(duration_ms) = duration_ms {
        ended["durationMs"] = Value::from(duration_ms);
    }
    push_event(out, &ended);
}

fn unknown(event: &str, mut fields: JsonObject, out: &mut Vec<String>) {
    fields.insert("type".to_owned(), Value::from(event));
    push_event(out, &Value::Object(fields));
}

/// An answer that was cut off.
fn cut_off(mut message: Value) -> Value {
    message["stopReason"] = Value::from("aborted");
    message
}

fn with(mut object: Value, field: &str, value: Option<&str>) -> Value {
    if let Some(value) = value {
        object[field] = Value::from(value);
    }
    object
}

fn compaction_name(reason: &str, name: &str) -> String {
    if is_automatic(reason) { format!("auto_{name}") } else { name.to_owned() }
}
