//! What goes into the ledger and what comes out of it.

use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::Fingerprint;

/// A submission in the caller's books.
pub type SubmissionToken = u64;

/// Repeats of one running command that may wait for its outcome.
pub(super) const JOINED_MAX: usize = 64;

/// Bounds of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerLimits {
    pub outcomes_max: usize,
    pub outcome_bytes_max: usize,
    pub in_flight_max: usize,
    /// How long a key replays; after that it is a new command.
    pub key_ttl_ms: i64,
}

impl Default for LedgerLimits {
    fn default() -> Self {
        LedgerLimits {
            outcomes_max: 10_000,
            outcome_bytes_max: 16 * 1024 * 1024,
            in_flight_max: 10_000,
            key_ttl_ms: 24 * 60 * 60 * 1000,
        }
    }
}

/// The name under which a command runs at most once: scoped to one principal and one session.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey {
    pub principal: String,
    /// The session, or empty for commands of no session.
    pub scope: String,
    pub key: String,
}

/// The name other commands depend on. Clients count 1, 2, 3, so a connection's own ids come first; only an id it has
/// not used itself is looked for among all of its principal, which is what a client that reconnected needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId {
    pub principal: String,
    /// Empty for the name shared by all connections of the principal.
    pub connection: String,
    pub id: String,
}

impl CommandId {
    pub(super) fn shared(&self) -> CommandId {
        CommandId { connection: String::new(), ..self.clone() }
    }
}

/// What a finished command answered.
#[derive(Debug, Clone, PartialEq)]
pub struct CommandOutcome {
    pub cmd: String,
    /// `data` as JSON text, or the error.
    pub result: Result<Option<Arc<str>>, CodedError>,
    pub session_version: Option<u64>,
    /// The process died between write and reply: nobody can know.
    pub indeterminate: bool,
    /// Its time was over before it was done.
    pub timed_out: bool,
}

impl CommandOutcome {
    /// What it takes of the byte bound.
    pub(super) fn bytes(&self) -> usize {
        match &self.result {
            Ok(data) => data.as_ref().map_or(0, |data| data.len()),
            Err(error) => error.message.len(),
        }
    }

    /// What dependents are told: whether it succeeded, and why not.
    pub(super) fn success(&self) -> Result<(), FailureText> {
        match &self.result {
            Ok(_) => Ok(()),
            Err(error) => Err(FailureText(error.message.as_str().into())),
        }
    }
}

/// What a failed command said, kept for those that depend on it.
#[derive(Debug, Clone)]
pub(super) struct FailureText(pub(super) Box<str>);

/// Why a command must not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRejection {
    #[error("Server busy - too many concurrent commands. Please retry.")]
    Busy,
    #[error("Conflicting idempotency_key '{key}': previously used for '{before}', now used for '{now}'")]
    KeyConflict { key: String, before: String, now: String },
    #[error("Too many repeats of one command wait for it (max {JOINED_MAX})")]
    TooManyRepeats,
    #[error("id: Required when depends_on is provided")]
    IdMissing,
    #[error("Command '{0}' cannot depend on itself")]
    DependsOnItself(String),
    #[error("Dependency '{0}' is unknown")]
    DependencyUnknown(String),
    #[error("Dependency '{id}' failed: {error}")]
    DependencyFailed { id: String, error: String },
}

impl LedgerRejection {
    pub const fn code(&self) -> ErrorCode {
        match self {
            LedgerRejection::Busy | LedgerRejection::TooManyRepeats => ErrorCode::Busy,
            LedgerRejection::KeyConflict { .. } => ErrorCode::IdempotencyConflict,
            LedgerRejection::IdMissing | LedgerRejection::DependsOnItself(_) => ErrorCode::InvalidRequest,
            LedgerRejection::DependencyUnknown(_) | LedgerRejection::DependencyFailed { .. } => {
                ErrorCode::DependencyFailed
            }
        }
    }
}

impl From<LedgerRejection> for CodedError {
    fn from(rejection: LedgerRejection) -> Self {
        CodedError::new(rejection.code(), rejection.to_string())
    }
}

/// A new command, before it is decided what becomes of it.
#[derive(Debug, Clone)]
pub struct Submission {
    pub token: SubmissionToken,
    pub cmd: String,
    pub key: Option<IdempotencyKey>,
    pub id: Option<CommandId>,
    pub fingerprint: Fingerprint,
    pub depends_on: Vec<String>,
}

/// What to do with it.
#[derive(Debug, Clone, PartialEq)]
pub enum LedgerVerdict {
    /// Run it now.
    Run,
    /// It waits for others; [`Ledger::finish`](super::Ledger::finish) will name it.
    Wait,
    /// The same command is running; [`Ledger::finish`](super::Ledger::finish) will name it among the joined.
    Join,
    /// It ran before.
    Replay(CommandOutcome),
    /// It must not run.
    Reject(LedgerRejection),
}

/// Who can go on because a command finished.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReleasedCommands {
    /// Duplicates: answer them with the outcome, marked as replayed.
    pub joined: Vec<SubmissionToken>,
    /// Dependents whose last dependency succeeded: run them.
    pub ready: Vec<SubmissionToken>,
    /// Dependents that fail because this command did.
    pub failed: Vec<(SubmissionToken, LedgerRejection)>,
}
