//! What the demo agent can do, step by step.
//!
//! A script is compiled into events and pauses, so that the machine only has to give out what is due.
//! A new script is a row of `SCRIPTS`.

use std::collections::VecDeque;

use qd_wire::InputRequest;
use qd_wire::message::{KnownPart, Part, Role, StopReason, ToolStatus, Usage};
use serde_json::{Value, json};

use crate::agent::{AgentEvent, MessageHead, NativeMessage};

/// Deltas `/long` gives at most.
pub const LONG_MAX: u64 = 1_000_000;
const LONG_DEFAULT: u64 = 500;

/// Message times one script may use.
pub(super) const TIMES_PER_SCRIPT: i64 = 8;

/// The pace of a fast typist, so that streaming can be seen.
const WORD_MS: i64 = 12;

/// How long `/late` takes to show that it was read: real agents take such a moment when the machine is busy.
const LATE_MS: i64 = 300;
const LATE_MS_MAX: i64 = 60_000;

pub(super) struct Script {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    compile: fn(&mut VecDeque<Step>, i64, &str),
}

/// The one list of scripts.
pub(super) const SCRIPTS: &[Script] = &[
    Script { name: "text", description: "a short answer", compile: text },
    Script { name: "thinking", description: "thinking, then an answer", compile: thinking },
    Script { name: "tools", description: "two tools at once, with progress", compile: tools },
    Script { name: "question", description: "a question that waits for you", compile: question },
    Script { name: "error", description: "an answer that fails", compile: error },
    Script {
        name: "late",
        description: "a prompt that is read later than accepted: /late MS",
        compile: text,
    },
    Script { name: "long", description: "a long stream: /long N gives N pieces", compile: long },
];

#[derive(Debug)]
pub(super) enum Step {
    Event(Box<AgentEvent>),
    Pause {
        ms: i64,
    },
    /// Pieces `next..count` of a long answer.
    Long {
        next: u64,
        count: u64,
    },
}

impl Step {
    pub(super) fn event(event: AgentEvent) -> Step {
        Step::Event(Box::new(event))
    }
}

/// The steps of one prompt: the user's message, then what its first word asks for.
pub(super) fn compile(steps: &mut VecDeque<Step>, time: i64, message: &str) {
    let head = MessageHead { role: Role::User, created_at: time, tool_call_id: None };
    let mut user = NativeMessage::new(head.clone(), vec![text_part(0, message)]);
    user.stop_reason = None;
    let (word, rest) = message.trim().split_once(char::is_whitespace).unwrap_or((message.trim(), ""));
    if word == "/late" {
        let wanted = rest.split_whitespace().next().and_then(|ms| ms.parse().ok());
        steps.push_back(Step::Pause { ms: wanted.unwrap_or(LATE_MS).clamp(0, LATE_MS_MAX) });
    }
    steps.push_back(Step::event(AgentEvent::MessageStarted(head)));
    steps.push_back(Step::event(AgentEvent::MessageEnded(user)));
    let script = word.strip_prefix('/').and_then(|name| SCRIPTS.iter().find(|script| script.name == name));
    match script {
        Some(script) => (script.compile)(steps, time + 1, rest.trim()),
        None => friendly(steps, time + 1),
    }
}

/// A whole answer of plain text.
pub(super) fn say(steps: &mut VecDeque<Step>, time: i64, text: &str) {
    let mut answer = Answering::start(steps, time);
    answer.text(text);
    answer.end(StopReason::Stop, None);
}

/// Piece number `number` of a long answer.
pub(super) fn long_delta(number: u64) -> AgentEvent {
    AgentEvent::TextDelta { index: 0, delta: long_piece(number) }
}

fn long_piece(number: u64) -> String {
    format!("word{number} ")
}

fn friendly(steps: &mut VecDeque<Step>, time: i64) {
    let names: Vec<String> = SCRIPTS.iter().map(|script| format!("/{}", script.name)).collect();
    let text = format!(
        "Hello! I am the demo agent: no model, just scripts. Try {}. Everything you see here works the same \
         with a real agent.",
        names.join(", ")
    );
    say(steps, time, &text);
}

fn text(steps: &mut VecDeque<Step>, time: i64, _rest: &str) {
    say(
        steps,
        time,
        "This is a short answer. It arrives word by word, as a model would give it, and ends here.",
    );
}

fn thinking(steps: &mut VecDeque<Step>, time: i64, _rest: &str) {
    let mut answer = Answering::start(steps, time);
    answer.thinking("The user wants to see me think. I weigh two options and take the simpler one.");
    answer.text("I thought about it first; the thinking is folded away above this answer.");
    answer.end(StopReason::Stop, None);
}

fn tools(steps: &mut VecDeque<Step>, time: i64, _rest: &str) {
    let calls = [
        ("read", json!({ "path": "README.md" }), "# Demo\nNothing was read; this is a script."),
        ("bash", json!({ "command": "echo hello" }), "hello"),
    ];
    let call_id =
        |position: usize| format!("demo_{}_{position}", crate::encoding::base36(time.unsigned_abs()));
    let mut answer = Answering::start(steps, time);
    answer.text("Let me look at the files.");
    for (position, (name, input, _)) in calls.iter().enumerate() {
        answer.tool_call(call_id(position), name, input.clone());
    }
    answer.end(StopReason::ToolUse, None);
    for (position, (name, input, _)) in calls.iter().enumerate() {
        let (tool_call_id, name) = (call_id(position), (*name).to_owned());
        steps.push_back(Step::event(AgentEvent::ToolStarted {
            tool_call_id,
            name,
            input: Some(input.clone()),
        }));
    }
    for (position, (name, _, output)) in calls.iter().enumerate() {
        tool_run(steps, call_id(position), name, output);
    }
    for (position, (name, _, output)) in calls.iter().enumerate() {
        tool_result(steps, time + 1, call_id(position), name, output);
    }
    say(steps, time + 2, "Both tools are done: one read a file, the other said hello.");
}

fn tool_run(steps: &mut VecDeque<Step>, tool_call_id: String, name: &str, output: &str) {
    let content = |text: &str| json!({ "content": [{ "type": "text", "text": text }] });
    steps.push_back(Step::Pause { ms: 10 * WORD_MS });
    let half: String = output.chars().take(output.chars().count() / 2).collect();
    steps.push_back(Step::event(AgentEvent::ToolProgress {
        tool_call_id: tool_call_id.clone(),
        name: name.to_owned(),
        partial_output: content(&half),
    }));
    steps.push_back(Step::Pause { ms: 10 * WORD_MS });
    steps.push_back(Step::event(AgentEvent::ToolEnded {
        tool_call_id,
        name: name.to_owned(),
        output: content(output),
        is_error: false,
        duration_ms: None,
    }));
}

fn tool_result(steps: &mut VecDeque<Step>, time: i64, tool_call_id: String, name: &str, output: &str) {
    let head = MessageHead { role: Role::Tool, created_at: time, tool_call_id: Some(tool_call_id.clone()) };
    let part = KnownPart::ToolResult {
        id: "p0".to_owned(),
        tool_call_id,
        name: Some(name.to_owned()),
        output: Some(Value::String(output.to_owned())),
        is_error: false,
        duration_ms: None,
        meta: None,
    };
    let mut message = NativeMessage::new(head.clone(), vec![Part::Known(part)]);
    message.tool_name = Some(name.to_owned());
    message.is_error = Some(false);
    message.stop_reason = None;
    steps.push_back(Step::event(AgentEvent::MessageStarted(head)));
    steps.push_back(Step::event(AgentEvent::MessageEnded(message)));
}

fn question(steps: &mut VecDeque<Step>, time: i64, _rest: &str) {
    say(steps, time, "I need a decision from you.");
    steps.push_back(Step::event(AgentEvent::InputNeeded(InputRequest::Select {
        request_id: format!("demo-{}", crate::encoding::base36(time.unsigned_abs())),
        title: "Which colour should the ship have?".to_owned(),
        options: ["red", "green", "blue"].map(str::to_owned).to_vec(),
        timeout: None,
    })));
}

fn error(steps: &mut VecDeque<Step>, time: i64, _rest: &str) {
    let mut answer = Answering::start(steps, time);
    answer.text("This answer will fail");
    answer.end(StopReason::Error, Some("The demo model is overloaded (on purpose)"));
}

fn long(steps: &mut VecDeque<Step>, time: i64, rest: &str) {
    let count = rest.parse().unwrap_or(LONG_DEFAULT).min(LONG_MAX);
    let mut answer = Answering::start(steps, time);
    answer.steps.push_back(Step::Long { next: 0, count });
    let text: String = (0..count).map(long_piece).collect();
    answer.parts.push(text_part(0, &text));
    answer.end(StopReason::Stop, None);
}

/// Builds one assistant message: the pieces that stream, and the whole that ends it.
struct Answering<'a> {
    steps: &'a mut VecDeque<Step>,
    head: MessageHead,
    parts: Vec<Part>,
}

impl<'a> Answering<'a> {
    fn start(steps: &'a mut VecDeque<Step>, time: i64) -> Self {
        let head = MessageHead { role: Role::Assistant, created_at: time, tool_call_id: None };
        steps.push_back(Step::event(AgentEvent::MessageStarted(head.clone())));
        Answering { steps, head, parts: Vec::new() }
    }

    fn index(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    fn text(&mut self, text: &str) {
        let index = self.index();
        for word in text.split_inclusive(' ') {
            self.steps.push_back(Step::Pause { ms: WORD_MS });
            self.steps.push_back(Step::event(AgentEvent::TextDelta { index, delta: word.to_owned() }));
        }
        self.parts.push(text_part(self.parts.len(), text));
    }

    fn thinking(&mut self, text: &str) {
        let index = self.index();
        for word in text.split_inclusive(' ') {
            self.steps.push_back(Step::Pause { ms: WORD_MS });
            self.steps.push_back(Step::event(AgentEvent::ThinkingDelta { index, delta: word.to_owned() }));
        }
        let id = format!("p{}", self.parts.len());
        self.parts.push(Part::Known(KnownPart::Thinking { id, text: text.to_owned(), meta: None }));
    }

    fn tool_call(&mut self, tool_call_id: String, name: &str, input: Value) {
        let (index, name) = (self.index(), name.to_owned());
        let started =
            AgentEvent::ToolCallStarted { index, tool_call_id: tool_call_id.clone(), name: name.clone() };
        self.steps.push_back(Step::event(started));
        self.steps.push_back(Step::event(AgentEvent::ToolCallDelta { index, delta: input.to_string() }));
        self.steps.push_back(Step::event(AgentEvent::ToolCallEnded {
            index,
            tool_call_id: tool_call_id.clone(),
            name: name.clone(),
            input: input.clone(),
        }));
        self.parts.push(Part::Known(KnownPart::ToolCall {
            id: format!("p{}", self.parts.len()),
            tool_call_id,
            name,
            input: Some(input),
            status: ToolStatus::Pending,
            meta: None,
        }));
    }

    fn end(self, reason: StopReason, error: Option<&str>) {
        let mut message = NativeMessage::new(self.head, self.parts);
        message.stop_reason = Some(reason);
        message.error = error.map(str::to_owned);
        message.model = Some("demo-1".to_owned());
        message.provider = Some("demo".to_owned());
        message.usage = Some(Usage { input_tokens: 12, output_tokens: 34, ..Usage::default() });
        self.steps.push_back(Step::event(AgentEvent::MessageEnded(message)));
        self.steps.push_back(Step::event(AgentEvent::StreamDone { reason }));
    }
}

fn text_part(position: usize, text: &str) -> Part {
    Part::Known(KnownPart::Text {
        id: format!("p{position}"),
        text: text.to_owned(),
        format: None,
        meta: None,
    })
}

/// The text of a message; none where it has none.
pub(super) fn text_of(message: &NativeMessage) -> Option<String> {
    let texts = message.parts.iter().filter_map(|part| match part {
        Part::Known(KnownPart::Text { text, .. }) => Some(text.as_str()),
        Part::Known(_) | Part::Other(_) => None,
    });
    Some(texts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}
