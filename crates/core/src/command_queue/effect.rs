//! What the queue wants done.

use qd_wire::{CodedError, ErrorCode};
use std::fmt;

use crate::ledger::SubmissionToken;

/// What to do next. A command that is named here and that nobody knows any more has ended meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueEffect {
    /// Check the command's version and carry it out. It is in the caller's hands until the queue is told what became of
    /// it: parked, a prompt, an edit, running or finished.
    Execute { token: SubmissionToken },
    /// Carry out a command that waited for the agent; its version was checked before.
    ExecuteParked { token: SubmissionToken },
    /// Start the agent, unless it is there or on its way.
    StartAgent,
    /// Answer the command that waited for the agent to start.
    AnswerStart { token: SubmissionToken },
    /// Write a prompt to the agent. Told back by `PromptWritten` or `Finished`.
    WritePrompt {
        token: SubmissionToken,
        /// Inputs that waited longer went first, so the agent may work by now: it reads this one when it is done.
        is_follow_up: bool,
    },
    /// Write the next undelivered input to the agent. Told back by `DeliveryWritten` or `DeliveryNotWritten`.
    WriteUndelivered,
    /// Change the agent's queue. Told back by `Running` or `Finished`.
    EditQueue { token: SubmissionToken },
    /// Abort the turn that has begun: it was aborted before the agent knew of it.
    AbortTurn,
    /// Answer that the command could not be run.
    Refuse { token: SubmissionToken, refusal: QueueRefusal },
    /// Answer that those the command depends on took too long.
    FailDependencies { token: SubmissionToken },
    /// Answer that the command's time was over before it began.
    TimeOut { token: SubmissionToken },
    /// Answer that the command's time is over, and ask the agent to stop it where it can.
    GiveUp { token: SubmissionToken },
    /// The agent's answer to a command that was given up is not waited for any more.
    Forget { token: SubmissionToken },
    /// Answer that nobody can know how far the command came.
    Lose { token: SubmissionToken },
}

/// Why a command is not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueRefusal {
    LaneFull {
        max: usize,
    },
    ShellLaneFull {
        max: usize,
    },
    TooManyParked {
        max: usize,
    },
    TooManyPrompts {
        max: usize,
    },
    TooManyEdits {
        max: usize,
    },
    /// A prompt that does not say how it is to be read by an agent that works.
    AgentBusy,
    /// The agent did not start, or has ended.
    NoAgent(CodedError),
    SessionEnded,
}

impl fmt::Display for QueueRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueRefusal::LaneFull { max } => {
                write!(formatter, "Too many commands wait for this session (max {max})")
            }
            QueueRefusal::ShellLaneFull { max } => {
                write!(formatter, "Too many shell commands wait for this session (max {max})")
            }
            QueueRefusal::TooManyParked { max } => {
                write!(formatter, "Too many commands wait for the agent to start (max {max})")
            }
            QueueRefusal::TooManyPrompts { max } => {
                write!(formatter, "Too many prompts wait for the agent (max {max})")
            }
            QueueRefusal::TooManyEdits { max } => {
                write!(formatter, "Too many changes of the queue wait (max {max}). Please retry.")
            }
            QueueRefusal::AgentBusy => formatter.write_str(
                "The agent is working. Set streaming_behavior to \"steer\" (read before its next step) or \
                 \"follow_up\" (read when it is done), or abort first.",
            ),
            QueueRefusal::NoAgent(error) => formatter.write_str(&error.message),
            QueueRefusal::SessionEnded => formatter.write_str("The session ended before the command did"),
        }
    }
}

impl std::error::Error for QueueRefusal {}

impl From<QueueRefusal> for CodedError {
    fn from(refusal: QueueRefusal) -> Self {
        let code = match &refusal {
            QueueRefusal::LaneFull { .. }
            | QueueRefusal::ShellLaneFull { .. }
            | QueueRefusal::TooManyParked { .. }
            | QueueRefusal::TooManyPrompts { .. }
            | QueueRefusal::TooManyEdits { .. } => ErrorCode::Busy,
            QueueRefusal::AgentBusy => ErrorCode::AgentBusy,
            QueueRefusal::NoAgent(error) => error.code,
            QueueRefusal::SessionEnded => ErrorCode::AgentGone,
        };
        code.with(refusal.to_string())
    }
}
