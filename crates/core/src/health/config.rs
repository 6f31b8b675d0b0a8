//! How patient supervision is.

use std::time::Duration;

/// Times of supervision; the defaults are those of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// Between two looks at the process.
    pub sample: Duration,
    /// Between two `session.heartbeat`s.
    pub heartbeat: Duration,
    /// Silence while working after which a person is warned.
    pub warn_after: Duration,
    /// Silence while working after which an agent that answers no probe either is killed and started again.
    pub restart_after: Option<Duration>,
    /// Between two probes.
    pub probe_every: Duration,
    /// For the answer to a probe.
    pub probe_timeout: Duration,
}

impl Default for HealthConfig {
    fn default() -> Self {
        HealthConfig {
            sample: Duration::from_secs(2),
            heartbeat: Duration::from_secs(10),
            warn_after: Duration::from_secs(30),
            restart_after: None,
            probe_every: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(5),
        }
    }
}
