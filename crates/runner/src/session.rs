//! One actor per session: the pure machine, its agent, its lane, and the way to store and link.
//!
//! Everything a session does happens in its own task, one input after the other, so nothing needs a lock. What an
//! input leads to is collected, committed to the spool, and only then sent (persist, then announce).

mod actor;
mod admit;
mod agent;
mod commands;
mod prompts;
mod publish;
mod row;

use bytes::Bytes;
use qd_core::ledger::Token;
use qd_core::session::AgentUp;
use tokio::sync::oneshot;

pub(crate) use actor::{Shared, spawn_new, spawn_restored};
pub(crate) use row::restore;

use crate::driver::{AgentFailure, Driver, Effect, Executed};
use crate::submissions::Release;

/// Inputs a session may have waiting; when full, new commands are refused at once.
pub(crate) const MAILBOX_MAX: usize = 4096;

/// Everything that wakes a session, besides its agent and its timers.
pub(crate) enum SessionInput {
    Command(Box<Incoming>),
    Released {
        token: Token,
        release: Box<Release>,
    },
    /// The process is there, or could not be started.
    Started {
        generation: u32,
        result: Box<Result<Driver, String>>,
    },
    /// The agent answers, or never will.
    Prepared {
        generation: u32,
        result: Box<Result<AgentUp, String>>,
    },
    /// The agent has carried out a command.
    Executed {
        token: Token,
        result: Box<Result<Executed, AgentFailure>>,
    },
    /// What changed at the agent without an event.
    Changes {
        generation: u32,
        effects: Vec<Effect>,
    },
    /// The runner stops.
    Shutdown(oneshot::Sender<()>),
}

/// A session's task has ended.
pub(crate) struct Ended {
    pub(crate) session_id: String,
    /// Creations that came while it was ending: they want a new session.
    pub(crate) creations: Vec<Incoming>,
}

/// A command from the link, its head read.
pub(crate) struct Incoming {
    pub(crate) token: Token,
    /// The hub's id, for the response.
    pub(crate) link_id: String,
    pub(crate) cmd: String,
    /// The whole line; the parameters are read from it.
    pub(crate) line: Bytes,
    pub(crate) principal: String,
    pub(crate) connection: String,
    /// The client's own id, which dependencies name.
    pub(crate) client_command_id: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) depends_on: Vec<String>,
    pub(crate) if_session_version: Option<u64>,
}
