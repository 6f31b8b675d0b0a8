//! What a runner is told at start; it reads no environment of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::driver::{Harness, Harnesses};
use crate::process::{GuardCommand, InheritedVariables, ProcessConfig};
use crate::services::ServiceConfig;
use crate::uplink::KeyKeeper;

/// Records a runner keeps for a hub that does not take them, before new prompts are refused.
pub const SPOOL_BYTES_MAX_DEFAULT: u64 = 256 << 20;

/// Settings of one runner.
#[derive(Debug, Clone)]
pub struct RunnerConfig {
    pub runner_id: String,
    pub hostname: String,
    pub version: String,
    /// Private directories of agents live below `agents/` here.
    pub data_dir: PathBuf,
    /// The kinds of agents this runner knows, each with what is set for it.
    pub harnesses: Harnesses,
    /// Where a session works that names no directory.
    pub default_cwd: Option<PathBuf>,
    pub max_sessions: usize,
    pub guard: GuardCommand,
    pub process: ProcessConfig,
    /// Variables that agents get of the runner's environment besides those that they need; one that ends with `*` stands
    /// for all that begin so.
    pub agent_environment: Vec<String>,
    /// How agents are watched over.
    pub supervision: qd_core::health::HealthConfig,
    /// Who fails again and again is left alone for a while.
    pub breakers: qd_core::breaker::BreakerConfig,
    /// How long a question to a person stays open at most; its asker then sees an error. `None` for as long as the
    /// asker itself waits.
    pub question_timeout: Option<Duration>,
    /// An agent with nothing to do is stopped after this; the next command that needs it starts it. `None` for never.
    pub agent_idle_stop: Option<Duration>,
    /// Start the agents of sessions that had one as soon as the runner starts, not when they are next used.
    pub resume_at_start: bool,
    /// Records that may wait for the hub; at this bound new prompts are refused.
    pub spool_bytes_max: u64,
    /// Where local clients find the runner; `None` for nowhere.
    pub local_socket: Option<PathBuf>,
    /// Keeps the key this runner shows its hub; `None` where there is none.
    pub keys: Option<Arc<dyn KeyKeeper>>,
    /// What the machine's services may do, and who is asked before.
    pub services: ServiceConfig,
    /// How programs in terminals are ended.
    pub runs: RunsConfig,
    /// Whether agents that an earlier runner left behind are looked for and ended at start.
    pub sweep_abandoned: bool,
    /// Breaks a promise on purpose, so that a test which must see that can be seen to.
    #[cfg(feature = "planted-bugs")]
    #[doc(hidden)]
    pub planted_bug: Option<PlantedBug>,
}

/// A promise that is broken on purpose.
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlantedBug {
    /// A prompt is answered before it is stored.
    AcceptedNotStored,
}

/// Settings of programs in terminals.
#[derive(Debug, Clone)]
pub struct RunsConfig {
    /// A program that was asked to end and did not is killed after this.
    pub kill_after: Duration,
    /// A terminal without input and output is closed after this; `None` for never. Runs are not.
    pub terminal_idle: Option<Duration>,
    /// What is left of a terminal that has ended is deleted after this: who looks at it shall see its end.
    pub terminal_keep: Duration,
}

impl Default for RunsConfig {
    fn default() -> Self {
        RunsConfig {
            kill_after: Duration::from_secs(5),
            terminal_idle: Some(Duration::from_secs(12 * 60 * 60)),
            terminal_keep: Duration::from_secs(60),
        }
    }
}

impl RunnerConfig {
    /// A runner for which nothing else is set: no hub's key, no local socket, every limit as in the settings' defaults.
    pub fn new(runner_id: &str, data_dir: PathBuf, guard: GuardCommand) -> Self {
        RunnerConfig {
            runner_id: runner_id.to_owned(),
            hostname: "localhost".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            data_dir,
            harnesses: Harnesses::default(),
            default_cwd: None,
            max_sessions: 100,
            guard,
            process: ProcessConfig::default(),
            agent_environment: Vec::new(),
            supervision: qd_core::health::HealthConfig::default(),
            breakers: qd_core::breaker::BreakerConfig::default(),
            question_timeout: None,
            agent_idle_stop: None,
            resume_at_start: false,
            spool_bytes_max: SPOOL_BYTES_MAX_DEFAULT,
            local_socket: None,
            keys: None,
            services: ServiceConfig::default(),
            runs: RunsConfig::default(),
            sweep_abandoned: false,
            #[cfg(feature = "planted-bugs")]
            planted_bug: None,
        }
    }

    /// What an agent of a harness gets of the runner's environment.
    pub fn inherited_by(&self, harness: &dyn Harness) -> InheritedVariables {
        InheritedVariables::of_agent(harness.needed_variables(), &self.agent_environment)
    }

    /// The private directory of a session.
    pub fn session_dir(&self, session_id: &str) -> PathBuf {
        self.data_dir.join("agents").join(&*qd_core::ids::plain_session_name(session_id))
    }
}
