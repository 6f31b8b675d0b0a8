//! Commands whose time is over: somebody has answered for them, and what is left of them is ended.

use super::{AgentWork, CommandQueue, QueueEffect, QueuedCommand};
use crate::ledger::SubmissionToken;

impl CommandQueue {
    /// Ends a command, wherever it is. One in the caller's hands ends by itself.
    pub(super) fn cancel(&mut self, token: SubmissionToken, out: &mut Vec<QueueEffect>) {
        if self.take_waiting(token).is_some() {
            // It had not begun, so it never will.
            self.leave(token);
            return out.push(QueueEffect::TimeOut { token });
        }
        let is_command = |work: &AgentWork| !matches!(work, AgentWork::Delivery { .. });
        if !self.running.get(&token).is_some_and(is_command) {
            return;
        }
        let Some(work) = self.running.remove(&token) else { return };
        // What the agent says of it later is heard for its effects only. It blocks its lane no longer, but a change of the
        // queue and a prompt still have to be seen through.
        self.release_lane(token);
        out.push(QueueEffect::GiveUp { token });
        self.given_up.insert(token, work);
        if self.given_up.len() > self.limits.given_up_max
            && let Some((oldest, _)) = self.given_up.pop_first()
        {
            self.edit.take_if(|edit| *edit == oldest);
            out.push(QueueEffect::Forget { token: oldest });
        }
    }

    /// Takes a command out of the place where it waits.
    fn take_waiting(&mut self, token: SubmissionToken) -> Option<QueuedCommand> {
        // A repeat has no outcome of its own: it gets that of the one it waits for.
        if let Some(held) = self.held.get(&token) {
            let command = Some(held.command).filter(|_| !held.is_repeat)?;
            self.held.remove(&token);
            return Some(command);
        }
        let lanes = self.session_lane.remove(token).or_else(|| self.shell_lane.remove(token));
        if lanes.is_some() {
            return lanes;
        }
        if let Some(place) = self.parked.iter().position(|command| command.token == token) {
            return Some(self.parked.remove(place));
        }
        if let Some(place) = self.waiting_edits.iter().position(|command| command.token == token) {
            return self.waiting_edits.remove(place);
        }
        self.prompts.remove(token)
    }
}
