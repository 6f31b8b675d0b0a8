//! Faults that are planted into the machine, to prove that the histories find them. They change what it holds from
//! outside; nothing of them is in the machine itself.

use qd_wire::command_table::Lane;

use super::super::{AgentAnswer, AgentWork, CommandQueue, QueueEffect, QueueInput, QueuedCommand};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// The end of a command does not release its lane.
    LaneNotReleased,
    /// Shell commands wait in the session lane.
    LanesMixedUp,
    /// A command starts while the one before it in the lane still runs.
    LaneReleasedEarly,
    /// The next prompt is written as soon as the last one is accepted, before its turn begins.
    PromptWrittenEarly,
    /// The next prompt waits for a turn that never comes.
    PromptDeadlineIgnored,
    /// A dead agent still takes its last prompt.
    PromptKeptByDeadAgent,
    /// One of the commands that wait for the agent is dropped.
    ParkedCommandLost,
    /// A command waits for ever for those it depends on.
    DependencyDeadlineIgnored,
    /// A command runs after its time was over.
    CancelledCommandExecuted,
    /// A command that was given up keeps its lane.
    GivenUpKeepsLane,
    /// Prompts overtake what a change of the agent's queue puts back.
    EditDoesNotBlockPrompts,
    /// An abort that came before its turn is forgotten.
    DeferredAbortForgotten,
    /// A command that waits for the agent's end starts at once.
    IdleNotAwaited,
    /// What an earlier agent left unread is overtaken by new prompts.
    UndeliveredOvertaken,
}

impl Fault {
    pub(super) const PLANTED: &[Fault] = &[
        Fault::LaneNotReleased,
        Fault::LanesMixedUp,
        Fault::LaneReleasedEarly,
        Fault::PromptWrittenEarly,
        Fault::PromptDeadlineIgnored,
        Fault::PromptKeptByDeadAgent,
        Fault::ParkedCommandLost,
        Fault::DependencyDeadlineIgnored,
        Fault::CancelledCommandExecuted,
        Fault::GivenUpKeepsLane,
        Fault::EditDoesNotBlockPrompts,
        Fault::DeferredAbortForgotten,
        Fault::IdleNotAwaited,
        Fault::UndeliveredOvertaken,
    ];

    /// Lets the machine handle an input, with this fault.
    pub(super) fn handle(
        self,
        queue: &mut CommandQueue,
        now: i64,
        mut input: QueueInput,
    ) -> Vec<QueueEffect> {
        let told = input.clone();
        self.before(queue, &mut input);
        let mut effects = queue.handle(now, input);
        self.after(queue, &told, &mut effects);
        effects
    }

    fn before(self, queue: &mut CommandQueue, input: &mut QueueInput) {
        match (self, &mut *input) {
            (Fault::LaneNotReleased, QueueInput::Finished { token })
                if queue.session_lane.current == Some(*token) =>
            {
                queue.executing.remove(token);
                queue.running.remove(token);
                *input = QueueInput::Tick;
            }
            (Fault::LanesMixedUp, QueueInput::Enqueue(command) | QueueInput::Hold { command, .. })
                if command.lane == Lane::Shell =>
            {
                command.lane = Lane::Session;
            }
            (Fault::IdleNotAwaited, QueueInput::Enqueue(command) | QueueInput::Hold { command, .. }) => {
                command.when_idle = false;
            }
            (Fault::PromptDeadlineIgnored, QueueInput::PromptWritten { .. }) => {
                queue.limits.prompt_wait_ms = 1_000_000;
            }
            (Fault::GivenUpKeepsLane, QueueInput::Cancel { token })
                if queue.running.contains_key(token) && queue.session_lane.current == Some(*token) =>
            {
                queue.session_lane.current = Some(u64::MAX);
            }
            (Fault::ParkedCommandLost, QueueInput::AgentReady) => drop(queue.parked.pop()),
            (Fault::UndeliveredOvertaken, QueueInput::Activity(activity)) => {
                activity.undelivered = Default::default();
            }
            _ => {}
        }
    }

    fn after(self, queue: &mut CommandQueue, told: &QueueInput, effects: &mut Vec<QueueEffect>) {
        match (self, told) {
            (Fault::LaneReleasedEarly, QueueInput::Running { token, work: AgentWork::Request }) => {
                queue.release_lane(*token);
                queue.start_waiting(effects);
            }
            (Fault::PromptWrittenEarly, QueueInput::Answered { answer: AgentAnswer::StartsTurn, .. }) => {
                queue.prompts.agent_gone();
                queue.start_waiting(effects);
            }
            (Fault::PromptKeptByDeadAgent, QueueInput::AgentGone) => {
                let until = i64::MAX;
                queue.prompts.current = super::super::prompts::CurrentPrompt::Taking {
                    token: 0,
                    turns_before: u64::MAX,
                    is_accepted: false,
                    until,
                };
            }
            (Fault::DependencyDeadlineIgnored, QueueInput::Hold { command, .. }) => {
                queue.held.entry(command.token).and_modify(|held| held.deadline = None);
            }
            (Fault::CancelledCommandExecuted, QueueInput::Cancel { token })
                if effects.contains(&QueueEffect::TimeOut { token: *token }) =>
            {
                let command = QueuedCommand { token: *token, lane: Lane::Session, when_idle: false };
                queue.enqueue(command, effects);
            }
            (Fault::EditDoesNotBlockPrompts, QueueInput::Running { work: AgentWork::QueueEdit, .. }) => {
                queue.edit = None;
                queue.start_waiting(effects);
            }
            (Fault::DeferredAbortForgotten, QueueInput::Running { work: AgentWork::Abort, .. }) => {
                queue.abort_next = None;
            }
            _ => {}
        }
    }
}
