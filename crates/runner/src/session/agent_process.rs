//! The agent of a session as a process: whether it is there, and what is known of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use qd_core::agent::AgentEvent;
use qd_core::health::{Health, HealthConfig};
use qd_wire::CodedError;
use qd_wire::data::ProcessStats;
use tokio::sync::oneshot;

use super::actor::Shared;
use crate::driver::Driver;

/// One of the `max_sessions` agents a runner may have at once; given back on drop.
pub(super) struct AgentSlot(Arc<AtomicUsize>);

impl AgentSlot {
    pub(super) fn take(shared: &Shared) -> Result<AgentSlot, CodedError> {
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
pub(super) enum AgentState {
    None,
    Starting,
    Ready,
}

/// The agent, while there is one, and what outlives it.
pub(super) struct AgentProcess {
    pub(super) driver: Option<Driver>,
    pub(super) state: AgentState,
    pub(super) slot: Option<AgentSlot>,
    /// The agent of last time waits for its turn to start; a word sent here makes it go at once, a drop never.
    pub(super) resuming: Option<oneshot::Sender<()>>,
    /// Raised with every start and stop, so that late news of an old agent is recognised.
    pub(super) generation: u32,
    /// Cleared when our own extension keeps the agent from starting.
    pub(super) bridge: bool,
    /// What the agent did before the session was ready; told after `session.created`.
    pub(super) early: Vec<AgentEvent>,
    pub(super) health: Health,
    /// The figures of the last look at the process: reading them costs more than answering a command.
    pub(super) stats: Option<ProcessStats>,
    /// Since when there is nothing for the agent to do.
    pub(super) idle_since: Option<i64>,
    /// The agent ran when the runner stopped.
    pub(super) was_up_at_shutdown: bool,
}

impl AgentProcess {
    pub(super) fn new(supervision: &HealthConfig) -> Self {
        AgentProcess {
            driver: None,
            state: AgentState::None,
            slot: None,
            resuming: None,
            generation: 0,
            bridge: true,
            early: Vec::new(),
            health: Health::new(supervision),
            stats: None,
            idle_since: None,
            was_up_at_shutdown: false,
        }
    }
}
