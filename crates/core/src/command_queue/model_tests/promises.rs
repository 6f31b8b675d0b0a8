//! What the queue promises, checked without a model: on what is done, not on how it is kept.

use std::collections::BTreeMap;

use qd_wire::command_table::Lane;

use super::super::{QueueEffect, QueuedCommand};
use crate::ledger::SubmissionToken;

/// How far a command has come, as somebody sees it who looks at the effects only.
#[derive(Debug, Clone, Copy)]
struct Progress {
    command: QueuedCommand,
    times_started: u32,
    is_parked: bool,
    is_answered: bool,
    holds_lane: bool,
}

/// The prompt that was written last.
#[derive(Debug, Clone, Copy)]
struct Written {
    at: i64,
    turns: u64,
    is_accepted: bool,
}

#[derive(Debug, Default)]
pub(super) struct Promises {
    commands: BTreeMap<SubmissionToken, Progress>,
    written: Option<Written>,
    editing: Option<SubmissionToken>,
}

impl Promises {
    pub(super) fn sent(&mut self, command: QueuedCommand) {
        let progress =
            Progress { command, times_started: 0, is_parked: false, is_answered: false, holds_lane: false };
        self.commands.insert(command.token, progress);
    }

    pub(super) fn parked(&mut self, token: SubmissionToken) {
        self.of(token).is_parked = true;
    }

    pub(super) fn lane_released(&mut self, token: SubmissionToken) {
        self.of(token).holds_lane = false;
    }

    pub(super) fn written(&mut self, now: i64, turns: u64) {
        self.written = Some(Written { at: now, turns, is_accepted: false });
    }

    /// The agent has answered the prompt that was written last.
    pub(super) fn prompt_answered(&mut self, starts_turn: bool) {
        if starts_turn {
            self.written.iter_mut().for_each(|written| written.is_accepted = true);
        } else {
            self.written = None;
        }
    }

    pub(super) fn agent_gone(&mut self) {
        self.written = None;
    }

    pub(super) fn edit_over(&mut self, token: SubmissionToken) {
        self.editing.take_if(|editing| *editing == token);
    }

    pub(super) fn answered(&mut self, token: SubmissionToken) -> Result<(), String> {
        let progress = self.of(token);
        progress.holds_lane = false;
        match std::mem::replace(&mut progress.is_answered, true) {
            true => Err(format!("command {token} was answered twice")),
            false => Ok(()),
        }
    }

    pub(super) fn is_answered(&self, token: SubmissionToken) -> bool {
        self.commands.get(&token).is_some_and(|progress| progress.is_answered)
    }

    /// Nothing is left.
    pub(super) fn all_are_answered(&self) -> Result<(), String> {
        match self.commands.iter().find(|(_, progress)| !progress.is_answered) {
            Some((token, progress)) => Err(format!("command {token} was never answered: {progress:?}")),
            None => Ok(()),
        }
    }

    /// Looks at something that is to be done.
    pub(super) fn check(
        &mut self,
        now: i64,
        turns: u64,
        wait: i64,
        effect: &QueueEffect,
    ) -> Result<(), String> {
        match effect {
            QueueEffect::Execute { token } => self.starts(*token),
            QueueEffect::ExecuteParked { token } => match self.of(*token).is_answered {
                true => Err(format!("parked command {token} runs after its answer")),
                false => Ok(()),
            },
            QueueEffect::WritePrompt { .. } | QueueEffect::WriteUndelivered => {
                let is_taken = |written: Written| {
                    written.is_accepted && turns > written.turns || written.at + wait <= now
                };
                if self.written.is_some_and(|written| !is_taken(written)) {
                    return Err("a prompt is written before the agent has taken the last one".into());
                }
                if self.editing.is_some() {
                    return Err("a prompt is written while the agent's queue is changed".into());
                }
                match effect {
                    QueueEffect::WritePrompt { token, .. } if self.of(*token).is_answered => {
                        Err(format!("prompt {token} is written after its answer"))
                    }
                    _ => Ok(()),
                }
            }
            QueueEffect::EditQueue { token } => match self.editing.replace(*token) {
                Some(other) => Err(format!("edits {other} and {token} at the same time")),
                None => Ok(()),
            },
            QueueEffect::GiveUp { token }
            | QueueEffect::Refuse { token, .. }
            | QueueEffect::FailDependencies { token }
            | QueueEffect::TimeOut { token }
            | QueueEffect::Lose { token } => self.answered(*token),
            QueueEffect::StartAgent | QueueEffect::AnswerStart { .. } | QueueEffect::AbortTurn => Ok(()),
            QueueEffect::Forget { token } => {
                self.edit_over(*token);
                Ok(())
            }
        }
    }

    fn starts(&mut self, token: SubmissionToken) -> Result<(), String> {
        let Progress { command, times_started, is_parked, is_answered, .. } = *self.of(token);
        if is_answered {
            return Err(format!("command {token} runs after its answer"));
        }
        // Only one that waited for an idle agent may get its turn again, when the agent is there.
        let is_again = is_parked && command.when_idle && command.lane == Lane::Session;
        if times_started > 0 && !is_again {
            return Err(format!("command {token} runs twice"));
        }
        let has_lane = matches!(command.lane, Lane::Session | Lane::Shell);
        let same = |other: &&Progress| {
            other.holds_lane && other.command.lane == command.lane && other.command.token != token
        };
        if let Some(other) = self.commands.values().find(same).filter(|_| has_lane) {
            return Err(format!("commands {} and {token} run in one lane", other.command.token));
        }
        let progress = self.of(token);
        progress.times_started += 1;
        progress.is_parked = false;
        progress.holds_lane = has_lane;
        Ok(())
    }

    fn of(&mut self, token: SubmissionToken) -> &mut Progress {
        self.commands.get_mut(&token).expect("a command that was never sent")
    }
}
