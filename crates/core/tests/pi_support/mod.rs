//! Reads the recorded traffic of real pi, and shows what the codec made of it, short enough to read.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use qd_core::agent::{AgentEvent, MessageHead, NativeMessage};
use qd_core::harness::pi::{PiCodec, PiOutput};
use qd_wire::message::{KnownPart, Part};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// When the codec is told that it is; pi's own times are in the fixtures.
pub(crate) const NOW_MS: i64 = 1_800_000_000_000;

pub(crate) struct Fixture {
    /// `1.5.0/simple`.
    pub(crate) name: String,
    /// What pi printed, byte for byte as it prints (no spaces between tokens, keys in its order).
    pub(crate) lines: Vec<Vec<u8>>,
}

impl Fixture {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.lines.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }
}

pub(crate) fn fixtures() -> Vec<Fixture> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pi");
    let mut fixtures = Vec::new();
    for version in sorted(&root) {
        for file in sorted(&version) {
            let name = format!("{}/{}", stem(&version, false), stem(&file, true));
            let text = std::fs::read_to_string(&file).expect("a fixture");
            fixtures.push(Fixture { name, lines: text.lines().filter_map(printed_by_pi).collect() });
        }
    }
    assert!(fixtures.len() > 150, "only {} fixtures", fixtures.len());
    fixtures
}

fn sorted(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).expect("the fixtures");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn stem(path: &Path, without_extension: bool) -> String {
    let name = if without_extension { path.file_stem() } else { path.file_name() };
    name.expect("a name").to_string_lossy().into_owned()
}

fn printed_by_pi(line: &str) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Record<'a> {
        dir: &'a str,
        #[serde(borrow)]
        rec: &'a RawValue,
    }
    let record: Record<'_> = serde_json::from_str(line).expect("a record of a fixture");
    (record.dir == "out").then(|| without_spaces(record.rec.get()))
}

fn without_spaces(json: &str) -> Vec<u8> {
    let (mut in_string, mut escaped) = (false, false);
    let keep = |byte: &u8| {
        let kept = in_string || !byte.is_ascii_whitespace();
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ => {}
        }
        kept
    };
    json.bytes().filter(keep).collect()
}

pub(crate) fn decode(lines: &[Vec<u8>]) -> Vec<PiOutput> {
    let mut codec = PiCodec::new();
    let mut out = Vec::new();
    for line in lines {
        codec.line(line, NOW_MS, &mut out);
    }
    out
}

/// One line per output; runs of deltas of one block are one line.
pub(crate) fn render(outputs: &[PiOutput]) -> String {
    let mut text = String::new();
    let mut run: Option<(&str, u32, usize, String)> = None;
    for output in outputs {
        if let Some((kind, index, delta)) = delta_of(output) {
            match &mut run {
                Some((old_kind, old_index, count, joined)) if *old_kind == kind && *old_index == index => {
                    *count += 1;
                    joined.push_str(delta);
                }
                _ => {
                    flush(&mut text, run.take());
                    run = Some((kind, index, 1, delta.to_owned()));
                }
            }
            continue;
        }
        flush(&mut text, run.take());
        text.push_str(&one(output));
        text.push('\n');
    }
    flush(&mut text, run);
    text
}

fn flush(text: &mut String, run: Option<(&str, u32, usize, String)>) {
    if let Some((kind, index, count, joined)) = run {
        writeln!(text, "{kind} [{index}] {count}x {}", quoted(&joined)).expect("a string");
    }
}

fn delta_of(output: &PiOutput) -> Option<(&'static str, u32, &str)> {
    match output {
        PiOutput::Event(AgentEvent::TextDelta { index, delta }) => Some(("text", *index, delta)),
        PiOutput::Event(AgentEvent::ThinkingDelta { index, delta }) => Some(("thinking", *index, delta)),
        PiOutput::Event(AgentEvent::ToolCallDelta { index, delta }) => Some(("arguments", *index, delta)),
        _ => None,
    }
}

fn one(output: &PiOutput) -> String {
    match output {
        PiOutput::Malformed { error, preview } => format!("MALFORMED {error}: {}", quoted(preview)),
        PiOutput::Reply(reply) => {
            let id = reply.id.as_deref().unwrap_or("-");
            match &reply.result {
                Ok(data) => format!("reply {id} {} {}", reply.command, json(data)),
                Err(error) => format!("reply {id} {} FAILED {}", reply.command, quoted(&error.to_string())),
            }
        }
        PiOutput::Event(event) => event_line(event),
        PiOutput::Private(word) => format!("bridge {word:?}"),
    }
}

fn event_line(event: &AgentEvent) -> String {
    match event {
        AgentEvent::MessageStarted(head) => format!("message start {}", head_line(head)),
        AgentEvent::MessageEnded(message) => message_line(message),
        AgentEvent::ToolCallEnded { index, tool_call_id, name, input } => {
            format!("call end [{index}] {tool_call_id} {name} {}", json(input))
        }
        AgentEvent::ToolStarted { tool_call_id, name, input } => {
            format!("tool start {tool_call_id} {name} {}", json(input.as_ref().unwrap_or(&Value::Null)))
        }
        AgentEvent::ToolProgress { tool_call_id, name, partial_output } => {
            format!("tool progress {tool_call_id} {name} {}", json(partial_output))
        }
        AgentEvent::ToolEnded { tool_call_id, name, output, is_error, duration_ms } => {
            let output = json(output);
            format!("tool end {tool_call_id} {name} error={is_error} duration={duration_ms:?} {output}")
        }
        AgentEvent::Unknown { event, fields } => format!("{event} {}", json(&Value::Object(fields.clone()))),
        AgentEvent::CompactionEnded { success, will_retry, error, summary, tokens_before, .. } => {
            let summary = summary.as_deref().map(quoted);
            format!(
                "compaction end success={success} will_retry={will_retry} error={error:?} tokens_before={tokens_before:?} summary={summary:?}"
            )
        }
        other => format!("{other:?}"),
    }
}

fn head_line(head: &MessageHead) -> String {
    let call = head.tool_call_id.as_deref().map(|id| format!(" {id}")).unwrap_or_default();
    format!("{} {}{call}", head.role.as_str(), head.created_at)
}

fn message_line(message: &NativeMessage) -> String {
    let mut line = format!("message end {}", head_line(&message.head));
    for (name, value) in
        [("model", &message.model), ("provider", &message.provider), ("tool", &message.tool_name)]
    {
        if let Some(value) = value {
            write!(line, " {name}={value}").expect("a string");
        }
    }
    if let Some(reason) = message.stop_reason {
        write!(line, " stop={}", reason.as_str()).expect("a string");
    }
    if let Some(usage) = &message.usage {
        let numbers =
            (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens);
        write!(line, " usage={numbers:?} cost={:?}", usage.cost_usd).expect("a string");
    }
    if let Some(is_error) = message.is_error {
        write!(line, " is_error={is_error}").expect("a string");
    }
    if let Some(error) = &message.error {
        write!(line, " error={}", quoted(error)).expect("a string");
    }
    if let Some(metadata) = &message.metadata {
        write!(line, " metadata={}", json(&Value::Object(metadata.clone()))).expect("a string");
    }
    for part in &message.parts {
        write!(line, "\n    {}", part_line(part)).expect("a string");
    }
    line
}

fn part_line(part: &Part) -> String {
    match part {
        Part::Known(KnownPart::Text { id, text, .. }) => format!("{id} text {}", quoted(text)),
        Part::Known(KnownPart::Thinking { id, text, .. }) => format!("{id} thinking {}", quoted(text)),
        other => json(&serde_json::to_value(other).expect("a part")),
    }
}

fn json(value: &Value) -> String {
    shortened(&value.to_string(), 240)
}

fn quoted(text: &str) -> String {
    format!("{:?}", shortened(text, 80))
}

fn shortened(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let head: String = text.chars().take(max).collect();
    format!("{head}… ({count})")
}
