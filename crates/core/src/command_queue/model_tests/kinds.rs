//! The kinds of things that happen, to see that the histories are about all of them.

use super::super::{QueueEffect, QueueRefusal};

/// What must have happened in some histories.
pub(super) const KINDS: &[&str] = &[
    "executed",
    "executed when ready",
    "start answered",
    "agent started",
    "prompt written",
    "prompt written as follow-up",
    "undelivered input written",
    "queue edited",
    "turn aborted later",
    "lane full",
    "shell lane full",
    "too many parked",
    "too many prompts",
    "too many edits",
    "agent busy",
    "no agent",
    "session ended",
    "dependencies failed",
    "timed out before it began",
    "given up",
    "forgotten",
    "lost",
    "deadline passed",
    "waited for idle",
];

pub(super) fn label(effect: &QueueEffect) -> &'static str {
    match effect {
        QueueEffect::Execute { .. } => "executed",
        QueueEffect::ExecuteParked { .. } => "executed when ready",
        QueueEffect::StartAgent => "agent started",
        QueueEffect::AnswerStart { .. } => "start answered",
        QueueEffect::WritePrompt { is_follow_up: false, .. } => "prompt written",
        QueueEffect::WritePrompt { is_follow_up: true, .. } => "prompt written as follow-up",
        QueueEffect::WriteUndelivered => "undelivered input written",
        QueueEffect::EditQueue { .. } => "queue edited",
        QueueEffect::AbortTurn => "turn aborted later",
        QueueEffect::Refuse { refusal, .. } => match refusal {
            QueueRefusal::LaneFull { .. } => "lane full",
            QueueRefusal::ShellLaneFull { .. } => "shell lane full",
            QueueRefusal::TooManyParked { .. } => "too many parked",
            QueueRefusal::TooManyPrompts { .. } => "too many prompts",
            QueueRefusal::TooManyEdits { .. } => "too many edits",
            QueueRefusal::AgentBusy => "agent busy",
            QueueRefusal::NoAgent(_) => "no agent",
            QueueRefusal::SessionEnded => "session ended",
        },
        QueueEffect::FailDependencies { .. } => "dependencies failed",
        QueueEffect::TimeOut { .. } => "timed out before it began",
        QueueEffect::GiveUp { .. } => "given up",
        QueueEffect::Forget { .. } => "forgotten",
        QueueEffect::Lose { .. } => "lost",
    }
}
