//! pi's session tree to a conversation: from the leaf back to the root.

use std::collections::HashMap;
use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::message::PiMessage;
use crate::agent::NativeMessage;
use crate::time;

/// The conversation the agent is in.
///
/// Attempts that failed and were retried stay in it, although pi hides them from the model (`context_edit`):
/// they were seen live, and history shows what happened. Summaries of compactions and branches are not messages.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PiConversation {
    /// Oldest first.
    pub messages: Vec<NativeMessage>,
    /// pi's own id of each message, in the same order; `fork` takes it.
    pub entry_ids: Vec<String>,
    /// The cursor for the next `get_entries`.
    pub leaf_id: Option<String>,
    /// The name somebody gave the session last.
    pub title: Option<String>,
}

#[derive(Debug)]
pub enum EntriesError {
    /// The reply is not what `get_entries` gives.
    Reply(serde_json::Error),
}

impl fmt::Display for EntriesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EntriesError::Reply(error) => write!(
                f,
                "pi's entries cannot be read ({error}); update pi, or report this with the version of pi"
            ),
        }
    }
}

impl std::error::Error for EntriesError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            EntriesError::Reply(error) => Some(error),
        }
    }
}

/// From the data of `get_entries`. With `since` in the request the walk ends where the answer begins.
pub fn conversation_from_reply(data: &Value) -> Result<PiConversation, EntriesError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        entries: Vec<Value>,
        leaf_id: Option<String>,
    }
    let data = Data::deserialize(data).map_err(EntriesError::Reply)?;
    let mut entries = Vec::with_capacity(data.entries.len());
    for value in &data.entries {
        entries.push(PiEntry::deserialize(value).map_err(EntriesError::Reply)?);
    }
    Ok(walk(entries, data.leaf_id))
}

/// From the lines of a session file, as pi would go on with it: where the last entry is. A line that cannot be read is
/// passed over; the last one may have been cut off by pi's end.
pub fn conversation_from_file(file: &[u8]) -> PiConversation {
    let lines = file.split(|byte| *byte == b'\n').skip(1);
    let entries: Vec<PiEntry> = lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let leaf_id = entries.last().map(|entry| entry.id.clone());
    walk(entries, leaf_id)
}

/// Whether a message from an entry has the same head, and so the same id, as the same message seen live. An
/// extension's message has not: pi stores the time of the entry instead of the message's.
pub fn has_stable_id(message: &NativeMessage) -> bool {
    let native_role = message.metadata.as_ref().and_then(|metadata| metadata.get("native_role"));
    native_role.and_then(Value::as_str) != Some("custom")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PiEntry {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    parent_id: Option<String>,
    #[serde(default)]
    timestamp: String,
    message: Option<Value>,
    // custom_message
    custom_type: Option<Value>,
    content: Option<Value>,
    display: Option<Value>,
    details: Option<Value>,
    // session_info
    name: Option<String>,
}

fn walk(entries: Vec<PiEntry>, leaf_id: Option<String>) -> PiConversation {
    let mut by_id: HashMap<String, PiEntry> =
        entries.into_iter().map(|entry| (entry.id.clone(), entry)).collect();
    let mut conversation = PiConversation { leaf_id: leaf_id.clone(), ..PiConversation::default() };
    let mut next = leaf_id;
    // An entry is taken out when visited, so a circle in a broken file ends the walk.
    while let Some(mut entry) = next.and_then(|id| by_id.remove(&id)) {
        next = entry.parent_id.take();
        if entry.kind == "session_info" && conversation.title.is_none() {
            conversation.title = entry.name.take();
        } else if let Some(message) = message_of(&mut entry) {
            conversation.messages.push(message);
            conversation.entry_ids.push(entry.id);
        }
    }
    conversation.messages.reverse();
    conversation.entry_ids.reverse();
    conversation
}

fn message_of(entry: &mut PiEntry) -> Option<NativeMessage> {
    let value = match entry.kind.as_str() {
        "message" => entry.message.take()?,
        "custom_message" => serde_json::json!({
            "role": "custom",
            "customType": entry.custom_type.take(),
            "content": entry.content.take(),
            "display": entry.display.take(),
            "details": entry.details.take(),
        }),
        _ => return None,
    };
    let message = serde_json::from_value::<PiMessage>(value).ok()?;
    Some(message.into_native(time::unix_ms(&entry.timestamp).unwrap_or(0)))
}
