//! Drivers: the code that speaks to one kind of agent. A driver never writes to a store and knows no client.
//!
//! `harness` says what a harness must and may have, `table` lists them. Generic code asks through [`Harnesses`],
//! [`Driver`] and [`DriverHandle`], and names none.

pub mod demo;
mod harness;
mod harness_table;
mod pending_requests;
pub mod pi;
pub mod pty;

use std::sync::Arc;

use qd_core::agent::{AgentEvent, NativeMessage};
use qd_core::harness::AgentRefusal;
use qd_core::session::{AgentFacts, QueueFate};
use qd_wire::command::SessionConfig;
use qd_wire::data::QueueState;
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::Value;

pub use harness::{
    AgentDriver, AgentFuture, AgentHandle, BoxFuture, CommandSetting, DirectorySetting, Harness,
    HarnessCheck, HarnessSettings, StoredConversations,
};
pub use harness_table::{DEFAULT, Harnesses, RegisteredHarness, TABLE, first_try, start};
pub use pending_requests::{PendingReply, PendingRequests};
pub use pty::{PtyHandle as TerminalHandle, RunExit};

/// What a command did to the agent, for the session machine to learn.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandEffect {
    Facts(AgentFacts),
    AutoCompaction(bool),
    AutoRetry(bool),
    Title(String),
    /// Messages that came into the conversation without an event.
    Added(Vec<NativeMessage>),
    /// The agent is in another conversation now; this is all of it.
    Conversation {
        native_session_id: String,
        native_session_file: Option<String>,
        messages: Vec<NativeMessage>,
        queue: QueueFate,
    },
    /// Something was not done that a person should know of.
    Warning(String),
}

/// A command that the agent has carried out.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExecutedCommand {
    pub data: Option<Value>,
    pub effects: Vec<CommandEffect>,
    /// Of a prompt.
    pub disposition: Option<PromptDisposition>,
    /// What the agent gave back of its queue.
    pub queue: Option<QueueState>,
}

impl ExecutedCommand {
    /// A command without data.
    pub fn with_effect(effect: CommandEffect) -> Self {
        ExecutedCommand { effects: vec![effect], ..ExecutedCommand::default() }
    }

    /// A command that changes nothing.
    pub fn with_data(data: Value) -> Self {
        ExecutedCommand { data: Some(data), ..ExecutedCommand::default() }
    }
}

/// What to start.
#[derive(Debug, Clone)]
pub struct StartRequest {
    pub session_id: String,
    pub config: SessionConfig,
    pub cwd: std::path::PathBuf,
    /// The agent's own conversation to go on with.
    pub native_session_id: Option<String>,
    pub native_session_file: Option<String>,
    /// The file has been there: without it the conversation is lost, and nothing must take its place.
    pub is_native_file_written: bool,
    /// Load our own extension, where the harness has one; without it native events have to do.
    pub bridge: bool,
}

/// What became of waiting for the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentProgress {
    /// Zero or more events were added.
    Events,
    /// The agent is gone; the text says how, with its last words.
    Gone { error: String },
    /// A program wrote this, each piece worth a record.
    Output(Vec<String>),
    /// A program has ended, and everything it wrote has been told.
    Exited(RunExit),
}

/// Why an agent did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFailure {
    pub error: String,
    /// What programs decide by.
    pub code: ErrorCode,
    /// The request was written and no reply came: whether it took effect is unknown.
    pub lost: bool,
    /// The agent itself said so, which is a sign of life.
    pub is_reply: bool,
}

/// What came of asking an agent.
pub type AgentResult<T> = Result<T, AgentFailure>;

/// What came of a command that the agent was to carry out.
pub type ExecuteResult = AgentResult<ExecutedCommand>;

impl AgentFailure {
    /// We said no: nothing happened.
    pub fn refused(error: CodedError) -> Self {
        error.into()
    }

    /// The agent said no: nothing happened.
    pub fn replied(error: impl Into<String>) -> Self {
        AgentFailure { is_reply: true, ..ErrorCode::AgentFailed.with(error).into() }
    }

    /// The agent died before it answered.
    pub fn lost(error: impl Into<String>) -> Self {
        AgentFailure { lost: true, ..ErrorCode::AgentGone.with(error).into() }
    }
}

impl From<CodedError> for AgentFailure {
    fn from(error: CodedError) -> Self {
        AgentFailure { error: error.message, code: error.code, lost: false, is_reply: false }
    }
}

impl From<AgentRefusal> for AgentFailure {
    fn from(refusal: AgentRefusal) -> Self {
        AgentFailure { is_reply: true, ..refusal.code().with(refusal.to_string()).into() }
    }
}

impl From<AgentFailure> for CodedError {
    fn from(failure: AgentFailure) -> Self {
        failure.code.with(failure.error)
    }
}

/// What became of an accepted prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptDisposition {
    Started,
    Queued,
    /// A command of an extension that needed no turn.
    Handled,
}

impl PromptDisposition {
    /// Of an agent that says no more than yes.
    pub fn accepted(busy: bool) -> Self {
        if busy { PromptDisposition::Queued } else { PromptDisposition::Started }
    }

    /// The word in the response.
    pub const fn as_str(self) -> &'static str {
        match self {
            PromptDisposition::Started => "started",
            PromptDisposition::Queued => "queued",
            PromptDisposition::Handled => "handled",
        }
    }
}

/// An agent at work.
pub type Driver = Box<dyn AgentDriver>;

/// The way to ask an agent something; clones speak to the same agent.
pub type DriverHandle = Arc<dyn AgentHandle>;

impl dyn AgentDriver {
    /// Waits for the agent to do something. Cancelling it loses nothing.
    pub async fn next(&mut self, events: &mut Vec<AgentEvent>) -> AgentProgress {
        std::future::poll_fn(|context| self.poll_next(context, events)).await
    }
}

impl dyn AgentHandle {
    /// Waits for the answer to a prompt, which says whether it started a turn, waits, or was done at once.
    pub async fn await_prompt_reply(&self, sent: SentRequest, is_command: bool, busy: bool) -> ExecuteResult {
        let reply = sent.reply().await?;
        let disposition = self.disposition(&reply, is_command, busy).await;
        Ok(ExecutedCommand { disposition: Some(disposition), ..ExecutedCommand::default() })
    }
}

/// A request that the agent has, in the order it was asked. Dropping it gives up on the answer only.
pub struct SentRequest(BoxFuture<'static, AgentResult<Value>>);

impl SentRequest {
    /// The answer comes with this future.
    pub fn new(reply: impl Future<Output = AgentResult<Value>> + Send + 'static) -> Self {
        SentRequest(Box::pin(reply))
    }

    /// It is done already.
    pub fn done() -> Self {
        SentRequest::new(std::future::ready(Ok(Value::Null)))
    }

    /// The agent's answer.
    pub async fn reply(self) -> AgentResult<Value> {
        self.0.await
    }
}

/// The refusal of a command that a harness does not have.
pub fn unsupported(harness: &str, command: &Command) -> AgentFailure {
    ErrorCode::Unsupported.with(format!("{harness} does not support '{}'", command.spec().name)).into()
}

/// A session name: trimmed, not empty, bounded.
pub fn session_name(name: &str) -> Result<String, CodedError> {
    const NAME_CHARACTERS_MAX: usize = 256;
    let name = name.trim();
    if name.is_empty() {
        refuse!(InvalidRequest, "name: Must not be empty");
    }
    if name.chars().count() > NAME_CHARACTERS_MAX {
        refuse!(InvalidRequest, "name: Too long (max {NAME_CHARACTERS_MAX} chars)");
    }
    if name.chars().any(char::is_control) {
        refuse!(InvalidRequest, "name: Must not contain control characters");
    }
    Ok(name.to_owned())
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, CodedError> {
    serde_json::to_value(value).map_err(|error| ErrorCode::Internal.with(error.to_string()))
}
