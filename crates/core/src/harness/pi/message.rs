//! pi's `AgentMessage` to a message of ours.
//!
//! pi has more roles than we do. The others (custom messages, shell commands of a person, summaries) become one of
//! ours, and `metadata` says what they were, so that an app that knows pi can show them as pi does.

use qd_wire::JsonObject;
use qd_wire::message::{KnownPart, MediaSource, OtherPart, Part, Role, StopReason, ToolStatus, Usage};
use serde::Deserialize;
use serde_json::{Value, json};

use super::other_events::whole;
use crate::agent::{MessageHead, NativeMessage};

/// As much of a message as its beginning needs; the content is skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PiMessageHead {
    role: String,
    timestamp: Option<f64>,
    tool_call_id: Option<String>,
}

impl PiMessageHead {
    pub(super) fn into_head(self, now_ms: i64) -> MessageHead {
        MessageHead {
            role: role_of(&self.role),
            // The id of a message is made from this time, so pi's own is used wherever there is one: it is the same
            // when the conversation is read again from its file.
            created_at: self.timestamp.map_or(now_ms, |time| time as i64),
            tool_call_id: self.tool_call_id,
        }
    }
}

/// A finished message of any role.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PiMessage {
    role: String,
    timestamp: Option<f64>,
    tool_call_id: Option<String>,
    #[serde(default)]
    content: Value,
    model: Option<String>,
    provider: Option<String>,
    stop_reason: Option<String>,
    error_message: Option<String>,
    usage: Option<PiUsage>,
    tool_name: Option<String>,
    is_error: Option<bool>,
    duration_ms: Option<f64>,
    details: Option<Value>,
    // system
    sections: Option<Value>,
    tools_added: Option<Vec<NamedMessage>>,
    tools_removed: Option<Vec<NamedMessage>>,
    #[serde(default)]
    replace: bool,
    // custom
    custom_type: Option<String>,
    display: Option<bool>,
    // bashExecution
    command: Option<String>,
    output: Option<String>,
    exit_code: Option<i64>,
    #[serde(default)]
    cancelled: bool,
    #[serde(default)]
    truncated: bool,
    // branchSummary, compactionSummary
    summary: Option<String>,
}

#[derive(Deserialize)]
struct NamedMessage {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct PiUsage {
    input: Option<f64>,
    output: Option<f64>,
    cache_read: Option<f64>,
    cache_write: Option<f64>,
    cost: Option<PiCost>,
}

#[derive(Deserialize)]
struct PiCost {
    total: Option<f64>,
}

impl PiMessage {
    /// Whether a model wrote it, so that its end is the end of a stream.
    pub(super) fn is_answer(&self) -> bool {
        self.role == "assistant"
    }

    pub(super) fn into_native(mut self, now_ms: i64) -> NativeMessage {
        let mut metadata = self.metadata();
        let (stop_reason, native_stop_reason) = stop_reason_of(self.stop_reason.take());
        if let Some(word) = native_stop_reason {
            metadata.insert("native_stop_reason".to_owned(), Value::from(word));
        }
        let parts = self.parts();
        let PiMessage { role, timestamp, tool_call_id, .. } = self;
        NativeMessage {
            head: PiMessageHead { role, timestamp, tool_call_id }.into_head(now_ms),
            parts,
            model: self.model,
            provider: self.provider,
            stop_reason,
            usage: self.usage.map(PiUsage::into_usage),
            tool_name: self.tool_name,
            is_error: self.is_error,
            error: self.error_message,
            metadata: (!metadata.is_empty()).then_some(metadata),
        }
    }

    /// What the canonical message has no field for.
    fn metadata(&mut self) -> JsonObject {
        let mut metadata = JsonObject::new();
        let role = self.role.as_str();
        // These roles exist in our form too, so nothing about them has to be noted.
        if matches!(role, "user" | "assistant" | "system" | "toolResult") {
            return metadata;
        }
        metadata.insert("native_role".to_owned(), Value::from(role));
        if let Some(custom_type) = self.custom_type.take() {
            metadata.insert("custom_type".to_owned(), Value::from(custom_type));
        }
        if let Some(display) = self.display {
            metadata.insert("display".to_owned(), Value::from(display));
        }
        if let Some(details) = self.details.take() {
            metadata.insert("details".to_owned(), details);
        }
        if let Some(exit_code) = self.exit_code {
            metadata.insert("exit_code".to_owned(), Value::from(exit_code));
        }
        for (flag, is_set) in [("cancelled", self.cancelled), ("truncated", self.truncated)] {
            if is_set {
                metadata.insert(flag.to_owned(), Value::from(true));
            }
        }
        metadata
    }

    fn parts(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.role == "toolResult" {
            parts.push(self.tool_result());
            return parts;
        }
        match self.content.take() {
            Value::Array(blocks) => {
                for block in blocks {
                    let id = part_id(parts.len());
                    parts.push(part_of(id, block));
                }
            }
            Value::String(text) => push_text(&mut parts, text),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        if let Some(command) = self.command.take() {
            push_text(&mut parts, format!("$ {command}\n{}", self.output.take().unwrap_or_default()));
        }
        if let Some(summary) = self.summary.take() {
            push_text(&mut parts, summary);
        }
        if let Some(system) = self.system_part(parts.len()) {
            parts.push(system);
        }
        parts
    }

    fn tool_result(&mut self) -> Part {
        let details =
            self.details.take().filter(|details| details.as_object().is_none_or(|map| !map.is_empty()));
        Part::Known(KnownPart::ToolResult {
            id: part_id(0),
            tool_call_id: self.tool_call_id.clone().unwrap_or_default(),
            name: self.tool_name.clone(),
            output: Some(self.content.take()),
            is_error: self.is_error.unwrap_or(false),
            duration_ms: self.duration_ms.map(whole),
            meta: details.map(|details| JsonObject::from_iter([("details".to_owned(), details)])),
        })
    }

    /// The prompt's sections and the names of its tools. Not a text part: thousands of equal system prompts
    /// must not be found by every search.
    fn system_part(&mut self, position: usize) -> Option<Part> {
        let names = |tools: Vec<NamedMessage>| tools.into_iter().map(|tool| tool.name).collect::<Vec<_>>();
        let sections =
            self.sections.take().filter(|value| value.as_object().is_some_and(|map| !map.is_empty()));
        let added = self.tools_added.take().map(names).unwrap_or_default();
        let removed = self.tools_removed.take().map(names).unwrap_or_default();
        if self.role != "system" || (sections.is_none() && added.is_empty() && removed.is_empty()) {
            return None;
        }
        let mut payload = JsonObject::new();
        if let Some(sections) = sections {
            payload.insert("sections".to_owned(), sections);
        }
        for (key, list) in [("tools_added", added), ("tools_removed", removed)] {
            if !list.is_empty() {
                payload.insert(key.to_owned(), json!(list));
            }
        }
        if self.replace {
            payload.insert("replace".to_owned(), Value::from(true));
        }
        Some(other_part(part_id(position), "system", Value::Object(payload)))
    }
}

impl PiUsage {
    fn into_usage(self) -> Usage {
        Usage {
            input_tokens: self.input.map_or(0, whole),
            output_tokens: self.output.map_or(0, whole),
            cache_read_tokens: self.cache_read.map(whole),
            cache_write_tokens: self.cache_write.map(whole),
            cost_usd: self.cost.and_then(|cost| cost.total),
        }
    }
}

/// A role of pi in ours. What a person typed is the user's; what pi or an extension added is the system's.
fn role_of(native: &str) -> Role {
    match native {
        "user" | "bashExecution" => Role::User,
        "assistant" => Role::Assistant,
        "toolResult" => Role::Tool,
        _ => Role::System,
    }
}

/// The stop reason, and pi's own word where ours says less. `pending` is no reason: the message still streams.
fn stop_reason_of(native: Option<String>) -> (Option<StopReason>, Option<String>) {
    match native.as_deref() {
        None => (None, None),
        Some("stop") => (Some(StopReason::Stop), None),
        Some("length") => (Some(StopReason::Length), None),
        Some("toolUse") => (Some(StopReason::ToolUse), None),
        Some("error") => (Some(StopReason::Error), None),
        Some("aborted") => (Some(StopReason::Aborted), None),
        Some("pending") => (None, native),
        // A word of a newer pi: the message is over, which is what others need to know.
        Some(_) => (Some(StopReason::Stop), native),
    }
}

/// One content block. Fields are moved out, not copied: an image is many MB. A known type in an unknown shape
/// is kept as it came.
fn part_of(id: String, mut block: Value) -> Part {
    let kind = block.get("type").and_then(Value::as_str).unwrap_or("block").to_owned();
    let known = match kind.as_str() {
        "text" => take_text(&mut block, "text").map(|text| KnownPart::Text {
            id: id.clone(),
            text,
            format: None,
            meta: None,
        }),
        "thinking" => take_text(&mut block, "thinking").map(|text| {
            let redacted = block.get("redacted") == Some(&Value::Bool(true));
            let meta = redacted.then(|| JsonObject::from_iter([("redacted".to_owned(), Value::from(true))]));
            KnownPart::Thinking { id: id.clone(), text, meta }
        }),
        "toolCall" => tool_call(&id, &mut block),
        "image" => image(&id, &mut block),
        _ => None,
    };
    known.map_or_else(|| other_part(id, &kind, block), Part::Known)
}

fn tool_call(id: &str, block: &mut Value) -> Option<KnownPart> {
    let (tool_call_id, name) =
        (block.get("id")?.as_str()?.to_owned(), block.get("name")?.as_str()?.to_owned());
    Some(KnownPart::ToolCall {
        id: id.to_owned(),
        tool_call_id,
        name,
        input: block.get_mut("arguments").map(Value::take),
        status: ToolStatus::Pending,
        meta: None,
    })
}

fn image(id: &str, block: &mut Value) -> Option<KnownPart> {
    let mime_type = block.get("mimeType")?.as_str()?.to_owned();
    let data = take_text(block, "data")?;
    let source = MediaSource::Base64 { data, mime_type };
    Some(KnownPart::Image { id: id.to_owned(), source, alt: None, meta: None })
}

/// Moves a string out of a block; leaves the block alone when it is none.
fn take_text(block: &mut Value, field: &str) -> Option<String> {
    let Value::String(text) = block.get_mut(field)? else { return None };
    Some(std::mem::take(text))
}

fn other_part(id: String, kind: &str, payload: Value) -> Part {
    Part::Other(OtherPart {
        kind: format!("x-pi.{kind}"),
        id,
        payload: Some(payload),
        meta: None,
        rest: JsonObject::new(),
    })
}

fn push_text(parts: &mut Vec<Part>, text: String) {
    if !text.is_empty() {
        let id = part_id(parts.len());
        parts.push(Part::Known(KnownPart::Text { id, text, format: None, meta: None }));
    }
}

fn part_id(position: usize) -> String {
    format!("p{position}")
}
