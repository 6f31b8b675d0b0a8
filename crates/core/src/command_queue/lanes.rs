//! A lane: its commands run one after the other.

use std::collections::VecDeque;

use super::QueuedCommand;
use crate::ledger::SubmissionToken;

/// Commands that wait for the one before them.
#[derive(Debug, Default)]
pub(super) struct CommandLane {
    waiting: VecDeque<QueuedCommand>,
    /// The command whose turn it is, until it ends or lets the others go on.
    pub(super) current: Option<SubmissionToken>,
}

impl CommandLane {
    /// Adds a command; `false` when there is no room.
    pub(super) fn push(&mut self, command: QueuedCommand, max: usize) -> bool {
        let has_room = self.waiting.len() < max;
        if has_room {
            self.waiting.push_back(command);
        }
        has_room
    }

    /// The next command, if it may run now. One that waits for an idle agent holds up those behind it.
    pub(super) fn next(&mut self, is_agent_idle: bool) -> Option<QueuedCommand> {
        if self.current.is_some() || self.waiting.front()?.when_idle && !is_agent_idle {
            return None;
        }
        let command = self.waiting.pop_front()?;
        self.current = Some(command.token);
        Some(command)
    }

    pub(super) fn release(&mut self, token: SubmissionToken) {
        self.current.take_if(|current| *current == token);
    }

    /// Puts the current command back to the front of the line.
    pub(super) fn put_back(&mut self, command: QueuedCommand) -> bool {
        let is_current = self.current == Some(command.token);
        if is_current {
            self.current = None;
            self.waiting.push_front(command);
        }
        is_current
    }

    /// Takes out a command that waits.
    pub(super) fn remove(&mut self, token: SubmissionToken) -> Option<QueuedCommand> {
        let place = self.waiting.iter().position(|command| command.token == token)?;
        self.waiting.remove(place)
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = QueuedCommand> + '_ {
        self.waiting.drain(..)
    }

    /// Nothing runs and nothing waits here.
    pub(super) fn is_idle(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }
}
