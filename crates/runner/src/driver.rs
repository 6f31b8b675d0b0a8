//! Drivers: the code that speaks to one kind of agent. A driver never writes to a store and knows no client.
//!
//! `harness` says what a harness must and may have, `table` lists them. Generic code asks through [`Harnesses`],
//! [`Driver`] and [`DriverHandle`], and names none.

pub mod demo;
mod harness;
pub mod pi;
pub mod pty;
mod requests;
mod table;

use std::sync::Arc;

use qd_core::agent::{AgentEvent, AgentRequest, NativeMessage};
use qd_core::harness::AgentRefusal;
use qd_core::session::{AgentFacts, AgentUp, QueueFate, RunStart};
use qd_wire::command::SessionConfig;
use qd_wire::data::{ProcessStats, QueueState};
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::Value;

pub use harness::{
    AgentDriver, AgentHandle, BoxFuture, CommandSetting, DirectorySetting, Harness, HarnessCheck,
    HarnessSettings, StoredConversations,
};
pub use pty::{PtyHandle as TerminalHandle, RunExit};
pub use requests::{PendingReply, PendingRequests};
pub use table::{DEFAULT, Harnesses, Registered, TABLE, first_try, start};

use crate::process::Close;

/// What a command did to the agent, for the session machine to learn.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
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
pub struct Executed {
    pub data: Option<Value>,
    pub effects: Vec<Effect>,
    /// Of a prompt.
    pub disposition: Option<Disposition>,
    /// What the agent gave back of its queue.
    pub queue: Option<QueueState>,
}

impl Executed {
    /// A command without data.
    pub fn with_effect(effect: Effect) -> Self {
        Executed { effects: vec![effect], ..Executed::default() }
    }

    /// A command that changes nothing.
    pub fn with_data(data: Value) -> Self {
        Executed { data: Some(data), ..Executed::default() }
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
pub enum Progress {
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
pub enum Disposition {
    Started,
    Queued,
    /// A command of an extension that needed no turn.
    Handled,
}

impl Disposition {
    /// Of an agent that says no more than yes.
    pub fn accepted(busy: bool) -> Self {
        if busy { Disposition::Queued } else { Disposition::Started }
    }

    /// The word in the response.
    pub const fn as_str(self) -> &'static str {
        match self {
            Disposition::Started => "started",
            Disposition::Queued => "queued",
            Disposition::Handled => "handled",
        }
    }
}

/// An agent at work.
pub struct Driver(Box<dyn AgentDriver>);

impl Driver {
    pub fn new(agent: impl AgentDriver + 'static) -> Self {
        Driver(Box::new(agent))
    }

    /// Waits for the agent to do something. Cancelling it loses nothing.
    pub async fn next(&mut self, events: &mut Vec<AgentEvent>) -> Progress {
        std::future::poll_fn(|context| self.0.poll_next(context, events)).await
    }

    pub fn handle(&self) -> DriverHandle {
        self.0.handle()
    }

    /// Whether the session is told the agent's own words too ([`AgentEvent::Native`]), before what they mean.
    pub fn set_watched(&self, on: bool) {
        self.0.set_watched(on);
    }

    /// Figures of the process; `None` for an agent that has none.
    pub fn stats(&self) -> Option<ProcessStats> {
        self.0.stats()
    }

    /// Whether what the agent prints can still reach us.
    pub fn is_stdout_open(&self) -> bool {
        self.0.is_stdout_open()
    }

    /// Ends the agent and everything it started.
    pub async fn close(self) {
        self.0.close(Close::Graceful).await;
    }

    /// Kills the agent and everything it started: it hangs, so it is not asked.
    pub async fn kill(self) {
        self.0.close(Close::Now).await;
    }

    /// Kills the agent without waiting; its end is told as any other, with this reason.
    pub fn condemn(&mut self, reason: String) {
        self.0.condemn(reason);
    }

    /// What was started, of a program in a terminal.
    pub fn run_start(&self) -> Option<&RunStart> {
        self.0.run_start()
    }

    /// What a program in a terminal has written already, without waiting for more.
    pub fn take_written(&mut self) -> Vec<String> {
        self.0.take_written()
    }
}

/// The way to ask an agent something; clones speak to the same agent.
#[derive(Clone)]
pub struct DriverHandle(Arc<dyn AgentHandle>);

/// A request that the agent has, in the order it was asked. Dropping it gives up on the answer only.
pub struct Begun(BoxFuture<'static, Result<Value, AgentFailure>>);

impl Begun {
    /// The answer comes with this future.
    pub fn new(reply: impl Future<Output = Result<Value, AgentFailure>> + Send + 'static) -> Self {
        Begun(Box::pin(reply))
    }

    /// It is done already.
    pub fn done() -> Self {
        Begun::new(std::future::ready(Ok(Value::Null)))
    }

    /// The agent's answer.
    pub async fn reply(self) -> Result<Value, AgentFailure> {
        self.0.await
    }
}

impl DriverHandle {
    pub fn new(handle: impl AgentHandle + 'static) -> Self {
        DriverHandle(Arc::new(handle))
    }

    /// Gives the agent a request without waiting for anything.
    pub fn begin(&self, request: AgentRequest) -> Result<Begun, AgentFailure> {
        self.0.begin(request)
    }

    /// Asks for a sign of life; any answer is one.
    pub fn probe(&self) -> Result<Begun, AgentFailure> {
        self.begin(AgentRequest::GetState)
    }

    /// Waits for the answer to a prompt, which says whether it started a turn, waits, or was done at once.
    pub async fn prompted(
        &self,
        begun: Begun,
        is_command: bool,
        busy: bool,
    ) -> Result<Executed, AgentFailure> {
        let reply = begun.reply().await?;
        let disposition = self.0.disposition(&reply, is_command, busy).await;
        Ok(Executed { disposition: Some(disposition), ..Executed::default() })
    }

    /// Tells the agent something that has no answer.
    pub fn tell(&self, request: AgentRequest) -> Result<(), AgentFailure> {
        self.0.tell(request)
    }

    /// Waits until the agent is ready and reads what it knows.
    pub async fn prepare(&self) -> Result<AgentUp, CodedError> {
        self.0.prepare().await
    }

    /// Runs a command that only the agent can carry out. With `native` the data is the agent's own words where it has
    /// some: `{"native": …}`.
    pub async fn execute(&self, command: &Command, native: bool) -> Result<Executed, AgentFailure> {
        self.0.execute(command, native).await
    }

    /// What may have changed without an event. `known` is the conversation we think the agent is in.
    pub async fn changes(&self, known: Option<&str>) -> Result<Vec<Effect>, AgentFailure> {
        self.0.changes(known).await
    }

    /// Asks the agent for what is in its queue; the request is written when this returns.
    pub fn give_back_queue(
        &self,
    ) -> Result<BoxFuture<'static, Result<QueueState, AgentFailure>>, AgentFailure> {
        self.0.give_back_queue()
    }

    /// The terminal, of a program in one.
    pub fn terminal(&self) -> Option<TerminalHandle> {
        self.0.terminal().cloned()
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
        return Err(CodedError::invalid("name: Must not be empty"));
    }
    if name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(CodedError::invalid(format!("name: Too long (max {NAME_CHARACTERS_MAX} chars)")));
    }
    if name.chars().any(char::is_control) {
        return Err(CodedError::invalid("name: Must not contain control characters"));
    }
    Ok(name.to_owned())
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, CodedError> {
    serde_json::to_value(value).map_err(|error| ErrorCode::Internal.with(error.to_string()))
}
