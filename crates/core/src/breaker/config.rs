//! Settings of the breakers.

/// When one circuit opens and closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CircuitLimits {
    /// Failures within the window that open it.
    pub threshold: usize,
    pub window_ms: i64,
    /// How long nothing is let through.
    pub recovery_ms: i64,
    /// Calls that may be under way to test whether it works again.
    pub half_open_max: u64,
    /// Successes in a row that close it again.
    pub successes_to_close: u64,
}

/// Settings of all breakers of a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Off: everything is counted and nothing refused.
    pub enabled: bool,
    /// For each provider.
    pub provider: CircuitLimits,
    /// For the shell commands of each session.
    pub bash_session: CircuitLimits,
    /// For the shell commands of all sessions together.
    pub bash_all: CircuitLimits,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        let bash = CircuitLimits {
            threshold: 10,
            window_ms: 120_000,
            recovery_ms: 30_000,
            half_open_max: 3,
            successes_to_close: 2,
        };
        BreakerConfig {
            enabled: true,
            provider: CircuitLimits {
                threshold: 5,
                window_ms: 60_000,
                recovery_ms: 30_000,
                half_open_max: 5,
                successes_to_close: 2,
            },
            bash_session: bash,
            bash_all: CircuitLimits { threshold: 50, ..bash },
        }
    }
}
