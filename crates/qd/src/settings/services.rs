//! The settings of people, programs in terminals and services of the machine.

use std::time::Duration;

use qd_hub::PushConfig;
use qd_runner::{RunsConfig, ServiceConfig};

use super::load::{Environment, bounded, expand_home};
use super::{Layer, OnOff};
use crate::error::{CliError, Result};

const HOUR: u64 = 3600;
const DAY: u64 = 24 * HOUR;
const LOGIN_HOURS_DEFAULT: u64 = 720;
const AUDIT_DAYS_DEFAULT: u64 = 90;
const TERMINAL_IDLE_MINUTES_DEFAULT: u64 = 720;
const RUN_KILL_SECONDS_DEFAULT: u64 = 5;
/// Longer than anybody means; a greater number is a mistake.
const HOURS_MAX: u64 = 10 * 365 * 24;
const DAYS_MAX: u64 = 100 * 365;
const MINUTES_MAX: u64 = 365 * 24 * 60;
/// Nobody waits longer than a day for an agent without looking.
const PUSH_DONE_SECONDS_MAX: u64 = DAY;
/// An hour; more is a mistake of units. When the server itself stops, programs get less than this setting.
const KILL_SECONDS_MAX: u64 = 3600;

pub(super) fn services(environment: &Environment, layer: &mut Layer) -> Result<ServiceConfig> {
    let mut config = ServiceConfig::default();
    let roots = layer.workspace_roots.take().map(|roots| roots.0);
    let roots = roots.unwrap_or_else(|| environment.home().into_iter().collect());
    for root in roots {
        config.workspace_roots.push(std::path::absolute(expand_home(environment, root))?);
    }
    if let Some(roles) = layer.gate_skip_roles.take() {
        config.gate_skip_roles = roles.0;
    }
    config.gate_timeout = minutes("gate_timeout_minutes", layer.gate_timeout_minutes.unwrap_or(0))?;
    Ok(config)
}

pub(super) fn runs(layer: &Layer) -> Result<RunsConfig> {
    let kill = layer.run_kill_seconds.unwrap_or(RUN_KILL_SECONDS_DEFAULT);
    let idle = layer.terminal_idle_minutes.unwrap_or(TERMINAL_IDLE_MINUTES_DEFAULT);
    Ok(RunsConfig {
        kill_after: Duration::from_secs(bounded("run_kill_seconds", kill, KILL_SECONDS_MAX)?),
        terminal_idle: minutes("terminal_idle_minutes", idle)?,
        ..RunsConfig::default()
    })
}

pub(super) fn login_life(layer: &Layer) -> Result<Duration> {
    let hours = bounded("login_hours", layer.login_hours.unwrap_or(LOGIN_HOURS_DEFAULT), HOURS_MAX)?;
    Ok(Duration::from_secs(hours * HOUR))
}

pub(super) fn audit_life(layer: &Layer) -> Result<Option<Duration>> {
    match layer.audit_days.unwrap_or(AUDIT_DAYS_DEFAULT) {
        0 => Ok(None),
        days => Ok(Some(Duration::from_secs(bounded("audit_days", days, DAYS_MAX)? * DAY))),
    }
}

/// Pushes to browsers, without the key they are signed with.
pub(super) fn push(layer: &Layer) -> Result<PushConfig> {
    let mut config = PushConfig::default();
    if let Some(contact) = layer.push_contact.clone() {
        let is_address = contact.starts_with("mailto:") || contact.starts_with("https://");
        if !is_address || !contact.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(CliError::usage(format!(
                "push_contact '{}' is not a contact address",
                contact.escape_debug()
            ))
            .hint("use mailto:you@example.org or an https:// address"));
        }
        config.contact = contact;
    }
    if let Some(seconds) = layer.push_done_seconds {
        let seconds = bounded("push_done_seconds", seconds, PUSH_DONE_SECONDS_MAX)?;
        config.done_after = Duration::from_secs(seconds);
    }
    config.allow_loopback = layer.push_loopback == Some(OnOff::On);
    Ok(config)
}

/// Zero for never.
fn minutes(name: &str, value: u64) -> Result<Option<Duration>> {
    match value {
        0 => Ok(None),
        value => Ok(Some(Duration::from_secs(bounded(name, value, MINUTES_MAX)? * 60))),
    }
}
