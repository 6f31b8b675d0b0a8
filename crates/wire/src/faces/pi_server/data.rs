//! The `data` of responses.

mod metrics;

use std::collections::BTreeMap;

use crate::derive::{JsonSchema, TS, wire};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use metrics::*;

/// A response without data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(type = "undefined")]
pub struct NoData {}

#[wire(Default, camelCase)]
pub struct SessionInfo {
    pub session_id: String,
    pub session_name: Option<String>,
    pub session_file: Option<String>,
    /// pi's own description of the model.
    #[ts(optional, type = "Model")]
    pub model: Option<Value>,
    pub thinking_level: String,
    pub is_streaming: bool,
    pub message_count: u64,
    /// ISO 8601.
    pub created_at: String,
    /// Ours: the machine and the kind of agent.
    pub runner_id: Option<String>,
    pub harness: Option<String>,
    /// Ours: `idle`, `working`, `dormant`, `failed`, …
    pub status: Option<String>,
    pub cwd: Option<String>,
}

/// A model as pi describes it.
#[wire(Default, camelCase)]
pub struct Model {
    pub id: String,
    pub provider: String,
    pub name: Option<String>,
    pub api: Option<String>,
    pub base_url: Option<String>,
    pub reasoning: Option<bool>,
    pub input: Option<Vec<String>>,
    #[ts(optional, type = "Record<string, number>")]
    pub cost: Option<BTreeMap<String, f64>>,
    pub context_window: Option<u64>,
    pub max_tokens: Option<u64>,
}

#[wire(Default)]
pub struct SessionList {
    pub sessions: Vec<SessionInfo>,
}

#[wire(Default, camelCase)]
pub struct SessionCreated {
    pub session_id: String,
    pub session_info: SessionInfo,
}

#[wire(Copy, Default, Eq)]
pub struct SessionDeleted {
    pub deleted: bool,
}

#[wire(Default, camelCase)]
pub struct SessionSwitched {
    pub session_info: SessionInfo,
}

#[wire(Default, camelCase)]
pub struct StoredSessionList {
    pub sessions: Vec<StoredSessionInfo>,
}

/// A session's file, whether the session is loaded or not.
#[wire(Default, camelCase)]
pub struct StoredSessionInfo {
    #[serde(flatten)]
    #[ts(flatten)]
    pub info: SessionInfo,
    /// The same as `sessionFile`.
    pub session_path: String,
    pub file_exists: bool,
}

#[wire(Default)]
pub struct ModelList {
    pub models: Vec<Model>,
}

#[wire(Default, Eq)]
pub struct SlashCommandList {
    pub commands: Vec<SlashCommand>,
}

#[wire(Default, Eq)]
pub struct SlashCommand {
    pub name: String,
    pub description: Option<String>,
    /// `extension`, `skill`, `prompt`.
    pub source: String,
    pub path: Option<String>,
}

#[wire(Default, Eq)]
pub struct SkillList {
    pub skills: Vec<Skill>,
}

#[wire(Default, Eq, camelCase)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub file_path: String,
    pub source: String,
}

#[wire(Default, Eq)]
pub struct ToolList {
    pub tools: Vec<Tool>,
}

#[wire(Default, Eq)]
pub struct Tool {
    pub name: String,
    pub description: String,
}

#[wire(Default, Eq)]
pub struct SessionFileList {
    pub files: Vec<SessionFile>,
}

#[wire(Default, Eq, camelCase)]
pub struct SessionFile {
    pub path: String,
    pub name: String,
    /// ISO 8601.
    pub modified_at: String,
}

#[wire(Default)]
pub struct MessageList {
    /// In pi's own form.
    #[ts(type = "unknown[]")]
    pub messages: Vec<Value>,
}

#[wire(Default)]
pub struct ModelSet {
    pub model: Model,
}

/// `null` when there is nothing to cycle through.
#[wire(Default, camelCase)]
pub struct ModelCycled {
    pub model: Model,
    pub thinking_level: String,
    pub is_scoped: bool,
}

/// `null` when there is nothing to cycle through.
#[wire(Default, Eq)]
pub struct ThinkingLevelCycled {
    pub level: String,
}

#[wire(Default, camelCase)]
pub struct Compacted {
    pub summary: String,
    pub first_kept_entry_id: String,
    pub tokens_before: u64,
    #[ts(optional, type = "unknown")]
    pub details: Option<Value>,
}

#[wire(Default, Eq, camelCase)]
pub struct BashResult {
    pub exit_code: Option<i64>,
    pub output: String,
    pub cancelled: bool,
    pub truncated: Option<bool>,
    pub full_output_path: Option<String>,
}

#[wire(Default, camelCase)]
pub struct SessionStats {
    pub session_file: Option<String>,
    pub session_id: String,
    pub user_messages: u64,
    pub assistant_messages: u64,
    pub tool_calls: u64,
    pub tool_results: u64,
    pub total_messages: u64,
    pub tokens: TokenStats,
    pub cost: f64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct TokenStats {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total: u64,
}

#[wire(Default, Eq)]
pub struct Exported {
    pub path: String,
}

#[wire(Copy, Default, Eq)]
pub struct Moved {
    pub cancelled: bool,
}

#[wire(Default, Eq, camelCase)]
pub struct Forked {
    pub text: String,
    pub cancelled: bool,
    /// The harness's own name of the new conversation.
    pub session_id: Option<String>,
}

#[wire(Default, Eq)]
pub struct ForkMessageList {
    pub messages: Vec<ForkMessage>,
}

#[wire(Default, Eq, camelCase)]
pub struct ForkMessage {
    pub entry_id: String,
    pub text: String,
}

#[wire(nulls, Default, Eq, camelCase)]
pub struct SessionTree {
    pub current_leaf_id: Option<String>,
    pub nodes: Vec<TreeNode>,
}

#[wire(Default, Eq, camelCase)]
pub struct TreeNode {
    pub entry_id: String,
    #[serde(default)]
    pub parent_id: Option<String>,
    pub entry_type: String,
    pub role: Option<String>,
    /// A preview.
    pub text: Option<String>,
    pub timestamp: Option<String>,
    pub label: Option<String>,
}

#[wire(Default, Eq, camelCase)]
pub struct Navigated {
    pub editor_text: Option<String>,
    pub cancelled: bool,
    pub aborted: Option<bool>,
}

#[wire(nulls, Default, Eq)]
pub struct LastAssistantText {
    pub text: Option<String>,
}

/// `null` when the model's window is not known.
#[wire(nulls, Default, camelCase)]
pub struct ContextUsage {
    pub tokens: Option<u64>,
    pub context_window: u64,
    pub percent: Option<f64>,
}
