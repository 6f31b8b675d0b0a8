//! What an attach answers: the state, the records to catch up with, and what is being generated.

use serde_json::Value;

use super::SessionState;
use crate::derive::wire;
use crate::input::InputRequest;
use crate::message::{Message, Role};
use crate::run::TerminalSnapshot;

/// Answer of `session.attach`: where the client stands, and the message being generated.
#[wire]
pub struct AttachData {
    pub resume: Resume,
    /// Records up to this number are covered by the answer and what is replayed right after it.
    pub seq: u64,
    /// Of a resync: the last record that follows before what is new.
    pub replay_until: Option<u64>,
    pub state: SessionState,
    pub pending_input: Vec<InputRequest>,
    pub partial: Option<Partial>,
    /// With `gap`: the newest messages of the conversation, oldest first.
    pub messages: Option<Vec<Message>>,
    /// Of a program in a terminal, with `gap`: what is on its screen.
    pub terminal: Option<Box<TerminalSnapshot>>,
}

#[wire(words)]
pub enum Resume {
    /// Records after the cursor follow.
    Ok,
    /// The cursor is of no use; `messages` is a snapshot.
    Gap,
}

/// The message being generated so far, and the tools running now.
#[wire]
// TypeScript has a `Partial` of its own.
#[ts(rename = "PartialTurn")]
pub struct Partial {
    pub message: Option<PartialMessage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<RunningTool>>")]
    pub tools: Vec<RunningTool>,
}

#[wire]
pub struct PartialMessage {
    pub message_id: String,
    pub role: Role,
    pub blocks: Vec<PartialBlock>,
}

/// One content block so far; deltas continue it at `offset` characters.
#[wire]
pub struct PartialBlock {
    pub content_index: u32,
    pub kind: PartialKind,
    pub text: String,
    pub offset: u64,
    pub tool_call_id: Option<String>,
    pub name: Option<String>,
}

#[wire(words)]
pub enum PartialKind {
    Text,
    Thinking,
    ToolCall,
}

#[wire]
pub struct RunningTool {
    pub tool_call_id: String,
    pub name: String,
    #[ts(optional, type = "unknown")]
    pub input: Option<Value>,
    #[ts(optional, type = "unknown")]
    pub partial_output: Option<Value>,
    /// Unix milliseconds.
    pub started_at: i64,
}
