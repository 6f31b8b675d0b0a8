//! What a runner is told, from the settings.

use std::path::PathBuf;
use std::sync::Arc;

use qd_core::health::HealthConfig;
use qd_runner::process::GuardCommand;
use qd_runner::{KeyKeeper, RunnerConfig, ServiceConfig};

use super::hostname;
use crate::error::Result;
use crate::settings::{Environment, Resume, Settings};

/// What differs between the runner of `qd up` and that of `qd runner start`.
pub(crate) struct RunnerRole {
    pub(crate) runner_id: String,
    pub(crate) local_socket: Option<PathBuf>,
    /// Where a session works that names no directory; the home directory unless said otherwise.
    pub(crate) default_cwd: Option<PathBuf>,
    pub(crate) keys: Option<Arc<dyn KeyKeeper>>,
}

/// The configuration of a runner.
pub(crate) fn runner_config(
    settings: &Settings,
    environment: &Environment,
    role: RunnerRole,
) -> Result<RunnerConfig> {
    let home = environment.home().unwrap_or_else(|| PathBuf::from("/"));
    let supervision = HealthConfig {
        warn_after: settings.hang_warning,
        restart_after: settings.hang_restart,
        probe_every: settings.probe_interval,
        ..HealthConfig::default()
    };
    let services = ServiceConfig {
        log_path: settings.log_file.clone(),
        server_base_url: settings.url.clone(),
        ..settings.services.clone()
    };
    let guard = GuardCommand { program: std::env::current_exe()?, args: vec!["guard".into()] };
    Ok(RunnerConfig {
        hostname: hostname(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        harnesses: settings.harnesses.clone(),
        default_cwd: Some(role.default_cwd.unwrap_or(home)),
        max_sessions: usize::try_from(settings.max_sessions).unwrap_or(usize::MAX),
        supervision,
        breakers: settings.breakers,
        question_timeout: settings.question_timeout,
        agent_idle_stop: settings.agent_idle_stop,
        resume_at_start: settings.resume == Resume::AtStart,
        local_socket: role.local_socket,
        spool_bytes_max: settings.spool_bytes_max,
        sweep_abandoned: true,
        keys: role.keys,
        services,
        agent_environment: settings.agent_environment.clone(),
        runs: settings.runs.clone(),
        ..RunnerConfig::new(&role.runner_id, settings.data_dir.clone(), guard)
    })
}
