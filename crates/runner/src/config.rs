//! What a runner is told at start; it reads no environment of its own.

use std::path::PathBuf;

use crate::process::{GuardCommand, ProcessConfig};

/// Settings of one runner.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    pub runner_id: String,
    pub hostname: String,
    pub version: String,
    /// Private directories of agents live below `agents/` here.
    pub data_dir: PathBuf,
    /// Program and arguments that start pi.
    pub pi_command: Vec<String>,
    /// The user's own pi directory (`~/.pi/agent`): models and settings are copied from it, credentials shared.
    pub pi_user_dir: PathBuf,
    /// Where a session works that names no directory.
    pub default_cwd: Option<PathBuf>,
    pub max_sessions: usize,
    pub guard: GuardCommand,
    pub process: ProcessConfig,
}

impl RunnerConfig {
    /// The private directory of a session.
    pub(crate) fn session_dir(&self, session_id: &str) -> PathBuf {
        self.data_dir.join("agents").join(session_id)
    }
}
