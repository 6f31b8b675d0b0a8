//! The agent comes, works and goes.
//!
//! An agent that ends releases nothing by itself: what it had is answered by whoever knows how it ended, and what
//! waits goes to the next agent or is refused.

use qd_wire::CodedError;

use qd_wire::command_table::Lane;

use super::{AgentActivity, AgentWork, CommandQueue, QueueEffect, QueueRefusal, QueuedCommand};

impl CommandQueue {
    pub(super) fn activity_changed(&mut self, activity: AgentActivity, out: &mut Vec<QueueEffect>) {
        self.activity = activity;
        if self.abort_next.take_if(|before| activity.turns > *before).is_some() && activity.is_working {
            // The turn has begun that was to be aborted before: the agent is told again.
            out.push(QueueEffect::AbortTurn);
        }
        self.prompts.look_for_turn(activity.turns);
    }

    pub(super) fn agent_ready(&mut self, out: &mut Vec<QueueEffect>) {
        self.is_agent_ready = true;
        self.prompts.agent_ready();
        for token in self.take_starts(out) {
            let command = QueuedCommand { token, lane: Lane::Control, when_idle: false };
            self.executing.insert(token, command);
            out.push(QueueEffect::AnswerStart { token });
        }
        for command in std::mem::take(&mut self.parked) {
            // Others that waited with it may have given the agent work: the turn of such a command comes again.
            if !command.when_idle || !self.session_lane.put_back(command) {
                self.executing.insert(command.token, command);
                out.push(QueueEffect::ExecuteParked { token: command.token });
            }
        }
    }

    pub(super) fn agent_gone(&mut self) {
        self.is_agent_ready = false;
        self.abort_next = None;
        self.prompts.agent_gone();
        self.running.retain(|_, work| !matches!(work, AgentWork::Delivery { .. }));
        for work in self.running.values_mut().filter(|work| **work == AgentWork::Abort) {
            // What it was to end is over.
            *work = AgentWork::Request;
        }
    }

    pub(super) fn refuse_waiting(
        &mut self,
        error: &CodedError,
        with_lanes: bool,
        out: &mut Vec<QueueEffect>,
    ) {
        let mut tokens = self.take_starts(out);
        tokens.extend(self.parked.drain(..).chain(self.prompts.drain()).map(|command| command.token));
        if with_lanes {
            let lanes = self.session_lane.drain().chain(self.shell_lane.drain());
            tokens.extend(lanes.map(|command| command.token));
        }
        for token in tokens {
            self.refuse(token, QueueRefusal::NoAgent(error.clone()), out);
        }
    }

    /// Takes the commands that wait for the agent to start. Of those that were given up nobody waits for an answer.
    fn take_starts(&mut self, out: &mut Vec<QueueEffect>) -> Vec<crate::ledger::SubmissionToken> {
        let is_start = |work: &AgentWork| *work == AgentWork::Start;
        let starts = self.running.extract_if(.., |_, work| is_start(work)).map(|(token, _)| token).collect();
        for (token, _) in self.given_up.extract_if(.., |_, work| is_start(work)) {
            out.push(QueueEffect::Forget { token });
        }
        starts
    }
}
