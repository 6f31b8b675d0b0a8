//! Part 1: messages, the persistent units of a conversation.
//!
//! A part of a type that this version does not know, or that it cannot read, is kept and written back as it came.

use crate::derive::{JsonSchema, TS, wire};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::JsonObject;

/// One message of a conversation. Its id is the same from `stream.message_start` to history.
#[wire]
pub struct Message {
    /// Unique within the conversation.
    pub id: String,
    /// Zero-based position in the conversation.
    pub idx: u64,
    pub role: Role,
    pub parts: Vec<Part>,
    /// Unix milliseconds.
    pub created_at: i64,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub stop_reason: Option<StopReason>,
    pub usage: Option<Usage>,
    /// Of a tool result: the call it answers.
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    pub is_error: Option<bool>,
    /// The client's own name for the prompt that became this message.
    pub client_id: Option<String>,
    /// Who wrote it, where that is known.
    pub sender: Option<Sender>,
    /// Of a prompt that was accepted, and whose agent stopped before it showed that it had read it: it may or may not
    /// have. It can be sent again.
    pub interrupted: Option<bool>,
    #[ts(optional, type = "Record<string, unknown>")]
    pub metadata: Option<JsonObject>,
}

impl Message {
    /// The readable text of a message (text and thinking parts), as the full-text index stores it.
    pub fn flattened_text(&self) -> String {
        let mut content = String::new();
        for part in &self.parts {
            if let Part::Known(KnownPart::Text { text, .. } | KnownPart::Thinking { text, .. }) = part {
                if !content.is_empty() {
                    content.push('\n');
                }
                content.push_str(text);
            }
        }
        content
    }
}

#[wire(words, Hash)]
pub enum Role {
    User,
    Assistant,
    System,
    Tool,
}

/// Why generation stopped.
#[wire(words)]
pub enum StopReason {
    Stop,
    Length,
    ToolUse,
    Error,
    Aborted,
}

#[wire(Default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: Option<u64>,
    pub cache_write_tokens: Option<u64>,
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// All tokens together, for the legacy column of the history table.
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.cache_read_tokens.unwrap_or(0))
            .saturating_add(self.cache_write_tokens.unwrap_or(0))
    }
}

/// Who a message came from.
#[wire(Eq)]
pub struct Sender {
    #[serde(rename = "type")]
    pub kind: SenderKind,
    pub id: String,
    pub name: Option<String>,
    pub runner_id: Option<String>,
    pub session_id: Option<String>,
}

#[wire(words)]
pub enum SenderKind {
    User,
    Agent,
    System,
}

/// One content block. A type or shape we do not know is kept as it came, so that it survives a round trip.
#[derive(Debug, Clone, PartialEq, Serialize, TS, JsonSchema)]
#[serde(untagged)]
#[allow(
    clippy::large_enum_variant,
    reason = "almost every part is a known one; a box would cost each of them"
)]
pub enum Part {
    Known(KnownPart),
    Other(OtherPart),
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let object = JsonObject::deserialize(deserializer)?;
        if !object.get("type").is_some_and(Value::is_string) {
            return Err(D::Error::missing_field("type"));
        }
        // A known type with a shape we do not know is kept too: one part must not cost the whole message.
        let value = Value::Object(object);
        match KnownPart::deserialize(&value) {
            Ok(part) => Ok(Part::Known(part)),
            Err(_) => OtherPart::deserialize(value).map(Part::Other).map_err(D::Error::custom),
        }
    }
}

/// The part types of the specification.
#[wire]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum KnownPart {
    Text {
        id: String,
        text: String,
        format: Option<TextFormat>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    Thinking {
        id: String,
        text: String,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    ToolCall {
        id: String,
        tool_call_id: String,
        name: String,
        #[ts(optional, type = "unknown")]
        input: Option<Value>,
        status: ToolStatus,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    ToolResult {
        id: String,
        tool_call_id: String,
        name: Option<String>,
        #[ts(optional, type = "unknown")]
        output: Option<Value>,
        is_error: bool,
        duration_ms: Option<u64>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    Image {
        id: String,
        source: MediaSource,
        alt: Option<String>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    Audio {
        id: String,
        source: MediaSource,
        duration_sec: Option<f64>,
        transcript: Option<String>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    Video {
        id: String,
        source: MediaSource,
        duration_sec: Option<f64>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    FileRef {
        id: String,
        uri: String,
        label: Option<String>,
        range: Option<FileRange>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
    Attachment {
        id: String,
        source: MediaSource,
        filename: Option<String>,
        size_bytes: Option<u64>,
        #[ts(optional, type = "Record<string, unknown>")]
        meta: Option<JsonObject>,
    },
}

impl KnownPart {
    /// The `type` words above; a word not in this list is kept as [`OtherPart`].
    pub const TYPES: &'static [&'static str] = &[
        "text",
        "thinking",
        "tool_call",
        "tool_result",
        "image",
        "audio",
        "video",
        "file_ref",
        "attachment",
    ];
}

/// An `x-*` extension, or a part type of a later version of the protocol.
#[derive(Debug, Clone, PartialEq, Serialize, TS, JsonSchema)]
#[ts(
    type = "{ type: `x-${string}`, id: string, payload?: unknown, meta?: Record<string, unknown>, [key: string]: unknown }"
)]
pub struct OtherPart {
    #[serde(rename = "type")]
    pub kind: String,
    /// Empty when the part came without one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meta: Option<JsonObject>,
    /// Whatever else came with it.
    #[serde(flatten)]
    pub rest: JsonObject,
}

impl<'de> Deserialize<'de> for OtherPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let mut rest = JsonObject::deserialize(deserializer)?;
        let Some(kind) = take(&mut rest, "type", string) else {
            return Err(D::Error::missing_field("type"));
        };
        // What does not have the usual shape stays in `rest`, so that it goes out as it came in.
        let id = take(&mut rest, "id", string).unwrap_or_default();
        let payload = rest.remove("payload");
        let meta = take(&mut rest, "meta", |value| match value {
            Value::Object(object) => Ok(object),
            other => Err(other),
        });
        Ok(OtherPart { kind, id, payload, meta, rest })
    }
}

fn string(value: Value) -> Result<String, Value> {
    match value {
        Value::String(text) if !text.is_empty() => Ok(text),
        other => Err(other),
    }
}

/// Takes a field out of an object, or puts it back when it is not what the reader wants.
fn take<T>(object: &mut JsonObject, name: &str, read: fn(Value) -> Result<T, Value>) -> Option<T> {
    match read(object.remove(name)?) {
        Ok(field) => Some(field),
        Err(value) => {
            object.insert(name.to_owned(), value);
            None
        }
    }
}

#[wire(words)]
pub enum TextFormat {
    Markdown,
    Plain,
}

#[wire(words)]
pub enum ToolStatus {
    Pending,
    Running,
    Success,
    Error,
}

#[wire(Eq)]
#[serde(tag = "source", rename_all = "snake_case")]
pub enum MediaSource {
    Url { url: String, mime_type: Option<String> },
    AttachmentRef { attachment_id: String, mime_type: Option<String> },
    Base64 { data: String, mime_type: String },
}

#[wire(Copy, Eq)]
pub struct FileRange {
    pub start_line: Option<u64>,
    pub end_line: Option<u64>,
}
