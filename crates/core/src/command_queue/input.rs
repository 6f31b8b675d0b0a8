//! What the queue is told.

use qd_wire::CodedError;

use qd_wire::command_table::Lane;

use crate::ledger::SubmissionToken;

/// A command, as far as the queue needs to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuedCommand {
    pub token: SubmissionToken,
    pub lane: Lane,
    /// It starts only when the agent neither works nor has prompts to come.
    pub when_idle: bool,
}

/// What the agent does for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentWork {
    /// Any request that is no prompt.
    Request,
    /// An abort of its turn.
    Abort,
    /// It gives back its queue.
    QueueEdit,
    /// It starts; the command is answered when it is ready.
    Start,
    /// A prompt, written when this many turns had begun.
    Prompt { turns_before: u64 },
    /// An input that an earlier agent left unread, written when this many turns had begun. It has no command.
    Delivery { turns_before: u64 },
}

impl AgentWork {
    /// Of prompts: how many turns had begun when it was written.
    pub fn turns_before(self) -> Option<u64> {
        match self {
            AgentWork::Prompt { turns_before } | AgentWork::Delivery { turns_before } => Some(turns_before),
            AgentWork::Request | AgentWork::Abort | AgentWork::QueueEdit | AgentWork::Start => None,
        }
    }
}

/// How the agent stands, as the session machine knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentActivity {
    /// Turns begun since the start of this process.
    pub turns: u64,
    pub is_working: bool,
    pub undelivered: Undelivered,
}

/// Inputs that an earlier agent accepted and did not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Undelivered {
    /// There are none, or none may be written now.
    #[default]
    Nothing,
    /// The next one goes ahead of the next prompt, and not before there is one.
    WithNextPrompt,
    /// The next one is due.
    Now,
}

/// What the agent answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentAnswer {
    /// It accepted a prompt, and a turn begins or has begun with it.
    StartsTurn,
    /// It did what it was asked, queued the prompt, or died before it could answer.
    Done,
    /// It refused.
    Refused,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueInput {
    /// A command waits for others: those it depends on, or the one it repeats.
    Hold { command: QueuedCommand, is_repeat: bool },
    /// Those it waited for have succeeded.
    Release { token: SubmissionToken },
    /// A command passed admission.
    Enqueue(QueuedCommand),
    /// A command in execution needs an agent that is ready.
    Park { token: SubmissionToken },
    /// A command in execution is a prompt. Without `may_interrupt` it is refused when the agent works.
    EnqueuePrompt { token: SubmissionToken, may_interrupt: bool },
    /// The agent's stdin has the prompt; a command of an extension is answered when it is done, and it may ask a person
    /// first, so it releases its lane now.
    PromptWritten { token: SubmissionToken, is_command: bool },
    /// The agent's stdin has an undelivered input.
    DeliveryWritten { token: SubmissionToken },
    /// No undelivered input was written. When one was refused, all of them wait for the agent's next start.
    DeliveryNotWritten { is_refused: bool },
    /// A command in execution changes the agent's queue.
    EditQueue { token: SubmissionToken },
    /// A command in execution was handed to the agent.
    Running { token: SubmissionToken, work: AgentWork },
    /// The agent has answered a command, which is in the caller's hands again.
    Answered { token: SubmissionToken, answer: AgentAnswer },
    /// A command has its response.
    Finished { token: SubmissionToken },
    /// The time of a command is over.
    Cancel { token: SubmissionToken },
    /// The agent did something.
    Activity(AgentActivity),
    /// The agent takes commands.
    AgentReady,
    /// There is no agent any more; another may be on its way.
    AgentGone,
    /// No agent will come: what waits for it is refused. `with_lanes` is for a session that never came to be.
    RefuseWaiting { error: CodedError, with_lanes: bool },
    /// Time has passed.
    Tick,
    /// The session ends.
    Close,
}
