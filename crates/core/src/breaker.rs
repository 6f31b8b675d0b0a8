//! Circuit breakers: who fails again and again is left alone for a while, then tried with a few calls.
//!
//! One set serves all sessions of a runner. For providers the caller says how each of the agent's answers ended, for
//! shell commands whether they ran out of time; how long a turn takes is never a failure.

mod blame;
mod circuit;
mod config;

use std::collections::BTreeMap;

use qd_wire::data::{BashBreakerState, BreakerState, CircuitState};
use qd_wire::{CodedError, ErrorCode};

pub use blame::blames_provider;
use circuit::{Circuit, CircuitRefusal};
pub use config::{BreakerConfig, CircuitLimits};

/// Providers with a circuit of their own; a model's name is a client's word, so there must be a bound.
const PROVIDERS_MAX: usize = 256;

/// Sessions whose shell commands are watched; those without trouble are forgotten at once.
const SESSIONS_MAX: usize = 10_000;

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BreakerRejection(String);

impl BreakerRejection {
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::ProviderPaused
    }
}

impl From<BreakerRejection> for CodedError {
    fn from(rejected: BreakerRejection) -> Self {
        rejected.code().with(rejected.0)
    }
}

/// A call to a provider that was let through; given back when it is known how it went.
#[derive(Debug, PartialEq, Eq)]
pub struct ProviderCall {
    provider: String,
    /// The test it is part of.
    round: Option<u64>,
}

/// A shell command that was let through.
#[derive(Debug, PartialEq, Eq)]
pub struct BashCall {
    session: String,
    all_round: Option<u64>,
    session_round: Option<u64>,
}

/// How a shell command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BashEnd {
    Done,
    TimedOut,
    /// It never ran, or nobody knows.
    Unknown,
}

#[derive(Debug, Default)]
struct ProviderCircuits {
    circuit: Circuit,
    accessed_at: i64,
    total_calls: u64,
    total_rejected: u64,
    total_successes: u64,
    total_failures: u64,
    latency_ms: u64,
    latencies: u64,
}

/// The breakers of one runner.
#[derive(Debug)]
pub struct Breakers {
    config: BreakerConfig,
    providers: BTreeMap<String, ProviderCircuits>,
    all: Circuit,
    sessions: BTreeMap<String, Circuit>,
    bash_calls: u64,
    bash_timeouts: u64,
    bash_rejected: u64,
}

impl Breakers {
    pub fn new(config: BreakerConfig) -> Self {
        Breakers {
            config,
            providers: BTreeMap::new(),
            all: Circuit::default(),
            sessions: BTreeMap::new(),
            bash_calls: 0,
            bash_timeouts: 0,
            bash_rejected: 0,
        }
    }

    /// Asks whether the provider may be asked something now.
    pub fn admit(&mut self, now: i64, provider: &str) -> Result<ProviderCall, BreakerRejection> {
        let (limits, enabled) = (self.config.provider, self.config.enabled);
        let entry = self.provider(now, provider);
        // Counted also when breakers are off: the figures are for people, the refusals are not.
        entry.total_calls += 1;
        let round = match entry.circuit.admit(now, &limits) {
            _ if !enabled => None,
            Ok(round) => round,
            Err(closed) => {
                entry.total_rejected += 1;
                let why = match closed {
                    CircuitRefusal::Open { seconds } => format!("recovery in {seconds}s"),
                    CircuitRefusal::Testing => {
                        format!("testing recovery with {} calls; retry soon", limits.half_open_max)
                    }
                };
                return Err(BreakerRejection(format!("Circuit breaker open for {provider} ({why})")));
            }
        };
        Ok(ProviderCall { provider: provider.to_owned(), round })
    }

    /// An answer of the provider ended well.
    pub fn succeeded(&mut self, now: i64, provider: &str) {
        let (limits, enabled) = (self.config.provider, self.config.enabled);
        let entry = self.provider(now, provider);
        entry.total_successes += 1;
        if enabled {
            entry.circuit.succeeded(now, &limits);
        }
    }

    /// An answer of the provider ended with an error.
    pub fn failed(&mut self, now: i64, provider: &str) {
        let (limits, enabled) = (self.config.provider, self.config.enabled);
        let entry = self.provider(now, provider);
        entry.total_failures += 1;
        if enabled {
            entry.circuit.failed(now, &limits);
        }
    }

    /// A call is over: its first answer took this long, or there was none.
    pub fn done(&mut self, call: &ProviderCall, latency_ms: Option<u64>) {
        let Some(entry) = self.providers.get_mut(&call.provider) else { return };
        entry.circuit.release(call.round);
        if let Some(latency_ms) = latency_ms {
            entry.latency_ms = entry.latency_ms.saturating_add(latency_ms);
            entry.latencies += 1;
        }
    }

    /// Asks whether a session may run a shell command now.
    pub fn admit_bash(&mut self, now: i64, session: &str) -> Result<BashCall, BreakerRejection> {
        self.bash_calls += 1;
        let (mut all_round, mut session_round) = (None, None);
        if self.config.enabled {
            all_round = self.all.admit(now, &self.config.bash_all).map_err(|closed| {
                self.bash_rejected += 1;
                rejected_bash("globally", closed, &self.config.bash_all)
            })?;
            // A session gets a circuit with its first timeout; until then there is nothing to ask.
            if let Some(circuit) = self.sessions.get_mut(session) {
                session_round = circuit.admit(now, &self.config.bash_session).map_err(|closed| {
                    self.bash_rejected += 1;
                    // Let through by the one and refused by the other: the test call of the first has not taken
                    // place.
                    self.all.release(all_round);
                    rejected_bash(&format!("for session {session}"), closed, &self.config.bash_session)
                })?;
            }
        }
        Ok(BashCall { session: session.to_owned(), all_round, session_round })
    }

    /// A shell command is over.
    pub fn bash_done(&mut self, now: i64, call: &BashCall, end: BashEnd) {
        self.all.release(call.all_round);
        if let Some(circuit) = self.sessions.get_mut(&call.session) {
            circuit.release(call.session_round);
        }
        if end == BashEnd::TimedOut {
            self.bash_timeouts += 1;
        }
        if !self.config.enabled {
            return;
        }
        let (all, own) = (self.config.bash_all, self.config.bash_session);
        match end {
            BashEnd::Unknown => {}
            BashEnd::Done => {
                self.all.succeeded(now, &all);
                if let Some(circuit) = self.sessions.get_mut(&call.session) {
                    circuit.succeeded(now, &own);
                }
            }
            BashEnd::TimedOut => {
                self.all.failed(now, &all);
                self.make_room(now);
                self.sessions.entry(call.session.clone()).or_default().failed(now, &own);
            }
        }
        // Most sessions never have trouble again, and a circuit kept for each would be a leak.
        if self.sessions.get_mut(&call.session).is_some_and(|circuit| circuit.is_calm(now, &own)) {
            self.sessions.remove(&call.session);
        }
    }

    /// The session runs no shell commands any more: it was closed or deleted.
    pub fn forget_bash(&mut self, session: &str) {
        self.sessions.remove(session);
    }

    /// How all providers stand, by name.
    pub fn providers(&self, now: i64) -> Vec<BreakerState> {
        let limits = &self.config.provider;
        let row = |(name, entry): (&String, &ProviderCircuits)| BreakerState {
            provider: name.clone(),
            state: entry.circuit.state(now, limits),
            failures: entry.circuit.failures(now, limits),
            last_failure_at: entry.circuit.last_failure_at(),
            changed_at: entry.circuit.changed_at(),
            accessed_at: entry.accessed_at,
            total_calls: entry.total_calls,
            total_rejected: entry.total_rejected,
            total_successes: entry.total_successes,
            total_failures: entry.total_failures,
            average_latency_ms: average(entry.latency_ms, entry.latencies),
            half_open_calls: entry.circuit.tests(),
        };
        self.providers.iter().map(row).collect()
    }

    /// How shell commands stand.
    pub fn bash(&self, now: i64) -> BashBreakerState {
        let limits = &self.config.bash_session;
        let is_open = |circuit: &&Circuit| circuit.state(now, limits) == CircuitState::Open;
        BashBreakerState {
            state: self.all.state(now, &self.config.bash_all),
            failures: self.all.failures(now, &self.config.bash_all),
            sessions: self.sessions.len() as u64,
            open_sessions: self.sessions.values().filter(is_open).count() as u64,
            total_calls: self.bash_calls,
            total_timeouts: self.bash_timeouts,
            total_rejected: self.bash_rejected,
        }
    }

    fn provider(&mut self, now: i64, name: &str) -> &mut ProviderCircuits {
        if self.providers.len() >= PROVIDERS_MAX && !self.providers.contains_key(name) {
            let oldest = self.providers.iter().min_by_key(|(_, entry)| entry.accessed_at);
            if let Some(oldest) = oldest.map(|(name, _)| name.clone()) {
                self.providers.remove(&oldest);
            }
        }
        let entry = self.providers.entry(name.to_owned()).or_insert_with(|| ProviderCircuits {
            circuit: Circuit::new(now),
            ..ProviderCircuits::default()
        });
        entry.accessed_at = now;
        entry
    }

    /// Forgets sessions without trouble, and if all have some, any.
    fn make_room(&mut self, now: i64) {
        if self.sessions.len() < SESSIONS_MAX {
            return;
        }
        let limits = self.config.bash_session;
        self.sessions.retain(|_, circuit| !circuit.is_calm(now, &limits));
        if self.sessions.len() >= SESSIONS_MAX {
            self.sessions.pop_first();
        }
    }
}

fn rejected_bash(whose: &str, closed: CircuitRefusal, limits: &CircuitLimits) -> BreakerRejection {
    let why = match closed {
        CircuitRefusal::Open { seconds } => format!(
            "{} commands timed out within {}s; recovery in {seconds}s",
            limits.threshold,
            limits.window_ms / 1000
        ),
        CircuitRefusal::Testing => {
            format!("testing recovery with {} commands; retry soon", limits.half_open_max)
        }
    };
    BreakerRejection(format!("Bash circuit breaker open {whose}: {why}"))
}

fn average(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

#[cfg(test)]
#[path = "breaker/tests.rs"]
mod tests;
