//! The `data` of responses.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ts_rs::TS;

use crate::error::ErrorCode;

/// A response without data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(type = "undefined")]
pub struct NoData {}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
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
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
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

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SessionList {
    pub sessions: Vec<SessionInfo>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionCreated {
    pub session_id: String,
    pub session_info: SessionInfo,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SessionDeleted {
    pub deleted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSwitched {
    pub session_info: SessionInfo,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredSessionList {
    pub sessions: Vec<StoredSessionInfo>,
}

/// A session's file, whether the session is loaded or not.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct StoredSessionInfo {
    #[serde(flatten)]
    #[ts(flatten)]
    pub info: SessionInfo,
    /// The same as `sessionFile`.
    pub session_path: String,
    pub file_exists: bool,
}

/// Health of the whole server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    pub healthy: bool,
    pub issues: Vec<String>,
    pub has_open_circuit: bool,
    pub has_open_bash_circuit: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metrics {
    pub session_count: u64,
    pub connection_count: u64,
    pub pending_connection_count: u64,
    pub total_commands_executed: u64,
    pub commands_rejected: CommandsRejected,
    pub zombie_sessions_detected: u64,
    pub zombie_sessions_cleaned: u64,
    pub double_unregister_errors: u64,
    pub rate_limit_usage: RateLimitUsage,
    pub stores: StoreMetrics,
    pub circuit_breakers: Vec<CircuitBreaker>,
    pub bash_circuit_breaker: BashCircuitBreaker,
    /// `counters`, `gauges`, `histograms`, `recentEvents`.
    #[ts(type = "Record<string, unknown>")]
    pub metrics: BTreeMap<String, Value>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandsRejected {
    pub session_limit: u64,
    pub message_size: u64,
    pub rate_limit: u64,
    pub global_rate_limit: u64,
    pub connection_limit: u64,
    #[serde(rename = "extensionUIResponseRateLimit")]
    pub extension_ui_response_rate_limit: u64,
}

/// Of the principal that asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RateLimitUsage {
    pub global_count: u64,
    pub global_limit: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoreMetrics {
    pub replay: ReplayMetrics,
    pub version: VersionMetrics,
    pub execution: ExecutionMetrics,
    pub lock: LockMetrics,
    #[serde(rename = "extensionUI")]
    pub extension_ui: ExtensionUiMetrics,
    pub session_store: SessionStoreMetrics,
    pub journal: JournalMetrics,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayMetrics {
    pub in_flight_count: u64,
    pub outcome_count: u64,
    pub idempotency_cache_size: u64,
    pub max_in_flight_commands: u64,
    pub max_command_outcomes: u64,
    pub in_flight_rejections: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VersionMetrics {
    pub session_count: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionMetrics {
    pub lane_count: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockMetrics {
    pub active_locks: u64,
    pub timeout_count: u64,
    pub waiting_count: u64,
    pub queue_full_rejections: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtensionUiMetrics {
    pub pending_count: u64,
    pub max_pending_requests: u64,
    pub rejected_count: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionStoreMetrics {
    pub metadata_reset_count: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JournalMetrics {
    pub enabled: bool,
    pub entries_written: u64,
    pub write_errors: u64,
}

/// Of one provider on one machine; the machine is ours.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct CircuitBreaker {
    pub provider_name: String,
    /// `closed`, `open`, `half_open`.
    pub state: String,
    pub failure_count: u64,
    /// Unix milliseconds.
    pub last_failure_time: Option<i64>,
    pub last_state_change: i64,
    pub last_access_time: i64,
    pub total_calls: u64,
    pub total_rejected: u64,
    /// Always 0: a long turn is no failure.
    pub total_slow_calls: u64,
    pub total_successes: u64,
    pub total_failures: u64,
    pub avg_latency_ms: f64,
    pub half_open_calls: u64,
    pub runner_id: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BashCircuitBreaker {
    pub enabled: bool,
    /// `closed`, `open`, `half_open`; the worst of all machines.
    pub global_state: String,
    pub global_failure_count: u64,
    pub session_count: u64,
    pub open_session_count: u64,
    pub total_calls: u64,
    pub total_timeouts: u64,
    pub total_rejected: u64,
}

/// What was found in the journal when the server started.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct StartupRecovery {
    pub enabled: bool,
    pub initialized: bool,
    pub init_state: String,
    pub initialization_error: Option<String>,
    pub journal_path: String,
    pub schema_version: u64,
    pub entries_scanned: u64,
    pub recovered_outcomes: u64,
    /// Commands that were cut off.
    pub indeterminate_commands: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct CommandHistory {
    pub enabled: bool,
    #[ts(type = "Record<string, unknown>")]
    pub filters: BTreeMap<String, Value>,
    /// Newest first.
    pub entries: Vec<HistoryEntry>,
    pub returned: u64,
    pub truncated: bool,
    pub max_items_returned: u64,
    pub max_items_allowed: u64,
}

/// One command of the principal that asks. What was said in it is not kept, only its fingerprint.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct HistoryEntry {
    pub command_id: Option<String>,
    pub command_type: String,
    pub session_id: Option<String>,
    pub idempotency_key: Option<String>,
    /// `v2:sha256:<hex>`.
    pub fingerprint: String,
    /// `in_flight`, `finished`, `indeterminate`.
    pub state: String,
    pub success: Option<bool>,
    pub error: Option<String>,
    /// Ours: what programs decide by.
    pub code: Option<ErrorCode>,
    pub session_version: Option<u64>,
    pub timed_out: Option<bool>,
    /// Unix milliseconds.
    pub accepted_at: i64,
    pub finished_at: Option<i64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct ModelList {
    pub models: Vec<Model>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SlashCommandList {
    pub commands: Vec<SlashCommand>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct SlashCommand {
    pub name: String,
    pub description: Option<String>,
    /// `extension`, `skill`, `prompt`.
    pub source: String,
    pub path: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SkillList {
    pub skills: Vec<Skill>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub file_path: String,
    pub source: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<Tool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct Tool {
    pub name: String,
    pub description: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SessionFileList {
    pub files: Vec<SessionFile>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionFile {
    pub path: String,
    pub name: String,
    /// ISO 8601.
    pub modified_at: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct MessageList {
    /// In pi's own form.
    #[ts(type = "unknown[]")]
    pub messages: Vec<Value>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct ModelSet {
    pub model: Model,
}

/// `null` when there is nothing to cycle through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelCycled {
    pub model: Model,
    pub thinking_level: String,
    pub is_scoped: bool,
}

/// `null` when there is nothing to cycle through.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct ThinkingLevelCycled {
    pub level: String,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct Compacted {
    pub summary: String,
    pub first_kept_entry_id: String,
    pub tokens_before: u64,
    #[ts(optional, type = "unknown")]
    pub details: Option<Value>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct BashResult {
    pub exit_code: Option<i64>,
    pub output: String,
    pub cancelled: bool,
    pub truncated: Option<bool>,
    pub full_output_path: Option<String>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
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

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenStats {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct Exported {
    pub path: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct Moved {
    pub cancelled: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct Forked {
    pub text: String,
    pub cancelled: bool,
    /// The harness's own name of the new conversation.
    pub session_id: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct ForkMessageList {
    pub messages: Vec<ForkMessage>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    pub entry_id: String,
    pub text: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionTree {
    pub current_leaf_id: Option<String>,
    pub nodes: Vec<TreeNode>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[ts(optional_fields)]
pub struct Navigated {
    pub editor_text: Option<String>,
    pub cancelled: bool,
    pub aborted: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct LastAssistantText {
    pub text: Option<String>,
}

/// `null` when the model's window is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContextUsage {
    pub tokens: Option<u64>,
    pub context_window: u64,
    pub percent: Option<f64>,
}
