//! Records as the document's events.
//!
//! What a program in a terminal does is recorded in the document's own words, so such a record is passed on as it is:
//! its fields become `data` without being read. What other agents do, and what anybody asks, is put into its words.

use qd_wire::event::Event;
use qd_wire::input::{InputOutcome, InputRequest};
use qd_wire::message::{KnownPart, Message, Part, Role, SenderKind};
use qd_wire::run::{AwaitingReason, Decision, PermissionDetails, PermissionSource};
use qd_wire::run_protocol::{
    AwaitingInputData, ExitedData, InputData, PermissionDecidedData, PermissionRequestedData,
};
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::SessionKind;
use super::record::Record;
use crate::encoding::hex;
use crate::redact::redact;
use crate::time::iso_8601;

/// Characters of the prompt in `run.awaiting_input`.
const PROMPT_CHARS_MAX: usize = 200;

/// Who an agent's own tool calls are from; the document's word for what happens on the host.
const LOCAL: &str = "local";

/// What an app may have without the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    /// `run.output`.
    Output,
    /// `tool.call` and `tool.result`.
    Tool,
    Other,
}

/// One event of the document. Its text is the pieces one after the other.
#[derive(Debug, Clone, Copy)]
pub struct ShownEvent<'a> {
    pub name: &'static str,
    pub pieces: &'a [&'a str],
}

impl ShownEvent<'_> {
    pub fn class(&self) -> EventClass {
        match self.name {
            "run.output" => EventClass::Output,
            "tool.call" | "tool.result" => EventClass::Tool,
            _ => EventClass::Other,
        }
    }
}

/// Whether records with this name may have something to show.
pub fn is_shown(kind: SessionKind, event: &str) -> bool {
    match event {
        "agent.input_needed" | "agent.input_resolved" | "agent.error" => true,
        "stream.message_end" | "tool.start" | "tool.end" | "session.created" | "session.closed"
        | "agent.idle" => kind == SessionKind::Agent,
        event => passed(event).is_some(),
    }
}

/// Shows a record's events one after the other. The first has the record's number; what else there is to say of the
/// same record has none, so that a number never comes twice.
pub fn show(kind: SessionKind, record: &Record<'_>, each: &mut dyn FnMut(ShownEvent<'_>)) {
    if !is_shown(kind, &record.event) {
        return;
    }
    if let Some(name) = passed(&record.event) {
        pass(name, record, each);
        if name == "run.started" {
            let mode = if kind == SessionKind::Terminal { "pty" } else { "structured" };
            write(
                EventName { name: "run.ready", numbered: false },
                record,
                &json!({ "runner_mode": mode }),
                each,
            );
        }
        return;
    }
    if let Some(event) = typed(record) {
        show_typed(kind, record, event, each);
    }
}

/// The document's name of a record that is passed on as it is.
fn passed(event: &str) -> Option<&'static str> {
    Some(match event {
        // The names are spelled out on both sides: what is passed on must be a name of the document, however ours may
        // change.
        "run.output" => "run.output",
        "run.started" => "run.started",
        "run.resized" => "run.resized",
        "run.awaiting_input" => "run.awaiting_input",
        "run.input" => "run.input",
        "run.exited" => "run.exited",
        "tool.call" => "tool.call",
        "tool.result" => "tool.result",
        "session.native_changed" | "session.title_changed" => "run.metadata",
        _ => return None,
    })
}

/// Shows a record whose fields the document has in another form.
fn show_typed(kind: SessionKind, record: &Record<'_>, event: Event, each: &mut dyn FnMut(ShownEvent<'_>)) {
    match event {
        Event::AgentInputNeeded { request } => question(kind, record, &request, each),
        Event::AgentInputResolved { request_id, outcome, user_id, decision, actor, .. } => {
            let decision = decision_word(decision, outcome).to_owned();
            let data = PermissionDecidedData { request_id, decision, actor, by: user_id };
            write(numbered("run.permission_decided"), record, &data, each);
        }
        // The document has no event for an error; its own hosts print it.
        Event::AgentError { error, .. } => {
            write(numbered("run.output"), record, &output("stderr", &error), each);
        }
        Event::SessionCreated { harness, cwd, .. } => created(record, &harness, cwd, each),
        // Apps wait for the end of a run; to them a session that was closed has ended without a failure.
        Event::SessionClosed { .. } => {
            write(numbered("run.exited"), record, &ExitedData { exit_code: 0, signal: None }, each);
        }
        Event::AgentIdle { .. } => {
            let data = AwaitingInputData { reason: AwaitingReason::Prompt, ..AwaitingInputData::default() };
            write(numbered("run.awaiting_input"), record, &data, each);
        }
        Event::MessageEnd { message } => message_ended(record, &message, each),
        Event::ToolStart { tool_call_id, name, input } => {
            let args = input.unwrap_or(Value::Null);
            let data = json!({ "request_id": tool_call_id, "tool": name, "actor": LOCAL, "args": args });
            write(numbered("tool.call"), record, &data, each);
        }
        Event::ToolEnd { tool_call_id, name, output, is_error, duration_ms } => {
            let result = if is_error { Err(output) } else { Ok(output) };
            tool_ended(record, (&tool_call_id, &name), result, duration_ms, each);
        }
        // Shown as they are, or not at all.
        Event::SessionHeartbeat { .. }
        | Event::SessionTitleChanged { .. }
        | Event::SessionBranchChanged { .. }
        | Event::SessionNativeChanged { .. }
        | Event::SessionResync { .. }
        | Event::AgentWorking { .. }
        | Event::MessageStart { .. }
        | Event::TextDelta { .. }
        | Event::ThinkingDelta { .. }
        | Event::ToolCallStart { .. }
        | Event::ToolCallDelta { .. }
        | Event::ToolCallEnd { .. }
        | Event::StreamDone { .. }
        | Event::ToolProgress { .. }
        | Event::RetryStart { .. }
        | Event::RetryEnd { .. }
        | Event::CompactStart { .. }
        | Event::CompactEnd { .. }
        | Event::ModelChanged { .. }
        | Event::ThinkingLevelChanged { .. }
        | Event::QueueChanged { .. }
        | Event::Notify { .. }
        | Event::Status { .. }
        | Event::RunStarted { .. }
        | Event::RunOutput { .. }
        | Event::RunResized { .. }
        | Event::RunAwaitingInput { .. }
        | Event::RunInput { .. }
        | Event::RunExited { .. }
        | Event::ServiceCall { .. }
        | Event::ServiceResult { .. }
        | Event::Messages { .. }
        | Event::Persisted { .. }
        | Event::DelegateStart { .. }
        | Event::DelegateDelta { .. }
        | Event::DelegateEnd { .. }
        | Event::DelegateError { .. }
        | Event::Progress { .. }
        | Event::Response(_) => {}
    }
}

/// An agent that is no program in a terminal has begun.
fn created(record: &Record<'_>, harness: &str, cwd: Option<String>, each: &mut dyn FnMut(ShownEvent<'_>)) {
    let cwd = cwd.unwrap_or_default();
    let data = json!({ "tool": harness, "cwd": cwd, "command": harness });
    write(numbered("run.started"), record, &data, each);
    let data = json!({ "runner_mode": "structured" });
    write(EventName { name: "run.ready", numbered: false }, record, &data, each);
}

fn tool_ended(
    record: &Record<'_>,
    (tool_call_id, name): (&str, &str),
    result: Result<Value, Value>,
    duration_ms: Option<u64>,
    each: &mut dyn FnMut(ShownEvent<'_>),
) {
    let mut data = json!({
        "request_id": tool_call_id, "tool": name, "actor": LOCAL, "ok": result.is_ok(),
        "duration_ms": duration_ms.unwrap_or(0),
    });
    match result {
        Ok(output) => data["result"] = output,
        Err(Value::String(error)) => data["error"] = error.into(),
        Err(output) => data["error"] = output.to_string().into(),
    }
    write(numbered("tool.result"), record, &data, each);
}

fn message_ended(record: &Record<'_>, message: &Message, each: &mut dyn FnMut(ShownEvent<'_>)) {
    let text = message_text(message);
    // A message of tool calls or pictures alone is nothing that a terminal would show.
    if text.is_empty() {
        return;
    }
    match message.role {
        Role::Assistant => write(numbered("run.output"), record, &output("stdout", &text), each),
        Role::User => write(numbered("run.input"), record, &input(message, &text), each),
        Role::System | Role::Tool => {}
    }
}

/// The text of a message without what the agent thought, and with the end of its last line.
fn message_text(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        if let Part::Known(KnownPart::Text { text: part, .. }) = part {
            text.push_str(part);
            text.push('\n');
        }
    }
    text
}

/// What somebody said to the agent, under the name that its sender gave it.
fn input(message: &Message, text: &str) -> InputData {
    let is_program = message.sender.as_ref().is_some_and(|sender| sender.kind != SenderKind::User);
    let text_redacted = redact(text).into_owned();
    InputData {
        actor: if is_program { "system" } else { "web" }.to_owned(),
        input_id: message.client_id.clone().unwrap_or_else(|| message.id.clone()),
        // Of what is shown, so that nothing can be guessed that is not.
        text_sha256: hex(&Sha256::digest(text_redacted.as_bytes())),
        text_redacted,
    }
}

/// A whole line of output.
fn output(stream: &str, text: &str) -> Value {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    json!({ "stream": stream, "text": format!("{text}{end}") })
}

/// What somebody is asked. A program in a terminal says itself that it waits; who calls a service waits for its own
/// answer.
fn question(
    kind: SessionKind,
    record: &Record<'_>,
    request: &InputRequest,
    each: &mut dyn FnMut(ShownEvent<'_>),
) {
    let (data, source) = requested(request);
    // A text is typed, not approved: there is nothing to decide in a line of its own.
    let is_typed = kind == SessionKind::Terminal && matches!(request, InputRequest::Input { .. });
    if !is_typed {
        write(numbered("run.permission_requested"), record, &data, each);
    }
    if kind == SessionKind::Agent && source == PermissionSource::Agent {
        let prompt = Some(data.prompt.chars().take(PROMPT_CHARS_MAX).collect());
        let (reason, request_id) = (data.reason, Some(data.request_id));
        let waits = AwaitingInputData { reason, prompt, request_id };
        write(EventName { name: "run.awaiting_input", numbered: false }, record, &waits, each);
    }
}

/// A question in the document's words, and who asks. Nothing is left out: it is for the person who decides.
pub fn requested(request: &InputRequest) -> (PermissionRequestedData, PermissionSource) {
    let mut data = PermissionRequestedData {
        request_id: request.request_id().to_owned(),
        prompt: request.title().to_owned(),
        ..PermissionRequestedData::default()
    };
    let add = |prompt: &mut String, more: &str| {
        if !more.is_empty() && !prompt.contains(more) {
            prompt.push_str(if prompt.is_empty() { "" } else { "\n" });
            prompt.push_str(more);
        }
    };
    let (reason, is_plain) = match request {
        InputRequest::Permission { description, metadata, .. } => {
            add(&mut data.prompt, description.as_deref().unwrap_or_default());
            return permission(data, metadata.as_ref());
        }
        InputRequest::Confirm { message, .. } => {
            add(&mut data.prompt, message);
            (AwaitingReason::Permission, true)
        }
        InputRequest::Select { .. } => (AwaitingReason::Choice, false),
        InputRequest::Input { .. } | InputRequest::Editor { .. } | InputRequest::Interview { .. } => {
            (AwaitingReason::Prompt, false)
        }
    };
    data.reason = reason;
    data.questions = (!is_plain).then(|| json!([request]));
    (data, PermissionSource::Agent)
}

/// The arguments under the names that the document's clients know.
fn in_document_words(tool: Option<&str>, mut arguments: Value) -> Value {
    if tool == Some("bash")
        && let Some(object) = arguments.as_object_mut()
        && let Some(command) = object.remove("command")
    {
        object.insert("cmd".to_owned(), command);
    }
    arguments
}

fn permission(
    mut data: PermissionRequestedData,
    metadata: Option<&Value>,
) -> (PermissionRequestedData, PermissionSource) {
    data.reason = AwaitingReason::Permission;
    // Agents put what they like into the metadata; only a gate or a screen of ours says where it is from.
    let is_ours = metadata.is_some_and(|metadata| metadata.get("source").is_some());
    let details = metadata
        .filter(|_| is_ours)
        .and_then(|metadata| serde_json::from_value::<PermissionDetails>(metadata.clone()).ok());
    let Some(details) = details else {
        // What an agent says of its own wish, in its own words.
        let name = |key: &str| metadata?.get(key)?.as_str().map(str::to_owned);
        data.op_tool = name("tool_name").or_else(|| name("tool")).or_else(|| name("name"));
        data.op_args = metadata.cloned();
        return (data, PermissionSource::Agent);
    };
    if details.reason != AwaitingReason::Unknown {
        data.reason = details.reason;
    }
    data.op_tool = details.op_tool;
    data.op_args = details.op_args.map(|arguments| in_document_words(data.op_tool.as_deref(), arguments));
    data.op_args_summary = details.op_args_summary;
    data.approve_text = details.approve_text.unwrap_or_default();
    data.deny_text = details.deny_text.unwrap_or_default();
    data.questions = (!details.choices.is_empty()).then(|| json!([{ "choices": details.choices }]));
    (data, details.source)
}

/// How a question ended, in one word.
fn decision_word(decision: Option<Decision>, outcome: Option<InputOutcome>) -> &'static str {
    match (decision, outcome) {
        (Some(decision), _) => decision.as_str(),
        (None, Some(outcome)) => outcome.as_str(),
        (None, None) => InputOutcome::Answered.as_str(),
    }
}

fn typed(record: &Record<'_>) -> Option<Event> {
    let event = Value::from(&*record.event);
    let comma = if &*record.rest == "}" { "" } else { "," };
    serde_json::from_str(&format!("{{\"event\":{event}{comma}{}", record.rest)).ok()
}

/// An event with its name, and whether it has the record's number.
struct EventName {
    name: &'static str,
    numbered: bool,
}

fn numbered(name: &'static str) -> EventName {
    EventName { name, numbered: true }
}

fn pass(name: &'static str, record: &Record<'_>, each: &mut dyn FnMut(ShownEvent<'_>)) {
    let head = head(&numbered(name), record);
    each(ShownEvent { name, pieces: &[&head, "{", &record.rest, "}"] });
}

fn write(named: EventName, record: &Record<'_>, data: &impl Serialize, each: &mut dyn FnMut(ShownEvent<'_>)) {
    let head = head(&named, record);
    // These types have no maps with odd keys, so writing them cannot fail.
    let data = serde_json::to_string(data).unwrap_or_default();
    each(ShownEvent { name: named.name, pieces: &[&head, &data, "}"] });
}

/// Everything up to the value of `data`.
fn head(named: &EventName, record: &Record<'_>) -> String {
    let EventName { name, numbered } = *named;
    let (host_id, run_id, ts) = (&record.runner_id, &record.session_id, iso_8601(record.ts));
    let mut head =
        format!("{{\"type\":\"{name}\",\"ts\":\"{ts}\",\"host_id\":{host_id},\"run_id\":{run_id},");
    // What is no record has no number.
    if numbered && record.seq > 0 {
        head.push_str(&format!("\"seq\":{},", record.seq));
    }
    head.push_str("\"data\":");
    head
}
