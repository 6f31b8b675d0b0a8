//! What both forms of an export that people read have in common.

use std::borrow::Cow;

use qd_core::time::iso_8601;
use qd_wire::data::SessionSummary;
use qd_wire::message::{MediaSource, Message, Role};
use serde_json::Value;

/// Who a message is from.
pub(super) fn speaker(message: &Message) -> Cow<'_, str> {
    match message.role {
        Role::User => {
            let name = message.sender.as_ref().and_then(|sender| sender.name.as_deref());
            name.map_or(Cow::Borrowed("You"), Cow::Borrowed)
        }
        Role::Assistant => Cow::Borrowed("Agent"),
        Role::System => Cow::Borrowed("System"),
        Role::Tool => {
            let name = message.tool_name.as_deref().unwrap_or("tool");
            Cow::Owned(format!("Tool {name}"))
        }
    }
}

/// `2026-01-31 12:30 UTC`.
pub(super) fn time(unix_ms: i64) -> String {
    let text = iso_8601(unix_ms);
    format!("{} {} UTC", text.get(..10).unwrap_or_default(), text.get(11..16).unwrap_or_default())
}

pub(super) fn title(session: &SessionSummary) -> &str {
    session.title.as_deref().filter(|title| !title.is_empty()).unwrap_or("A session without a name")
}

/// What is told of a session before its messages.
pub(super) fn facts(session: &SessionSummary, exported_at: i64) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Session", session.session_id.clone()),
        ("Harness", session.harness.clone()),
        ("Runner", session.runner_id.clone()),
    ];
    facts.extend(session.cwd.clone().map(|cwd| ("Directory", cwd)));
    facts.extend(session.model.clone().map(|model| ("Model", model)));
    facts.push(("Started", time(session.created_at)));
    facts.push(("Messages", session.message_count.to_string()));
    facts.push(("Exported", time(exported_at)));
    facts
}

/// What a tool was given or gave, as text: most give text, or a list of texts.
pub(super) fn readable(value: &Value) -> String {
    if let Value::String(text) = value {
        return without_sequences(text);
    }
    let content = value.get("content").unwrap_or(value);
    if let Value::String(text) = content {
        return without_sequences(text);
    }
    if let Value::Array(list) = content
        && !list.is_empty()
        && list.iter().all(|part| part.get("text").is_some_and(Value::is_string))
    {
        let texts: Vec<&str> = list.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        return without_sequences(&texts.join("\n"));
    }
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Without the sequences by which programs colour what they write.
fn without_sequences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            // Up to its final byte.
            Some('[') => {
                letters.by_ref().find(|letter| ('\u{40}'..='\u{7e}').contains(letter));
            }
            // Titles and links: up to BEL, or ESC and a backslash.
            Some(']') => {
                while let Some(letter) = letters.next() {
                    if letter == '\u{7}' || (letter == '\u{1b}' && letters.next_if_eq(&'\\').is_some()) {
                        break;
                    }
                }
            }
            _ => {}
        }
    }
    out
}

/// Characters that show nothing, and change what is shown of others.
pub(super) fn is_tricky(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// An image's type and data, if a file can hold it: of a kind that is only ever an image.
pub(super) fn image(source: &MediaSource) -> Option<(&str, &str)> {
    let MediaSource::Base64 { data, mime_type } = source else { return None };
    let is_image = matches!(&**mime_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp");
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    (is_image && data.bytes().all(is_base64)).then_some((&**mime_type, &**data))
}

/// What to say in place of something a file cannot hold.
pub(super) fn elsewhere(what: &str, source: &MediaSource) -> String {
    match source {
        MediaSource::Url { url, .. } => format!("{what}: {url}"),
        MediaSource::AttachmentRef { attachment_id, .. } => format!("{what}: attachment {attachment_id}"),
        MediaSource::Base64 { mime_type, data } => {
            format!("{what}: {mime_type}, {} bytes of base64", data.len())
        }
    }
}
