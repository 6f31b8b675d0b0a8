//! Drivers: the code that speaks to one kind of agent. A driver never writes to a store and knows no client.

pub mod demo;
pub mod pi;
pub mod pty;

use qd_core::agent::{AgentEvent, AgentRequest, NativeMessage};
use qd_core::session::{AgentFacts, AgentUp, QueueFate, RunStart};
use qd_wire::Command;
use qd_wire::command::SessionConfig;
use qd_wire::data::ProcessStats;
use qd_wire::run::{PTY_HARNESS, TERMINAL_HARNESS, is_terminal};
use serde_json::Value;

use crate::config::RunnerConfig;
use crate::process::Close;

/// Why a program in a terminal does not do what agents do.
const NO_AGENT: &str = "This session is a program in a terminal; type to it with run.input or run.stdin";

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
}

impl Executed {
    fn with_effect(effect: Effect) -> Self {
        Executed { effects: vec![effect], ..Executed::default() }
    }

    fn with_data(data: Value) -> Self {
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
    /// Load our own extension; without it native events have to do.
    pub bridge: bool,
}

/// An agent at work.
pub enum Driver {
    Pi(Box<pi::PiDriver>),
    Demo(Box<demo::DemoDriver>),
    Pty(Box<pty::PtyDriver>),
}

/// What a harness has written of a conversation by itself, read without an agent; none if it writes nothing that can be
/// read. Blocks.
pub(crate) fn stored_conversation(
    runner: &RunnerConfig,
    harness: &str,
    native_session_file: &str,
) -> Option<Vec<NativeMessage>> {
    match harness {
        "pi" => pi::stored_conversation(runner, native_session_file),
        _ => None,
    }
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
    Exited(pty::RunExit),
}

/// Why an agent did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentFailure {
    pub error: String,
    /// The request was written and no reply came: whether it took effect is unknown.
    pub lost: bool,
    /// The agent itself said so, which is a sign of life.
    pub is_reply: bool,
}

impl AgentFailure {
    /// We said no: nothing happened.
    pub fn refused(error: impl Into<String>) -> Self {
        AgentFailure { error: error.into(), lost: false, is_reply: false }
    }

    /// The agent said no: nothing happened.
    pub fn replied(error: impl Into<String>) -> Self {
        AgentFailure { is_reply: true, ..AgentFailure::refused(error) }
    }

    /// The agent died before it answered.
    pub fn lost(error: impl Into<String>) -> Self {
        AgentFailure { error: error.into(), lost: true, is_reply: false }
    }
}

impl From<String> for AgentFailure {
    fn from(error: String) -> Self {
        AgentFailure::refused(error)
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
    fn accepted(busy: bool) -> Self {
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

/// The way to ask an agent something; clones speak to the same agent.
#[derive(Clone)]
pub enum DriverHandle {
    Pi(pi::PiHandle),
    Demo(demo::DemoHandle),
    Pty(pty::PtyHandle),
}

/// The names of the harnesses this runner can start.
pub fn harnesses(config: &RunnerConfig) -> Vec<String> {
    let mut names = ["demo", PTY_HARNESS, TERMINAL_HARNESS].map(str::to_owned).to_vec();
    if pi::is_installed(&config.pi_command) {
        names.push("pi".to_owned());
    }
    names
}

/// What a harness can do beyond prompts, for clients that hide what does not apply.
pub fn capabilities(harness: &str) -> Vec<String> {
    let names: &[&str] = match harness {
        "pi" => &[
            "steer",
            "follow_up",
            "images",
            "fork",
            "compact",
            "thinking",
            "models",
            "switch",
            "new",
            "retry",
            "resume",
            "bash",
            "export",
            "tree",
        ],
        "demo" => &["steer", "follow_up"],
        harness if is_terminal(harness) => &["run"],
        _ => &[],
    };
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Starts an agent. It is not ready yet: [`DriverHandle::prepare`] waits for that.
pub async fn start(runner: &RunnerConfig, request: StartRequest) -> Result<Driver, String> {
    match request.config.harness.as_str() {
        "pi" => pi::PiDriver::start(runner, request).await.map(|driver| Driver::Pi(Box::new(driver))),
        "demo" => Ok(Driver::Demo(Box::default())),
        harness if is_terminal(harness) => {
            pty::PtyDriver::start(runner, request).await.map(|driver| Driver::Pty(Box::new(driver)))
        }
        other => Err(format!("Unknown harness '{other}'; this runner has: {}", harnesses(runner).join(", "))),
    }
}

impl Driver {
    /// Waits for the agent to do something. Cancelling it loses nothing.
    pub async fn next(&mut self, events: &mut Vec<AgentEvent>) -> Progress {
        match self {
            Driver::Pi(driver) => driver.next(events).await,
            Driver::Demo(driver) => driver.next(events).await,
            Driver::Pty(driver) => driver.next().await,
        }
    }

    pub fn handle(&self) -> DriverHandle {
        match self {
            Driver::Pi(driver) => DriverHandle::Pi(driver.handle()),
            Driver::Demo(driver) => DriverHandle::Demo(driver.handle()),
            Driver::Pty(driver) => DriverHandle::Pty(driver.handle()),
        }
    }

    /// Whether the session is told the agent's own words too ([`AgentEvent::Native`]), before what they mean.
    pub fn set_watched(&self, on: bool) {
        match self {
            Driver::Pi(driver) => driver.set_watched(on),
            // They have no words of their own.
            Driver::Demo(_) | Driver::Pty(_) => {}
        }
    }

    /// Figures of the process; `None` for an agent that has none.
    pub fn stats(&self) -> Option<ProcessStats> {
        match self {
            Driver::Pi(driver) => Some(driver.stats()),
            Driver::Pty(driver) => Some(driver.stats()),
            Driver::Demo(_) => None,
        }
    }

    /// Whether what the agent prints can still reach us.
    pub fn is_stdout_open(&self) -> bool {
        match self {
            Driver::Pi(driver) => driver.is_stdout_open(),
            // A program may close its terminal and live on.
            Driver::Demo(_) | Driver::Pty(_) => true,
        }
    }

    /// Ends the agent and everything it started.
    pub async fn close(self) {
        match self {
            Driver::Pi(driver) => driver.close(Close::Graceful).await,
            Driver::Pty(driver) => driver.close().await,
            Driver::Demo(_) => {}
        }
    }

    /// Kills the agent and everything it started: it hangs, so it is not asked.
    pub async fn kill(self) {
        match self {
            Driver::Pi(driver) => driver.close(Close::Now).await,
            Driver::Pty(driver) => driver.close().await,
            Driver::Demo(_) => {}
        }
    }

    /// Kills the agent without waiting; its end is told as any other, with this reason.
    pub fn condemn(&mut self, reason: String) {
        match self {
            Driver::Pi(driver) => driver.condemn(reason),
            Driver::Demo(_) | Driver::Pty(_) => {}
        }
    }

    /// What was started, of a program in a terminal.
    pub fn run_start(&self) -> Option<&RunStart> {
        match self {
            Driver::Pty(driver) => Some(driver.run_start()),
            Driver::Pi(_) | Driver::Demo(_) => None,
        }
    }
}

/// A request that the agent has, in the order it was asked.
pub enum Begun {
    Pi(pi::PiReceiver),
    Demo(demo::DemoReceiver),
    /// It is done already.
    Done,
}

impl DriverHandle {
    /// Gives the agent a request without waiting for anything.
    pub fn begin(&self, request: AgentRequest) -> Result<Begun, AgentFailure> {
        match self {
            DriverHandle::Pi(handle) => handle.begin(&request).map(Begun::Pi),
            DriverHandle::Demo(handle) => handle.begin(request).map(Begun::Demo),
            // A program answers nothing; that it lives is seen by its process.
            DriverHandle::Pty(_) if request == AgentRequest::GetState => Ok(Begun::Done),
            DriverHandle::Pty(_) => Err(AgentFailure::refused(NO_AGENT)),
        }
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
        let disposition = match self {
            DriverHandle::Pi(handle) => handle.disposition(&reply, is_command, busy).await,
            DriverHandle::Demo(_) | DriverHandle::Pty(_) => Disposition::accepted(busy),
        };
        Ok(Executed { disposition: Some(disposition), ..Executed::default() })
    }

    /// Tells the agent something that has no answer.
    pub fn tell(&self, request: AgentRequest) -> Result<(), String> {
        match self {
            DriverHandle::Pi(handle) => handle.tell(&request),
            DriverHandle::Demo(handle) => handle.begin(request).map(drop).map_err(|failure| failure.error),
            DriverHandle::Pty(_) => Err(NO_AGENT.to_owned()),
        }
    }

    /// Waits until the agent is ready and reads what it knows.
    pub async fn prepare(&self) -> Result<AgentUp, String> {
        match self {
            DriverHandle::Pi(handle) => handle.prepare().await,
            DriverHandle::Demo(_) => Ok(AgentUp { facts: demo::facts(), conversation: Vec::new() }),
            DriverHandle::Pty(_) => Ok(AgentUp::default()),
        }
    }

    /// Runs a command that only the agent can carry out. With `native` the data is the agent's own words where it has
    /// some: `{"native": …}`.
    pub async fn execute(&self, command: &Command, native: bool) -> Result<Executed, AgentFailure> {
        match self {
            DriverHandle::Pi(handle) => pi::execute(handle, command, native).await,
            DriverHandle::Demo(handle) => handle.execute(command).await,
            DriverHandle::Pty(_) => match command {
                Command::SetSessionName(params) => {
                    Ok(Executed::with_effect(Effect::Title(session_name(&params.name)?)))
                }
                other => {
                    Err(AgentFailure::refused(format!("'{}' is for agents. {NO_AGENT}", other.spec().name)))
                }
            },
        }
    }

    /// What may have changed without an event. `known` is the conversation we think the agent is in.
    pub async fn changes(&self, known: Option<&str>) -> Result<Vec<Effect>, AgentFailure> {
        match self {
            DriverHandle::Pi(handle) => {
                let facts = handle.facts().await?;
                let has_moved = handle.take_moved();
                if known.is_some() && facts.native_session_id.as_deref() != known {
                    return pi::where_now(handle, None).await;
                }
                if has_moved {
                    return pi::where_now(handle, Some(QueueFate::Kept)).await;
                }
                let mut effects = pi::news(handle).await?;
                effects.push(Effect::Facts(facts));
                Ok(effects)
            }
            DriverHandle::Demo(_) | DriverHandle::Pty(_) => Ok(Vec::new()),
        }
    }
}

impl Begun {
    /// The agent's answer.
    pub async fn reply(self) -> Result<Value, AgentFailure> {
        match self {
            Begun::Pi(receiver) => receiver.reply().await,
            Begun::Demo(receiver) => receiver.reply().await,
            Begun::Done => Ok(Value::Null),
        }
    }
}

/// A session name: trimmed, not empty, bounded.
fn session_name(name: &str) -> Result<String, String> {
    const NAME_CHARACTERS_MAX: usize = 256;
    let name = name.trim();
    if name.is_empty() {
        return Err("name: Must not be empty".to_owned());
    }
    if name.chars().count() > NAME_CHARACTERS_MAX {
        return Err(format!("name: Too long (max {NAME_CHARACTERS_MAX} chars)"));
    }
    if name.chars().any(char::is_control) {
        return Err("name: Must not contain control characters".to_owned());
    }
    Ok(name.to_owned())
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|error| error.to_string())
}
