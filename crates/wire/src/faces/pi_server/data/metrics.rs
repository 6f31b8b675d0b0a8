//! Health, metrics and the history of commands, as the document has them.
//!
//! The shapes are the document's. Figures of things that we do not have (locks of its session store, say) are there
//! with zeros, because its clients read them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::derive::wire;
use crate::error::ErrorCode;

/// Health of the whole server.
#[wire(Default, Eq, camelCase)]
pub struct Health {
    pub healthy: bool,
    pub issues: Vec<String>,
    pub has_open_circuit: bool,
    pub has_open_bash_circuit: bool,
}

#[wire(Default, camelCase)]
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

#[wire(Copy, Default, Eq, camelCase)]
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
#[wire(Copy, Default, Eq, camelCase)]
pub struct RateLimitUsage {
    pub global_count: u64,
    pub global_limit: u64,
}

#[wire(Default, Eq, camelCase)]
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

#[wire(Copy, Default, Eq, camelCase)]
pub struct ReplayMetrics {
    pub in_flight_count: u64,
    pub outcome_count: u64,
    pub idempotency_cache_size: u64,
    pub max_in_flight_commands: u64,
    pub max_command_outcomes: u64,
    pub in_flight_rejections: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct VersionMetrics {
    pub session_count: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct ExecutionMetrics {
    pub lane_count: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct LockMetrics {
    pub active_locks: u64,
    pub timeout_count: u64,
    pub waiting_count: u64,
    pub queue_full_rejections: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct ExtensionUiMetrics {
    pub pending_count: u64,
    pub max_pending_requests: u64,
    pub rejected_count: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct SessionStoreMetrics {
    pub metadata_reset_count: u64,
}

#[wire(Copy, Default, Eq, camelCase)]
pub struct JournalMetrics {
    pub enabled: bool,
    pub entries_written: u64,
    pub write_errors: u64,
}

/// Of one provider on one machine; the machine is ours.
#[wire(Default, camelCase)]
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

#[wire(Default, Eq, camelCase)]
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
#[wire(Default, Eq, camelCase)]
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

#[wire(Default, camelCase)]
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
#[wire(Default, Eq, camelCase)]
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
