//! The command queue of one session: which of its commands may run now, and which wait for what.
//!
//! A command that passed admission goes through some of these places, and is in one of them at a time:
//!
//! - *held*: it waits for the commands it depends on, or repeats one that is in flight;
//! - in a *lane*: commands of the session lane run one after the other, and so do shell commands in theirs;
//! - *executing*: it is in the caller's hands, who says what becomes of it;
//! - *parked*: it needs an agent that is ready;
//! - a *waiting prompt*: the agent takes one prompt at a time;
//! - a *waiting edit*: the agent's own queue is changed by one command at a time, and no prompt is written meanwhile;
//! - *running*: the agent has it;
//! - *given up*: the agent has it, but its time was over and it has been answered.
//!
//! The machine knows commands by their token and by the columns of the command table it needs. It is told what
//! happened and says what to do next; the caller does it, in this order, and reports. Times are Unix milliseconds.

mod agent;
mod cancel;
mod effect;
mod input;
mod lanes;
mod prompts;

#[cfg(test)]
mod model_tests;

use std::collections::{BTreeMap, VecDeque};

use qd_wire::command_table::Lane;

pub use effect::{QueueEffect, QueueRefusal};
pub use input::{AgentActivity, AgentAnswer, AgentWork, QueueInput, QueuedCommand, Undelivered};

use crate::ledger::SubmissionToken;
use lanes::CommandLane;
use prompts::PromptQueue;

/// Bounds of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Commands that may wait in the session lane.
    pub lane_max: usize,
    /// Shell commands that may wait for the one that runs; each may take minutes.
    pub shell_lane_max: usize,
    /// Commands that may wait for an agent to start.
    pub parked_max: usize,
    /// Prompts that may wait for the agent.
    pub prompts_max: usize,
    /// Changes of the agent's queue that may wait for the one under way.
    pub edits_max: usize,
    /// Commands whose answer is still listened for after their time; of more, the oldest answers are not missed.
    pub given_up_max: usize,
    /// How long a command waits for those it depends on.
    pub dependency_wait_ms: i64,
    /// The next prompt is written after this in any case: an extension's command may ask a person before the agent
    /// accepts it.
    pub prompt_wait_ms: i64,
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            lane_max: 1024,
            shell_lane_max: 128,
            parked_max: 256,
            prompts_max: 256,
            edits_max: 64,
            given_up_max: 256,
            dependency_wait_ms: 30_000,
            prompt_wait_ms: 2_000,
        }
    }
}

/// A command that waits for others.
#[derive(Debug, Clone, Copy)]
struct HeldCommand {
    command: QueuedCommand,
    /// It repeats one in flight and gets the outcome of that, however long it takes.
    is_repeat: bool,
    deadline: Option<i64>,
}

/// The queue of one session.
#[derive(Debug, Default)]
pub struct CommandQueue {
    limits: QueueLimits,
    held: BTreeMap<SubmissionToken, HeldCommand>,
    session_lane: CommandLane,
    shell_lane: CommandLane,
    executing: BTreeMap<SubmissionToken, QueuedCommand>,
    parked: Vec<QueuedCommand>,
    prompts: PromptQueue,
    /// The change of the agent's queue that is under way.
    edit: Option<SubmissionToken>,
    waiting_edits: VecDeque<QueuedCommand>,
    running: BTreeMap<SubmissionToken, AgentWork>,
    given_up: BTreeMap<SubmissionToken, AgentWork>,
    /// An abort came after a prompt and before its turn, with this many turns begun: it is for the next one.
    abort_next: Option<u64>,
    is_agent_ready: bool,
    activity: AgentActivity,
}

impl CommandQueue {
    pub fn new(limits: QueueLimits) -> Self {
        CommandQueue { limits, ..CommandQueue::default() }
    }

    /// Takes what happened; returns what to do, in this order. Whatever the caller does may itself be told here, before
    /// the next effect is carried out.
    pub fn handle(&mut self, now: i64, input: QueueInput) -> Vec<QueueEffect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        match input {
            QueueInput::Hold { command, is_repeat } => self.hold(now, command, is_repeat),
            QueueInput::Release { token } => {
                if let Some(held) = self.held.remove(&token) {
                    self.enqueue(held.command, out);
                }
            }
            QueueInput::Enqueue(command) => self.enqueue(command, out),
            QueueInput::Park { token } => self.park(token, out),
            QueueInput::EnqueuePrompt { token, may_interrupt } => {
                self.enqueue_prompt(token, may_interrupt, out)
            }
            QueueInput::PromptWritten { token, is_command } => self.prompt_written(now, token, is_command),
            QueueInput::DeliveryWritten { token } => self.delivery_written(now, token),
            QueueInput::DeliveryNotWritten { is_refused } => self.delivery_not_written(is_refused),
            QueueInput::EditQueue { token } => self.enqueue_edit(token, out),
            QueueInput::Running { token, work } => self.run(token, work),
            QueueInput::Answered { token, answer } => self.answered(token, answer),
            QueueInput::Finished { token } => self.finished(token),
            QueueInput::Cancel { token } => self.cancel(token, out),
            QueueInput::Activity(activity) => self.activity_changed(activity, out),
            QueueInput::AgentReady => self.agent_ready(out),
            QueueInput::AgentGone => self.agent_gone(),
            QueueInput::RefuseWaiting { error, with_lanes } => self.refuse_waiting(&error, with_lanes, out),
            QueueInput::Tick => self.expire(now, out),
            QueueInput::Close => self.close(out),
        }
        self.start_waiting(out);
        effects
    }

    /// When `Tick` is due at the latest.
    pub fn next_deadline(&self) -> Option<i64> {
        let held = self.held.values().filter_map(|held| held.deadline).min();
        held.into_iter().chain(self.prompts.deadline()).min()
    }

    /// No command waits or runs. Those that were given up do not count, but for a change of the queue, which still blocks.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
            && self.session_lane.is_idle()
            && self.shell_lane.is_idle()
            && self.executing.is_empty()
            && self.parked.is_empty()
            && self.prompts.is_quiet()
            && self.edit.is_none()
            && self.waiting_edits.is_empty()
            && self.running.is_empty()
    }

    /// What the agent does for a command, also for one that was given up.
    pub fn work_of(&self, token: SubmissionToken) -> Option<AgentWork> {
        self.running.get(&token).or_else(|| self.given_up.get(&token)).copied()
    }

    /// What the agent works on and somebody waits for.
    pub fn running(&self) -> impl Iterator<Item = (SubmissionToken, AgentWork)> + '_ {
        self.running.iter().map(|(token, work)| (*token, *work))
    }

    /// What the agent has been asked and has not answered, whether or not anybody still waits for it.
    pub fn unanswered(&self) -> impl Iterator<Item = SubmissionToken> + '_ {
        self.running.keys().chain(self.given_up.keys()).copied()
    }

    /// Whether a command waits for those it depends on.
    pub fn is_held(&self, token: SubmissionToken) -> bool {
        self.held.contains_key(&token)
    }

    /// Whether a command repeats one in flight: it has no outcome of its own.
    pub fn is_repeat(&self, token: SubmissionToken) -> bool {
        self.held.get(&token).is_some_and(|held| held.is_repeat)
    }

    /// Whether a command's prompt waits for the agent to take the ones before it.
    pub fn is_prompt_waiting(&self, token: SubmissionToken) -> bool {
        self.prompts.is_waiting(token)
    }

    /// Whether the caller is to write an undelivered input: the agent may be gone since that was wanted.
    pub fn is_delivery_awaited(&self) -> bool {
        self.prompts.is_delivery_handed_out()
    }

    /// Whether a command waits for the agent to start, also one that was given up.
    pub fn is_agent_awaited(&self) -> bool {
        self.running.values().chain(self.given_up.values()).any(|work| *work == AgentWork::Start)
    }

    /// Whether the agent was asked to abort and has not answered.
    pub fn is_aborting(&self) -> bool {
        self.running.values().any(|work| *work == AgentWork::Abort)
    }

    fn hold(&mut self, now: i64, command: QueuedCommand, is_repeat: bool) {
        let deadline = (!is_repeat).then(|| now + self.limits.dependency_wait_ms);
        self.held.insert(command.token, HeldCommand { command, is_repeat, deadline });
    }

    fn enqueue(&mut self, command: QueuedCommand, out: &mut Vec<QueueEffect>) {
        let (lane, max, refusal) = match command.lane {
            Lane::Control | Lane::Read | Lane::Service => return self.execute(command, out),
            Lane::Session => {
                let max = self.limits.lane_max;
                (&mut self.session_lane, max, QueueRefusal::LaneFull { max })
            }
            Lane::Shell => {
                let max = self.limits.shell_lane_max;
                (&mut self.shell_lane, max, QueueRefusal::ShellLaneFull { max })
            }
        };
        if !lane.push(command, max) {
            out.push(QueueEffect::Refuse { token: command.token, refusal });
        }
    }

    fn execute(&mut self, command: QueuedCommand, out: &mut Vec<QueueEffect>) {
        self.executing.insert(command.token, command);
        out.push(QueueEffect::Execute { token: command.token });
    }

    fn park(&mut self, token: SubmissionToken, out: &mut Vec<QueueEffect>) {
        let Some(command) = self.executing.remove(&token) else { return };
        let max = self.limits.parked_max;
        if self.parked.len() >= max {
            return self.refuse(token, QueueRefusal::TooManyParked { max }, out);
        }
        self.parked.push(command);
        out.push(QueueEffect::StartAgent);
    }

    fn enqueue_edit(&mut self, token: SubmissionToken, out: &mut Vec<QueueEffect>) {
        let Some(command) = self.executing.remove(&token) else { return };
        let max = self.limits.edits_max;
        if self.edit.is_some() && self.waiting_edits.len() >= max {
            return self.refuse(token, QueueRefusal::TooManyEdits { max }, out);
        }
        self.waiting_edits.push_back(command);
    }

    /// The agent has a command, or works for it.
    fn run(&mut self, token: SubmissionToken, work: AgentWork) {
        if self.executing.remove(&token).is_none() {
            return;
        }
        self.running.insert(token, work);
        if work == AgentWork::Abort && !self.activity.is_working && self.prompts.is_taking() {
            // The agent has a prompt and may not have begun with it; then it has nothing to abort yet.
            self.abort_next = Some(self.activity.turns);
        }
    }

    /// The agent has answered; the caller finishes the command.
    fn answered(&mut self, token: SubmissionToken, answer: AgentAnswer) {
        let (running, given_up) = (self.running.remove(&token), self.given_up.remove(&token));
        let Some(work) = running.or(given_up) else { return };
        if let Some(turns_before) = work.turns_before() {
            let has_begun = self.activity.turns > turns_before;
            self.prompt_answered(token, work, answer, has_begun);
        }
        if running.is_some() && !matches!(work, AgentWork::Delivery { .. }) {
            let command = QueuedCommand { token, lane: Lane::Control, when_idle: false };
            self.executing.insert(token, command);
        }
    }

    /// The command has its answer: what waits behind it goes on.
    fn finished(&mut self, token: SubmissionToken) {
        self.held.remove(&token);
        self.executing.remove(&token);
        self.running.remove(&token);
        self.leave(token);
    }

    /// A command is over: it holds up nobody any more.
    fn leave(&mut self, token: SubmissionToken) {
        self.release_lane(token);
        self.prompts.hand_back(token);
        self.edit.take_if(|edit| *edit == token);
    }

    fn release_lane(&mut self, token: SubmissionToken) {
        self.session_lane.release(token);
        self.shell_lane.release(token);
    }

    fn refuse(&mut self, token: SubmissionToken, refusal: QueueRefusal, out: &mut Vec<QueueEffect>) {
        self.leave(token);
        out.push(QueueEffect::Refuse { token, refusal });
    }

    /// Gives up on what has waited long enough.
    fn expire(&mut self, now: i64, out: &mut Vec<QueueEffect>) {
        let is_over = |held: &HeldCommand| held.deadline.is_some_and(|deadline| deadline <= now);
        for (token, _) in self.held.extract_if(.., |_, held| is_over(held)) {
            out.push(QueueEffect::FailDependencies { token });
        }
        self.prompts.expire(now);
    }

    /// Starts everything whose turn has come.
    fn start_waiting(&mut self, out: &mut Vec<QueueEffect>) {
        if self.edit.is_none()
            && let Some(command) = self.waiting_edits.pop_front()
        {
            self.edit = Some(command.token);
            self.executing.insert(command.token, command);
            out.push(QueueEffect::EditQueue { token: command.token });
        }
        self.start_prompts(out);
        if let Some(command) = self.session_lane.next(self.is_agent_idle()) {
            self.execute(command, out);
        }
        // A shell command runs beside the agent's turn, so it never waits for its end.
        if let Some(command) = self.shell_lane.next(true) {
            self.execute(command, out);
        }
    }

    /// Whether the agent has nothing to do that a command which waits for its end would cut off. A prompt without an
    /// answer may become a turn, or be an extension's command that goes on.
    fn is_agent_idle(&self) -> bool {
        let has_prompt = || self.running.values().any(|work| work.turns_before().is_some());
        let is_quiet = self.prompts.is_quiet() && !self.is_delivery_due();
        !self.activity.is_working && is_quiet && !has_prompt()
    }

    /// The session ends: every command gets an answer.
    fn close(&mut self, out: &mut Vec<QueueEffect>) {
        for (token, work) in std::mem::take(&mut self.running) {
            if !matches!(work, AgentWork::Delivery { .. }) {
                // The agent had it: nobody can know how far it came.
                out.push(QueueEffect::Lose { token });
            }
        }
        let held = std::mem::take(&mut self.held).into_keys();
        let executing = std::mem::take(&mut self.executing).into_keys();
        let others = self.parked.drain(..).chain(self.waiting_edits.drain(..));
        let lanes = self.session_lane.drain().chain(self.shell_lane.drain());
        let tokens = others.chain(lanes).chain(self.prompts.drain()).map(|command| command.token);
        for token in held.chain(executing).chain(tokens) {
            out.push(QueueEffect::Refuse { token, refusal: QueueRefusal::SessionEnded });
        }
        *self = CommandQueue::new(self.limits);
    }
}
