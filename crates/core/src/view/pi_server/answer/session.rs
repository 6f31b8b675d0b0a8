//! Sessions, stored sessions, and the health of the machines they run on.
//!
//! The document knows one machine; here there may be many. What it asks about "the server" is answered for all of
//! them together, the worst state counting.

use qd_wire::data::{
    CircuitState, RunnerHealthData, SessionState, SessionStatus, SessionSummary, StoredSession,
    StoredSessionsData,
};
use qd_wire::pi_server::{
    BashCircuitBreaker, CircuitBreaker, Health, Metrics, SessionCreated, SessionInfo, SessionList,
    SessionSwitched, StoredSessionInfo, StoredSessionList,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::runner_answer::{RunnerAnswer, to_text};
use crate::time::iso_8601;

/// The level of sessions whose agent says nothing about it.
const THINKING_LEVEL: &str = "off";

/// How a session stands.
pub fn session_info(state: &SessionState) -> SessionInfo {
    let named = state.model.as_ref().map(|model| model_value(&model.provider, &model.model_id));
    SessionInfo {
        session_id: state.session_id.clone(),
        session_name: state.title.clone(),
        session_file: state.native_session_file.clone(),
        model: state.native_model.clone().or(named),
        thinking_level: state.thinking_level.clone().unwrap_or_else(|| THINKING_LEVEL.to_owned()),
        is_streaming: state.status == SessionStatus::Working,
        message_count: state.message_count,
        created_at: iso_8601(state.created_at.unwrap_or(0)),
        runner_id: Some(state.runner_id.clone()),
        harness: Some(state.harness.clone()),
        status: Some(state.status.as_str().to_owned()),
        cwd: state.cwd.clone(),
    }
}

/// The same from what the hub remembers of a session whose machine is away.
pub fn summary_info(summary: &SessionSummary) -> SessionInfo {
    let model = summary.provider.as_ref().zip(summary.model.as_ref());
    SessionInfo {
        session_id: summary.session_id.clone(),
        session_name: summary.title.clone(),
        session_file: None,
        model: model.map(|(provider, model)| model_value(provider, model)),
        thinking_level: THINKING_LEVEL.to_owned(),
        is_streaming: summary.state == SessionStatus::Working.as_str(),
        message_count: summary.message_count,
        created_at: iso_8601(summary.created_at),
        runner_id: Some(summary.runner_id.clone()),
        harness: Some(summary.harness.clone()),
        status: Some(summary.state.clone()),
        cwd: summary.cwd.clone(),
    }
}

/// A session's file.
pub fn stored_info(stored: &StoredSession) -> StoredSessionInfo {
    let model = stored.provider.as_ref().zip(stored.model.as_ref());
    let info = SessionInfo {
        session_id: stored.session_id.clone(),
        session_name: stored.title.clone(),
        session_file: Some(stored.path.clone()),
        model: model.map(|(provider, model)| model_value(provider, model)),
        thinking_level: stored.thinking_level.clone().unwrap_or_else(|| THINKING_LEVEL.to_owned()),
        is_streaming: false,
        message_count: stored.message_count,
        created_at: iso_8601(stored.created_at),
        runner_id: None,
        harness: None,
        status: None,
        cwd: Some(stored.cwd.clone()),
    };
    StoredSessionInfo { info, session_path: stored.path.clone(), file_exists: stored.exists }
}

/// The breakers of one machine.
pub fn breakers(runner_id: &str, health: &RunnerHealthData) -> Vec<CircuitBreaker> {
    let shaped = health.breakers.iter().map(|breaker| CircuitBreaker {
        provider_name: breaker.provider.clone(),
        state: breaker.state.as_str().to_owned(),
        failure_count: breaker.failures,
        last_failure_time: breaker.last_failure_at,
        last_state_change: breaker.changed_at,
        last_access_time: breaker.accessed_at,
        total_calls: breaker.total_calls,
        total_rejected: breaker.total_rejected,
        total_slow_calls: 0,
        total_successes: breaker.total_successes,
        total_failures: breaker.total_failures,
        avg_latency_ms: breaker.average_latency_ms,
        half_open_calls: breaker.half_open_calls,
        runner_id: Some(runner_id.to_owned()).filter(|id| !id.is_empty()),
    });
    shaped.collect()
}

/// The breakers of shell commands of all machines as one: counts are summed, the worst state counts.
pub fn bash_breaker<'a>(machines: impl IntoIterator<Item = &'a RunnerHealthData>) -> BashCircuitBreaker {
    let mut worst = CircuitState::Closed;
    let mut sum = BashCircuitBreaker { enabled: true, ..BashCircuitBreaker::default() };
    for machine in machines {
        let bash = &machine.bash;
        worst = worst.max(bash.state);
        sum.global_failure_count += bash.failures;
        sum.session_count += bash.sessions;
        sum.open_session_count += bash.open_sessions;
        sum.total_calls += bash.total_calls;
        sum.total_timeouts += bash.total_timeouts;
        sum.total_rejected += bash.total_rejected;
    }
    sum.global_state = worst.as_str().to_owned();
    sum
}

/// The health of all machines. `issues` are those found elsewhere (limits nearly reached); open breakers are told as
/// issues too, but a server that refuses what would fail anyway is not unhealthy.
pub fn health(issues: Vec<String>, machines: &[RunnerHealthData]) -> Health {
    let is_open = |state: CircuitState| state == CircuitState::Open;
    let has_open_circuit =
        machines.iter().flat_map(|machine| &machine.breakers).any(|breaker| is_open(breaker.state));
    let has_open_bash_circuit =
        machines.iter().any(|machine| is_open(machine.bash.state) || machine.bash.open_sessions > 0);
    let healthy = issues.is_empty();
    let mut issues = issues;
    if has_open_circuit {
        issues.push("One or more LLM provider circuits are open".to_owned());
    }
    if has_open_bash_circuit {
        issues.push("Bash command circuit breaker is open".to_owned());
    }
    Health { healthy, issues, has_open_circuit, has_open_bash_circuit }
}

pub(super) fn list(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Sessions {
        sessions: Vec<Listed>,
    }
    // Runners tell how a session stands, the hub what it remembers.
    #[derive(Deserialize)]
    #[serde(untagged)]
    #[allow(clippy::large_enum_variant, reason = "lives for one answer only")]
    enum Listed {
        State(SessionState),
        Summary(SessionSummary),
    }
    let listed: Sessions = said.read()?;
    let info = |listed: &Listed| match listed {
        Listed::State(state) => session_info(state),
        Listed::Summary(summary) => summary_info(summary),
    };
    to_text(&SessionList { sessions: listed.sessions.iter().map(info).collect() })
}

pub(super) fn created(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    #[derive(Deserialize)]
    struct Created {
        session_id: String,
        state: SessionState,
    }
    let created: Created = said.read()?;
    to_text(&SessionCreated { session_id: created.session_id, session_info: session_info(&created.state) })
}

pub(super) fn switched(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    to_text(&SessionSwitched { session_info: session_info(&said.read()?) })
}

pub(super) fn state(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    to_text(&session_info(&said.read()?))
}

pub(super) fn stored(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let stored: StoredSessionsData = said.read()?;
    to_text(&StoredSessionList { sessions: stored.sessions.iter().map(stored_info).collect() })
}

pub(super) fn health_of_one(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    to_text(&health(Vec::new(), &[said.read()?]))
}

/// What one machine knows; the hub adds its own numbers.
pub(super) fn metrics(said: &RunnerAnswer<'_>) -> Result<String, serde_json::Error> {
    let machine: RunnerHealthData = said.read()?;
    let metrics = Metrics {
        circuit_breakers: breakers("", &machine),
        bash_circuit_breaker: bash_breaker([&machine]),
        ..Metrics::default()
    };
    to_text(&metrics)
}

fn model_value(provider: &str, model_id: &str) -> Value {
    json!({ "id": model_id, "provider": provider })
}
