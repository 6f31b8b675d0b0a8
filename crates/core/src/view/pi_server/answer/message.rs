//! Messages in pi's form.
//!
//! Messages of pi itself do not come this way, they are passed on as pi wrote them. This is for other agents and for
//! the hub's copies, which have only the canonical form.

use qd_wire::data::{PartialBlock, PartialKind, PartialMessage};
use qd_wire::message::{KnownPart, MediaSource, Message, Part, Role, StopReason, Usage};
use serde_json::{Value, json};

use crate::agent::NativeMessage;

/// The `api` of answers that did not come through pi.
pub(in super::super) const API: &str = "unknown";

/// What a message says, whether it is on its way or kept.
struct MessageView<'a> {
    role: Role,
    parts: &'a [Part],
    created_at: i64,
    model: Option<&'a str>,
    provider: Option<&'a str>,
    stop_reason: Option<StopReason>,
    usage: Option<&'a Usage>,
    tool_call_id: Option<&'a str>,
    tool_name: Option<&'a str>,
    is_error: Option<bool>,
    error: Option<&'a str>,
}

/// A kept message.
pub(super) fn of_message(message: &Message) -> Value {
    let error = message.metadata.as_ref().and_then(|metadata| metadata.get("error")).and_then(Value::as_str);
    message_in_pis_form(&MessageView {
        role: message.role,
        parts: &message.parts,
        created_at: message.created_at,
        model: message.model.as_deref(),
        provider: message.provider.as_deref(),
        stop_reason: message.stop_reason,
        usage: message.usage.as_ref(),
        tool_call_id: message.tool_call_id.as_deref(),
        tool_name: message.tool_name.as_deref(),
        is_error: message.is_error,
        error,
    })
}

/// A message an agent has just finished.
pub(in super::super) fn of_native(message: &NativeMessage) -> Value {
    message_in_pis_form(&MessageView {
        role: message.head.role,
        parts: &message.parts,
        created_at: message.head.created_at,
        model: message.model.as_deref(),
        provider: message.provider.as_deref(),
        stop_reason: message.stop_reason,
        usage: message.usage.as_ref(),
        tool_call_id: message.head.tool_call_id.as_deref(),
        tool_name: message.tool_name.as_deref(),
        is_error: message.is_error,
        error: message.error.as_deref(),
    })
}

/// An answer that is still being generated.
pub(super) fn of_partial(message: &PartialMessage) -> Value {
    let content: Vec<Value> = message.blocks.iter().map(partial_block).collect();
    let mut value = pending(None, content);
    value["role"] = Value::from(role_word(message.role));
    value
}

/// The beginning of an answer.
pub(in super::super) fn pending(created_at: Option<i64>, content: Vec<Value>) -> Value {
    let mut value = json!({
        "role": "assistant", "content": content, "api": API, "provider": "", "model": "",
        "usage": usage(None), "stopReason": "pending",
    });
    if let Some(created_at) = created_at {
        value["timestamp"] = Value::from(created_at);
    }
    value
}

/// A tool call as a block of an answer.
pub(in super::super) fn tool_call(tool_call_id: &str, name: &str, input: &Value) -> Value {
    let arguments = if input.is_null() { json!({}) } else { input.clone() };
    json!({ "type": "toolCall", "id": tool_call_id, "name": name, "arguments": arguments })
}

/// What a tool gave, as `{content, details?}`.
pub(in super::super) fn tool_output(output: &Value) -> Value {
    match output {
        Value::Object(object) if object.get("content").is_some_and(Value::is_array) => output.clone(),
        Value::Array(blocks) if blocks.iter().all(is_block) => json!({ "content": output }),
        Value::Null => json!({ "content": [] }),
        Value::String(text) => json!({ "content": [text_block(text)] }),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            json!({ "content": [text_block(&other.to_string())] })
        }
    }
}

/// pi's word for a role.
pub(in super::super) fn role_word(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "toolResult",
    }
}

fn message_in_pis_form(view: &MessageView<'_>) -> Value {
    match view.role {
        Role::User => {
            let content = blocks(view.parts);
            json!({ "role": "user", "content": content, "timestamp": view.created_at })
        }
        Role::Assistant => answer(view),
        Role::Tool => tool_result(view),
        Role::System => {
            let texts: Vec<&str> = view.parts.iter().filter_map(text_of).collect();
            json!({ "role": "system", "content": texts.join("\n"), "timestamp": view.created_at })
        }
    }
}

fn answer(view: &MessageView<'_>) -> Value {
    let mut value = json!({
        "role": "assistant",
        "content": blocks(view.parts),
        "api": API,
        "provider": view.provider.unwrap_or_default(),
        "model": view.model.unwrap_or_default(),
        "usage": usage(view.usage),
        "stopReason": view.stop_reason.map_or("stop", stop_word),
        "timestamp": view.created_at,
    });
    if let Some(error) = view.error {
        value["errorMessage"] = Value::from(error);
    }
    value
}

fn tool_result(view: &MessageView<'_>) -> Value {
    let result = view.parts.iter().find_map(|part| match part {
        Part::Known(KnownPart::ToolResult { tool_call_id, name, output, is_error, meta, .. }) => {
            let details = meta.as_ref().and_then(|meta| meta.get("details"));
            Some((tool_call_id.as_str(), name.as_deref(), output.as_ref(), *is_error, details))
        }
        Part::Known(_) | Part::Other(_) => None,
    });
    let (id, name, output, is_error, details) = result.unwrap_or(("", None, None, false, None));
    let mut value = json!({
        "role": "toolResult",
        "toolCallId": view.tool_call_id.unwrap_or(id),
        "toolName": view.tool_name.or(name).unwrap_or_default(),
        "isError": view.is_error.unwrap_or(is_error),
        "timestamp": view.created_at,
    });
    if let Some(details) = details {
        value["details"] = details.clone();
    }
    let output = match output {
        Some(output) => tool_output(output),
        None => json!({ "content": blocks(view.parts) }),
    };
    if let (Value::Object(fields), Value::Object(output)) = (&mut value, output) {
        fields.extend(output.into_iter().filter(|(name, _)| matches!(name.as_str(), "content" | "details")));
    }
    value
}

fn blocks(parts: &[Part]) -> Vec<Value> {
    parts.iter().filter_map(block).collect()
}

/// What pi has no block for is named in words; parts nobody knows are left out.
fn block(part: &Part) -> Option<Value> {
    let Part::Known(part) = part else { return None };
    Some(match part {
        KnownPart::Text { text, .. } => text_block(text),
        KnownPart::Thinking { text, .. } => json!({ "type": "thinking", "thinking": text }),
        KnownPart::ToolCall { tool_call_id, name, input, .. } => {
            tool_call(tool_call_id, name, input.as_ref().unwrap_or(&Value::Null))
        }
        KnownPart::ToolResult { .. } => return None,
        KnownPart::Image { source: MediaSource::Base64 { data, mime_type }, .. } => {
            json!({ "type": "image", "data": data, "mimeType": mime_type })
        }
        KnownPart::Image { source, alt, .. } => {
            named("image", alt.as_deref().unwrap_or_else(|| place(source)))
        }
        KnownPart::Audio { source, transcript, .. } => {
            named("audio", transcript.as_deref().unwrap_or_else(|| place(source)))
        }
        KnownPart::Video { source, .. } => named("video", place(source)),
        KnownPart::FileRef { uri, .. } => named("file", uri),
        KnownPart::Attachment { source, filename, .. } => {
            named("attachment", filename.as_deref().unwrap_or_else(|| place(source)))
        }
    })
}

fn named(kind: &str, what: &str) -> Value {
    text_block(&format!("[{kind}: {what}]"))
}

fn place(source: &MediaSource) -> &str {
    match source {
        MediaSource::Url { url, .. } => url,
        MediaSource::AttachmentRef { attachment_id, .. } => attachment_id,
        MediaSource::Base64 { mime_type, .. } => mime_type,
    }
}

fn text_of(part: &Part) -> Option<&str> {
    match part {
        Part::Known(KnownPart::Text { text, .. }) => Some(text),
        Part::Known(_) | Part::Other(_) => None,
    }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn is_block(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
}

fn partial_block(block: &PartialBlock) -> Value {
    match block.kind {
        PartialKind::Text => text_block(&block.text),
        PartialKind::Thinking => json!({ "type": "thinking", "thinking": block.text }),
        PartialKind::ToolCall => {
            // Arguments that are not complete yet are no JSON.
            let arguments: Value = serde_json::from_str(&block.text).unwrap_or_default();
            let mut call = tool_call(
                block.tool_call_id.as_deref().unwrap_or_default(),
                block.name.as_deref().unwrap_or_default(),
                &arguments,
            );
            call["partialJson"] = Value::from(block.text.as_str());
            call
        }
    }
}

/// Tokens and costs; what is not known is 0. Only the whole cost is known.
pub(in super::super) fn usage(usage: Option<&Usage>) -> Value {
    let none = Usage::default();
    let usage = usage.unwrap_or(&none);
    json!({
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cacheRead": usage.cache_read_tokens.unwrap_or(0),
        "cacheWrite": usage.cache_write_tokens.unwrap_or(0),
        "totalTokens": usage.total_tokens(),
        "cost": {
            "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": usage.cost_usd.unwrap_or(0.0),
        },
    })
}

fn stop_word(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Stop => "stop",
        StopReason::Length => "length",
        StopReason::ToolUse => "toolUse",
        StopReason::Error => "error",
        StopReason::Aborted => "aborted",
    }
}
