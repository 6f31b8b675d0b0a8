//! How a runner and its circuit breakers are.

use crate::derive::{JsonSchema, TS};
use serde::{Deserialize, Serialize};

/// Answer of `runner.health`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct RunnerHealthData {
    /// One for each provider that was asked something.
    pub breakers: Vec<BreakerState>,
    pub bash: BashBreakerState,
    pub max_sessions: u64,
    /// Agents running or starting.
    pub agents: u64,
}

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, TS, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    #[default]
    Closed,
    HalfOpen,
    Open,
}

impl CircuitState {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            CircuitState::Closed => "closed",
            CircuitState::HalfOpen => "half_open",
            CircuitState::Open => "open",
        }
    }
}

/// The circuit breaker of one provider. Times are Unix milliseconds.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct BreakerState {
    pub provider: String,
    pub state: CircuitState,
    /// Failures within the window.
    pub failures: u64,
    pub last_failure_at: Option<i64>,
    pub changed_at: i64,
    pub accessed_at: i64,
    pub total_calls: u64,
    pub total_rejected: u64,
    pub total_successes: u64,
    pub total_failures: u64,
    pub average_latency_ms: f64,
    /// Calls let through to test whether the provider is back.
    pub half_open_calls: u64,
}

/// The circuit breaker of shell commands, for all sessions and for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct BashBreakerState {
    pub state: CircuitState,
    pub failures: u64,
    pub sessions: u64,
    pub open_sessions: u64,
    pub total_calls: u64,
    pub total_timeouts: u64,
    pub total_rejected: u64,
}
