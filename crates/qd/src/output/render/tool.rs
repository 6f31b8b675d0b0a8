//! Tools as one line each: `▸ bash sleep 1 ok 1.0 s`.

use std::collections::HashMap;

use qd_wire::message::{KnownPart, Message, Part};
use serde_json::Value;

use super::Renderer;
use crate::output::{duration, one_line};

const SUMMARY_CHARACTERS_MAX: usize = 100;
/// Tools remembered between start and end; agents that never end theirs must not fill the memory.
const RUNNING_MAX: usize = 1024;
/// Input fields that say best what a tool does, best first.
const TELLING_FIELDS: [&str; 8] =
    ["command", "path", "file_path", "pattern", "query", "url", "prompt", "description"];

#[derive(Default)]
pub(super) struct RunningTools {
    running: HashMap<String, RunningTool>,
    /// The tool whose line is open, so that its result can go behind it.
    open_line: Option<String>,
}

struct RunningTool {
    title: String,
    started_ms: Option<i64>,
}

impl RunningTools {
    pub(super) fn close_line(&mut self) {
        self.open_line = None;
    }

    pub(super) fn elapsed_ms(&self, tool_call_id: &str, now_ms: i64) -> Option<u64> {
        let started_ms = self.running.get(tool_call_id)?.started_ms?;
        u64::try_from(now_ms - started_ms).ok()
    }
}

impl Renderer {
    pub(super) fn tool_start(
        &mut self,
        id: &str,
        name: &str,
        input: Option<&Value>,
        started_ms: Option<i64>,
    ) {
        if self.quiet {
            return;
        }
        let title = title(name, input);
        self.end_line();
        let styled = self.style.bold(&title);
        self.push(&styled);
        self.at_line_start = false;
        // Only titles and times are lost; tools that end later are shown by their name.
        if self.tools.running.len() >= RUNNING_MAX {
            self.tools.running.clear();
        }
        self.tools.running.insert(id.to_owned(), RunningTool { title, started_ms });
        self.tools.open_line = Some(id.to_owned());
    }

    pub(super) fn tool_end(
        &mut self,
        id: &str,
        name: &str,
        output: Option<&Value>,
        is_error: bool,
        duration_ms: Option<u64>,
    ) {
        if self.quiet {
            return;
        }
        let known = self.tools.running.remove(id);
        // Something else was printed since the tool began, so its line is written again with the outcome.
        if self.tools.open_line.as_deref() != Some(id) {
            self.end_line();
            let title = known.map_or_else(|| title(name, None), |running| running.title);
            let styled = self.style.bold(&title);
            self.push(&styled);
        }
        let outcome = if is_error { self.style.red("error") } else { self.style.green("ok") };
        let took = duration_ms.map(|milliseconds| format!(" {}", duration(milliseconds))).unwrap_or_default();
        self.push(&format!(" {outcome}{}", self.style.dim(&took)));
        self.at_line_start = false;
        self.end_line();
        let reason = output.map(output_text).unwrap_or_default();
        if is_error && !reason.trim().is_empty() {
            let line = format!("  {}", self.style.red(&one_line(&reason, SUMMARY_CHARACTERS_MAX)));
            self.push_line(&line);
        }
    }

    /// The result of a tool in a conversation of the past.
    pub(super) fn tool_message(&mut self, message: &Message) {
        let mut result = None;
        for part in &message.parts {
            if let Part::Known(KnownPart::ToolResult {
                tool_call_id, output, is_error, duration_ms, ..
            }) = part
            {
                result = Some((tool_call_id.as_str(), output.clone(), *is_error, *duration_ms));
            }
        }
        let text = || Some(Value::String(message.flattened_text()));
        let (id, output, is_error, duration_ms) =
            result.unwrap_or_else(|| ("", text(), message.is_error.unwrap_or(false), None));
        let id = message.tool_call_id.as_deref().unwrap_or(id);
        self.tool_end(
            id,
            message.tool_name.as_deref().unwrap_or("tool"),
            output.as_ref(),
            is_error,
            duration_ms,
        );
    }
}

fn title(name: &str, input: Option<&Value>) -> String {
    let summary = input.map(summary).unwrap_or_default();
    let name = one_line(name, SUMMARY_CHARACTERS_MAX);
    if summary.is_empty() { format!("▸ {name}") } else { format!("▸ {name} {summary}") }
}

fn summary(input: &Value) -> String {
    let text = match input {
        Value::Object(object) if object.is_empty() => String::new(),
        Value::Object(object) => {
            let summary = TELLING_FIELDS.iter().find_map(|field| object.get(*field)?.as_str());
            summary.map_or_else(|| input.to_string(), str::to_owned)
        }
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    one_line(&text, SUMMARY_CHARACTERS_MAX)
}

/// The readable part of a tool's output: text, or the text blocks of a list.
fn output_text(output: &Value) -> String {
    match output {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(output_text).collect::<Vec<_>>().join("\n"),
        Value::Object(object) => match (object.get("text"), object.get("content")) {
            (Some(Value::String(text)), _) => text.clone(),
            (_, Some(content)) => output_text(content),
            (_, None) => output.to_string(),
        },
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
