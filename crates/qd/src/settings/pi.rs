//! What the settings of the pi-server protocol, of questions and of breakers come to.
//!
//! Zero means "no limit" or "never" where a setting says so; elsewhere it is an error, because it would mean that
//! nothing works.

use std::time::Duration;

use qd_core::breaker::BreakerConfig;
use qd_hub::PiServerConfig;

use super::load::{bounded, seconds, seconds_or_off};
use super::{Layer, OnOff, Program, SecondsOrOff};
use crate::error::Result;

/// A year of minutes; more is a mistake of units.
const MINUTES_MAX: u64 = 365 * 24 * 60;
/// A gibibyte; a message or a backlog is held in memory.
const BYTES_MAX: u64 = 1 << 30;
/// As many as one process can hold; more is a mistake.
const COUNT_MAX: u64 = 10_000_000;
/// What clients of the original know.
const QUESTION_TIMEOUT_OF_PI_SERVER: Duration = Duration::from_secs(60);

/// A setting of a layer, read by a function that knows its name, or the default.
macro_rules! setting {
    ($layer:ident.$name:ident, $read:ident, $default:expr) => {
        $read(stringify!($name), $layer.$name, $default)?
    };
}

/// The layer over the face's own defaults.
pub(super) fn face(layer: &Layer) -> Result<PiServerConfig> {
    let defaults = PiServerConfig::default();
    let minutes = layer.pi_idempotency_minutes.unwrap_or(defaults.key_life.as_secs() / 60);
    let minutes = bounded("pi_idempotency_minutes", minutes, MINUTES_MAX)?;
    let wait = |name: &str, value: Option<u64>, default: Duration| seconds(name, value, default.as_secs());
    Ok(PiServerConfig {
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        insecure_no_auth: layer.insecure_no_auth.unwrap_or(false),
        rate_per_minute: layer.pi_rate_per_minute.unwrap_or(defaults.rate_per_minute),
        global_rate_per_minute: layer.pi_global_rate_per_minute.unwrap_or(defaults.global_rate_per_minute),
        ui_rate_per_minute: layer.pi_ui_rate_per_minute.unwrap_or(defaults.ui_rate_per_minute),
        message_bytes_max: setting!(layer.pi_message_bytes_max, bytes, defaults.message_bytes_max),
        connections_max: setting!(layer.pi_connections_max, count, defaults.connections_max),
        sessions_max: setting!(layer.pi_sessions_max, count, defaults.sessions_max),
        pending_max: setting!(layer.pi_pending_max, count, defaults.pending_max),
        in_flight_max: setting!(layer.pi_in_flight_max, count, defaults.in_flight_max),
        in_flight_per_principal_max: setting!(
            layer.pi_in_flight_per_principal_max,
            count,
            defaults.in_flight_per_principal_max
        ),
        outcomes_max: setting!(layer.pi_outcomes_max, count, defaults.outcomes_max),
        outcome_bytes_max: setting!(layer.pi_outcome_bytes_max, bytes, defaults.outcome_bytes_max),
        key_life: Duration::from_secs(minutes * 60),
        dependency_wait: setting!(layer.pi_dependency_wait_seconds, wait, defaults.dependency_wait),
        work_timeout: setting!(layer.pi_work_timeout_seconds, wait, defaults.work_timeout),
        read_timeout: setting!(layer.pi_read_timeout_seconds, wait, defaults.read_timeout),
        backlog_bytes_max: setting!(layer.pi_backlog_bytes_max, bytes, defaults.backlog_bytes_max),
        ..defaults
    })
}

pub(super) fn question_timeout(value: Option<SecondsOrOff>, program: Program) -> Result<Option<Duration>> {
    match (value, program) {
        (None, Program::PiServer) => Ok(Some(QUESTION_TIMEOUT_OF_PI_SERVER)),
        (value, _) => seconds_or_off("question_timeout_seconds", value),
    }
}

pub(super) fn agent_idle_stop(minutes: Option<u64>) -> Result<Option<Duration>> {
    match minutes {
        None | Some(0) => Ok(None),
        Some(minutes) => bounded("agent_idle_stop_minutes", minutes, MINUTES_MAX)
            .map(|minutes| Some(Duration::from_secs(minutes * 60))),
    }
}

pub(super) fn breakers(layer: &Layer) -> Result<BreakerConfig> {
    let enabled = layer.circuit_breakers.unwrap_or(OnOff::On) == OnOff::On;
    let mut config = BreakerConfig { enabled, ..BreakerConfig::default() };
    let recovery = milliseconds("breaker_recovery_seconds", layer.breaker_recovery_seconds)?;
    let bash_window = milliseconds("bash_breaker_window_seconds", layer.bash_breaker_window_seconds)?;
    let circuits = [
        (
            &mut config.provider,
            failures("breaker_failures", layer.breaker_failures)?,
            milliseconds("breaker_window_seconds", layer.breaker_window_seconds)?,
        ),
        (
            &mut config.bash_session,
            failures("bash_breaker_failures", layer.bash_breaker_failures)?,
            bash_window,
        ),
        (
            &mut config.bash_all,
            failures("bash_breaker_failures_all", layer.bash_breaker_failures_all)?,
            bash_window,
        ),
    ];
    for (circuit, threshold, window_ms) in circuits {
        circuit.threshold = threshold.unwrap_or(circuit.threshold);
        circuit.window_ms = window_ms.unwrap_or(circuit.window_ms);
        circuit.recovery_ms = recovery.unwrap_or(circuit.recovery_ms);
    }
    Ok(config)
}

fn milliseconds(name: &str, value: Option<u64>) -> Result<Option<i64>> {
    let Some(value) = value else { return Ok(None) };
    let duration = seconds(name, Some(value), value)?;
    Ok(Some(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
}

fn failures(name: &str, value: Option<u64>) -> Result<Option<usize>> {
    let Some(value) = value else { return Ok(None) };
    Ok(usize::try_from(bounded(name, value, COUNT_MAX)?).ok())
}

fn count(name: &str, value: Option<u64>, default: usize) -> Result<usize> {
    whole(name, value, default, COUNT_MAX)
}

fn bytes(name: &str, value: Option<u64>, default: usize) -> Result<usize> {
    whole(name, value, default, BYTES_MAX)
}

fn whole(name: &str, value: Option<u64>, default: usize, max: u64) -> Result<usize> {
    let Some(value) = value else { return Ok(default) };
    Ok(usize::try_from(bounded(name, value, max)?).unwrap_or(usize::MAX))
}
