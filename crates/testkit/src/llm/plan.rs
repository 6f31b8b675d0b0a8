//! From a script to what the model will do with one request.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::directive::{Directive, parse_script};

/// An endless answer still ends, so that a forgotten client cannot run a test machine for ever.
pub(crate) const ENDLESS_DELTAS_MAX: u64 = 1_000_000;
/// The most tool calls one directive may ask for.
pub(crate) const CALLS_MAX: u64 = 64;
/// Texts are cut into deltas of this many characters.
const DELTA_CHARS: usize = 12;

const DEFAULT_TEXT: &str = "Hello from the scripted model. This is a plain answer.";
const DEFAULT_THINKING: &str = "Let me think about this step by step. First A, then B.";
const DEFAULT_FINAL: &str = "Done.";

/// What happens to one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Fail(Failure),
    Hang,
    Stream(Plan),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) kind: FailureKind,
    pub(crate) message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Status,
    Overflow,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    pub(crate) blocks: Vec<Block>,
    pub(crate) delay: Duration,
    /// Break the connection after this many deltas.
    pub(crate) drop_after: Option<u64>,
    pub(crate) stopped_for_length: bool,
    pub(crate) input_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    Text(Text),
    Thinking(String),
    Tool { name: String, arguments: Map<String, Value> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Text {
    Whole(String),
    Deltas(u64),
    Held(String),
}

/// A piece of a block on its way out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    Delta(String),
    Hold(String),
}

impl Plan {
    pub(crate) fn calls_tools(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::Tool { .. }))
    }

    /// The number of tokens reported as output: asked for, or a rough count.
    pub(crate) fn output_tokens(&self) -> u64 {
        let estimate = |block: &Block| match block {
            Block::Text(Text::Deltas(count)) => *count,
            Block::Text(Text::Whole(text)) | Block::Thinking(text) => text.len() as u64 / 4 + 1,
            Block::Text(Text::Held(_)) | Block::Tool { .. } => 20,
        };
        self.output_tokens.unwrap_or_else(|| self.blocks.iter().map(estimate).sum())
    }
}

impl Text {
    pub(crate) fn pieces(self) -> Box<dyn Iterator<Item = Piece> + Send> {
        match self {
            Text::Whole(text) => Box::new(cut(&text).into_iter().map(Piece::Delta)),
            Text::Deltas(count) => Box::new((1..=count).map(|i| Piece::Delta(format!("w{i} ")))),
            Text::Held(gate) => Box::new(
                [
                    Piece::Delta("Before the gate. ".into()),
                    Piece::Hold(gate),
                    Piece::Delta("After it.".into()),
                ]
                .into_iter(),
            ),
        }
    }
}

/// Cuts a text into deltas.
pub(crate) fn cut(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(DELTA_CHARS).map(|chunk| chunk.iter().collect()).collect()
}

/// How often each failing script has failed since it last succeeded.
#[derive(Debug, Default)]
pub(crate) struct Failures(HashMap<(String, u64), u64>);

impl Failures {
    /// Says whether this request is still one of the failing ones.
    fn fails(&mut self, conversation: &Conversation, directive: &Directive) -> bool {
        if directive.number("round").unwrap_or(0) != conversation.round {
            return false;
        }
        let key = (conversation.prompt.clone(), conversation.round);
        let count = self.0.entry(key.clone()).or_default();
        *count += 1;
        let still_failing = *count <= directive.number("times").unwrap_or(1);
        if !still_failing {
            self.0.remove(&key);
        }
        still_failing
    }
}

/// Decides what to do with a request. An unknown directive is answered with an error that names it, so that a typing
/// mistake in a test is seen in the test's own output.
pub(crate) fn plan_reply(conversation: &Conversation, failures: &mut Failures) -> Reply {
    let script = parse_script(&conversation.prompt);
    let mut plan = Plan {
        blocks: Vec::new(),
        delay: Duration::ZERO,
        drop_after: None,
        stopped_for_length: false,
        input_tokens: None,
        output_tokens: None,
    };
    let mut final_text = DEFAULT_FINAL.to_owned();
    for directive in &script {
        match directive.name.as_str() {
            "error" | "overflow" if failures.fails(conversation, directive) => {
                return Reply::Fail(failure(directive));
            }
            "drop" if failures.fails(conversation, directive) => {
                plan.drop_after = Some(directive.number("after").unwrap_or(3));
            }
            "error" | "overflow" | "drop" => {}
            "hang" => return Reply::Hang,
            "length" => plan.stopped_for_length = true,
            "usage" => {
                plan.input_tokens = directive.number("input");
                plan.output_tokens = directive.number("output");
            }
            "final" => final_text = directive.text("text").unwrap_or(final_text),
            _ => match content(directive, conversation.round) {
                Some(blocks) => plan.blocks.extend(blocks),
                None => return Reply::Fail(unknown(directive)),
            },
        }
        if let Some(delay) = delay_of(directive) {
            plan.delay = delay;
        }
    }
    let more_rounds = script.iter().any(|d| d.name == "loop" && conversation.round < calls(d));
    if conversation.round > 0 && !more_rounds {
        plan.blocks = vec![Block::Text(Text::Whole(final_text))];
    } else if plan.blocks.iter().all(|block| matches!(block, Block::Thinking(_))) {
        plan.blocks.push(Block::Text(Text::Whole(DEFAULT_TEXT.to_owned())));
    }
    Reply::Stream(plan)
}

/// The blocks a directive asks for; none if the directive is unknown.
fn content(directive: &Directive, round: u64) -> Option<Vec<Block>> {
    let text_or = |fallback: Option<&str>| {
        directive.text("text").or(fallback.map(str::to_owned)).map(|text| Block::Text(Text::Whole(text)))
    };
    let bash = |number: u64| {
        let template = directive.text("command").unwrap_or_else(|| "echo {i}".to_owned());
        let command = template.replace("{i}", &number.to_string());
        tool("bash", Map::from_iter([("command".to_owned(), json!(command))]))
    };
    let mut fields = directive.fields.clone();
    Some(match directive.name.as_str() {
        "text" => text_or(Some(DEFAULT_TEXT)).into_iter().collect(),
        "thinking" => {
            let thinking = directive.text("thinking").unwrap_or_else(|| DEFAULT_THINKING.to_owned());
            [Some(Block::Thinking(thinking)), text_or(None)].into_iter().flatten().collect()
        }
        "tool" => {
            let name = fields.remove("name").and_then(|name| name.as_str().map(str::to_owned));
            vec![tool(&name.unwrap_or_else(|| "bash".to_owned()), fields)]
        }
        name @ ("bash" | "read" | "write" | "edit") => vec![tool(name, fields)],
        "parallel" => (1..=calls(directive)).map(bash).collect(),
        "loop" => vec![bash(round + 1)],
        "deltas" => vec![Block::Text(Text::Deltas(directive.number("n").unwrap_or(2_000)))],
        "slow" => vec![Block::Text(Text::Deltas(directive.number("n").unwrap_or(20)))],
        "endless" => vec![Block::Text(Text::Deltas(ENDLESS_DELTAS_MAX))],
        "hold" => {
            vec![Block::Text(Text::Held(directive.text("name").unwrap_or_else(|| "gate".to_owned())))]
        }
        _ => return None,
    })
}

fn tool(name: &str, arguments: Map<String, Value>) -> Block {
    Block::Tool { name: name.to_owned(), arguments }
}

fn calls(directive: &Directive) -> u64 {
    directive.number("n").unwrap_or(3).clamp(1, CALLS_MAX)
}

fn delay_of(directive: &Directive) -> Option<Duration> {
    let fallback = match directive.name.as_str() {
        "slow" => Some(50),
        "endless" => Some(5),
        _ => None,
    };
    // An endless answer without a pause would only measure how fast the test machine can be kept busy.
    let least = u64::from(directive.name == "endless");
    directive.number("delay_ms").or(fallback).map(|ms| Duration::from_millis(ms.max(least)))
}

fn failure(directive: &Directive) -> Failure {
    if directive.name == "overflow" {
        return Failure { status: 400, retry_after: None, kind: FailureKind::Overflow, message: None };
    }
    let status = directive.number("status").and_then(|status| u16::try_from(status).ok()).unwrap_or(529);
    Failure {
        status,
        retry_after: directive.number("retry_after"),
        kind: FailureKind::Status,
        message: directive.text("message"),
    }
}

fn unknown(directive: &Directive) -> Failure {
    let message = format!("the scripted model knows no directive @@{}; see qd_testkit::llm", directive.name);
    Failure { status: 400, retry_after: None, kind: FailureKind::Status, message: Some(message) }
}
