//! One actor per session: the pure machine, its agent, its lane, and the way to store and link.
//!
//! Everything a session does happens in its own task, one input after the other, so nothing needs a lock. What an
//! input leads to is collected, committed to the spool, and only then sent (persist, then announce).

mod actor;
mod agent;
mod commands;
mod deadline_timer;
mod publish;
mod recovery;
mod run;
mod service_gates;
mod session_row;
mod spawn;
mod workplace;
mod worktree;

use bytes::Bytes;
use qd_core::ledger::SubmissionToken;
use qd_core::session::ReadyAgent;
use qd_wire::CodedError;
use qd_wire::data::SessionState;
use qd_wire::people::Rights;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

pub(crate) use actor::{RunnerContext, plain_response};
pub(crate) use run::input_hash::InputHashKey;
pub(crate) use service_gates::{GateAnswer, ServiceFacts, ServiceInput};
pub(crate) use session_row::{check_cwd_of, restore};
pub(crate) use spawn::{settle_directory, spawn_new, spawn_restored};

use crate::driver::{CommandEffect, Driver, ExecuteResult};
use crate::services::SessionWorktree;
use crate::submissions::WaitResult;

/// Inputs a session may have waiting; when full, new commands are refused at once.
pub(crate) const MAILBOX_MAX: usize = 4096;

/// Everything that wakes a session, besides its agent and its timers.
pub(crate) enum SessionInput {
    Command(Box<IncomingCommand>),
    Released {
        token: SubmissionToken,
        release: Box<WaitResult>,
    },
    /// The process is there, or could not be started.
    Started {
        generation: u32,
        result: Box<Result<Driver, CodedError>>,
        /// Held until the agent is ready, if it had to wait for its turn.
        permit: Option<OwnedSemaphorePermit>,
    },
    /// The agent answers, or never will.
    Prepared {
        generation: u32,
        result: Box<Result<ReadyAgent, CodedError>>,
    },
    /// The session's worktree is there, or cannot be made.
    WorktreeMade(Box<Result<SessionWorktree, CodedError>>),
    /// The agent has carried out a command.
    Executed {
        token: SubmissionToken,
        result: Box<ExecuteResult>,
    },
    /// The agent gave a sign of life.
    Probed {
        generation: u32,
    },
    /// What changed at the agent without an event.
    Changes {
        generation: u32,
        effects: Vec<CommandEffect>,
    },
    /// Somebody wants to know how the session stands.
    Describe(oneshot::Sender<Box<SessionState>>),
    /// Whether the hub wants the session's events in the form of a watching face too; the greatest number counts.
    Watch {
        number: u64,
        on: bool,
    },
    /// Live events did not reach everybody: say how the session stands, as a live `session.resync`.
    Snapshot,
    /// The hub has records up to this one; no number up to it is given again.
    HubHas(u64),
    /// A word of a service call.
    Service(ServiceInput),
    /// The runner stops.
    Shutdown(oneshot::Sender<()>),
}

/// A session's task has ended.
pub(crate) struct SessionEnded {
    pub(crate) session_id: String,
    /// Creations that came while it was ending: they want a new session.
    pub(crate) creations: Vec<IncomingCommand>,
}

/// A command from the link, its head read.
#[derive(Default)]
pub(crate) struct IncomingCommand {
    pub(crate) token: SubmissionToken,
    /// The connection it came by.
    pub(crate) origin: u64,
    /// From a client at the runner's own socket.
    pub(crate) is_local: bool,
    /// The sender's id, for the response.
    pub(crate) link_id: String,
    pub(crate) cmd: String,
    /// The whole line; the parameters are read from it.
    pub(crate) line: Bytes,
    pub(crate) principal: String,
    /// What the sender may do, as the hub says; who speaks at the runner's own socket is its owner.
    pub(crate) rights: Rights,
    pub(crate) connection: String,
    /// The client's own id, which dependencies name.
    pub(crate) client_command_id: Option<String>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) depends_on: Vec<String>,
    pub(crate) if_session_version: Option<u64>,
    /// The agent's own words are wanted in the answer.
    pub(crate) native: bool,
    /// It waits until the agent neither works nor compacts.
    pub(crate) when_idle: bool,
}
