//! The agent of a session as a process: whether it is there, and what is known of it.
//!
//! What belongs to one life of the agent is cleared when it ends; what outlives it (its number, whether the bridge
//! works) stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qd_core::agent::AgentEvent;
use qd_core::health::{AgentHealth, HealthConfig};
use qd_wire::CodedError;
use qd_wire::data::ProcessStats;
use tokio::sync::oneshot;

use crate::driver::Driver;
use crate::session::actor::RunnerContext;

/// One of the `max_sessions` agents a runner may have at once; given back on drop.
pub(crate) struct AgentSlot(Arc<AtomicUsize>);

impl AgentSlot {
    pub(crate) fn take(shared: &RunnerContext) -> Result<AgentSlot, CodedError> {
        let max = shared.config.max_sessions;
        let taken = shared
            .agents
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count < max).then_some(count + 1));
        match taken {
            Ok(_) => Ok(AgentSlot(Arc::clone(&shared.agents))),
            Err(_) => Err(CodedError::session_limit(max)),
        }
    }
}

impl Drop for AgentSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where the agent stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentState {
    None,
    Starting,
    Ready,
}

/// The agent, while there is one, and what outlives it.
pub(crate) struct SessionAgent {
    pub(crate) driver: Option<Driver>,
    pub(crate) state: AgentState,
    pub(crate) slot: Option<AgentSlot>,
    /// The agent of last time waits for its turn to start; a word sent here makes it go at once, a drop never.
    pub(crate) resuming: Option<oneshot::Sender<()>>,
    /// Raised with every start and stop, so that late news of an old agent is recognised.
    pub(crate) generation: u32,
    /// Cleared when our own extension keeps the agent from starting.
    pub(crate) bridge: bool,
    /// What the agent did before the session was ready; told after `session.created`.
    pub(crate) early: Vec<AgentEvent>,
    pub(crate) health: AgentHealth,
    /// The figures of the last look at the process: reading them costs more than answering a command.
    pub(crate) stats: Option<ProcessStats>,
    /// Since when there is nothing for the agent to do.
    pub(crate) idle_since: Option<i64>,
    /// The agent ran when the runner stopped.
    pub(crate) was_up_at_shutdown: bool,
}

impl SessionAgent {
    pub(crate) fn new(supervision: &HealthConfig) -> Self {
        SessionAgent {
            driver: None,
            state: AgentState::None,
            slot: None,
            resuming: None,
            generation: 0,
            bridge: true,
            early: Vec::new(),
            health: AgentHealth::new(supervision),
            stats: None,
            idle_since: None,
            was_up_at_shutdown: false,
        }
    }
}
