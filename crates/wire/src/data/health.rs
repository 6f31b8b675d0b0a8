//! How a runner and its circuit breakers are.

use crate::derive::wire;

/// Answer of `runner.health`.
#[wire(Default)]
pub struct RunnerHealthData {
    /// One for each provider that was asked something.
    pub breakers: Vec<BreakerState>,
    pub bash: BashBreakerState,
    pub max_sessions: u64,
    /// Agents running or starting.
    pub agents: u64,
}

#[wire(words, Default, PartialOrd, Ord)]
pub enum CircuitState {
    #[default]
    Closed,
    HalfOpen,
    Open,
}

/// The circuit breaker of one provider. Times are Unix milliseconds.
#[wire(Default)]
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
#[wire(Copy, Default, Eq)]
pub struct BashBreakerState {
    pub state: CircuitState,
    pub failures: u64,
    pub sessions: u64,
    pub open_sessions: u64,
    pub total_calls: u64,
    pub total_timeouts: u64,
    pub total_rejected: u64,
}
