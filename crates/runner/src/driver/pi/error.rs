//! Why pi could not be started, or could not open a conversation.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

use qd_core::harness::pi::{MINIMUM_VERSION, PiVersionError};
use qd_wire::{CodedError, ErrorCode};

use super::file_claim::ClaimError;
use super::session_files::SessionFileError;
use crate::driver::AgentFailure;
use crate::process::SpawnError;

/// Why there is no pi for a session.
#[derive(Debug, thiserror::Error)]
pub(super) enum PiStartError {
    #[error("No command for pi is configured; set pi_command (QD_PI_COMMAND)")]
    NoCommand,
    #[error(
        "pi is not installed: '{program}' was not found. Install it with \
         'npm install -g @earendil-works/pi-coding-agent', or set pi_command (QD_PI_COMMAND) to where it is."
    )]
    // Apart from `CannotRun`, because it is the first thing that goes wrong on a new machine and has its own advice.
    NotInstalled { program: String },
    #[error("'{program}' cannot be started: {source}")]
    CannotRun { program: String, source: io::Error },
    #[error("'{program} --version' did not answer in {seconds} s")]
    NoVersion { program: String, seconds: u64 },
    #[error(
        "'{program} --version' failed ({status}): {complaint}. pi {MINIMUM_VERSION} needs Node 22.19 or newer."
    )]
    VersionFailed { program: String, status: ExitStatus, complaint: String },
    #[error(transparent)]
    Version(#[from] PiVersionError),
    #[error("The agent's private directory could not be created: {0}")]
    PrivateDirectory(io::Error),
    #[error("pi's session directory could not be created: {0}")]
    SessionDirectory(io::Error),
    #[error(transparent)]
    Conversation(#[from] ConversationError),
    #[error("pi cannot be started: {0}")]
    Spawn(#[from] SpawnError),
    #[error("The agent's output is already taken")]
    OutputTaken,
}

impl PiStartError {
    /// What the system said when this program was to be run.
    pub(super) fn cannot_run(program: &str, source: io::Error) -> Self {
        let program = program.to_owned();
        if source.kind() == io::ErrorKind::NotFound {
            PiStartError::NotInstalled { program }
        } else {
            PiStartError::CannotRun { program, source }
        }
    }
}

impl From<PiStartError> for CodedError {
    fn from(error: PiStartError) -> Self {
        // Where the conversation is at fault the client can do something about it; the rest is told as a missing agent.
        let code =
            if let PiStartError::Conversation(error) = &error { error.code() } else { ErrorCode::AgentGone };
        code.with(error.to_string())
    }
}

/// Why pi must not go to a conversation.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConversationError {
    #[error(
        "The session's conversation cannot go on: its file '{file}' is gone. Put it back, or create a new session."
    )]
    FileGone { file: String },
    #[error("{}: {source}", .directory.display())]
    Unlisted { directory: PathBuf, source: io::Error },
    #[error("There is no free name for '{session_id}'")]
    NoFreeName { session_id: String },
    #[error("There is no pi session '{named}' in {}", .directory.display())]
    NotFound { named: String, directory: PathBuf },
    #[error(transparent)]
    File(#[from] SessionFileError),
    #[error(transparent)]
    Claimed(#[from] ClaimError),
}

impl ConversationError {
    /// Chosen by what the client can do: name another file, wait for the other session, or ask the machine's owner.
    const fn code(&self) -> ErrorCode {
        match self {
            ConversationError::FileGone { .. } | ConversationError::NotFound { .. } => ErrorCode::NotFound,
            ConversationError::Unlisted { .. } | ConversationError::NoFreeName { .. } => ErrorCode::Failed,
            ConversationError::File(_) => ErrorCode::InvalidRequest,
            ConversationError::Claimed(_) => ErrorCode::Conflict,
        }
    }
}

impl From<ConversationError> for AgentFailure {
    fn from(error: ConversationError) -> Self {
        error.code().with(error.to_string()).into()
    }
}
