//! What a harness is: one row of the table, with hooks for what only some of them have.
//!
//! A harness implements [`Harness`] (what it is called, what it can do, how to start it), [`AgentDriver`] (an agent
//! at work) and [`AgentHandle`] (the way to ask it something). Whatever is optional has a default that says no.

use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use qd_core::agent::{AgentEvent, AgentRequest, NativeMessage};
use qd_core::session::{ReadyAgent, RunStart};
use qd_wire::data::{ProcessStats, QueueState, StoredSession};
use qd_wire::{CodedError, Command, ErrorCode};
use serde_json::Value;

use super::{
    AgentFailure, AgentProgress, AgentResult, CommandEffect, Driver, DriverHandle, ExecutedCommand,
    PromptDisposition, SentRequest, StartRequest, TerminalHandle, unsupported,
};
use crate::config::RunnerConfig;
use crate::process::CloseMode;

/// A future that a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The same for what an agent is asked.
pub type AgentFuture<'a, T> = BoxFuture<'a, AgentResult<T>>;

/// One kind of agent program.
pub trait Harness: Send + Sync {
    /// What clients call it, in `session.create` and in lists.
    fn name(&self) -> &'static str;

    /// What it can do beyond prompts, for clients that hide what does not apply.
    fn capabilities(&self) -> &'static [&'static str];

    /// Starts an agent. It is not ready yet: [`AgentHandle::prepare`] waits for that.
    fn start<'a>(
        &'a self,
        runner: &'a RunnerConfig,
        settings: &'a HarnessSettings,
        request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>>;

    /// Whether it can be started on this machine.
    fn is_installed(&self, _settings: &HarnessSettings) -> bool {
        true
    }

    /// What to do when it is not installed; a clause for the end of an error.
    fn install_advice(&self) -> &'static str {
        "install it"
    }

    /// The setting that names its program, if it has one.
    fn command_setting(&self) -> Option<CommandSetting> {
        None
    }

    /// Where its user's own files are, if it has some.
    fn directory_setting(&self) -> Option<DirectorySetting> {
        None
    }

    /// Variables of the runner's that its agents need besides those that all agents get, such as the keys of its model
    /// providers. One that ends with `*` stands for all that begin so.
    fn needed_variables(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether its driver tells events in the form of the watching face itself ([`AgentEvent::Native`]). For all
    /// others they are made from what the agent does.
    fn tells_native_events(&self) -> bool {
        false
    }

    /// Conversations it keeps in files of its own, which clients may list and continue.
    fn stored(&self) -> Option<&dyn StoredConversations> {
        None
    }

    /// Refuses a text that a person must not send: it would reach our own extension.
    fn check_input(&self, _text: &str) -> Result<(), CodedError> {
        Ok(())
    }

    /// The agent did not start with this error. If our own extension did it, the warning to tell after another try
    /// without it.
    fn blame_extension(&self, _error: &str) -> Option<String> {
        None
    }

    /// What `qd doctor` says about it on this machine.
    fn doctor<'a>(&'a self, _settings: &'a HarnessSettings) -> BoxFuture<'a, Vec<HarnessCheck>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// A command line that tries it where nothing is installed; for those that need nothing.
    fn first_try(&self) -> Option<&'static str> {
        None
    }
}

impl fmt::Debug for dyn Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a person has set for one harness.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HarnessSettings {
    /// Program and arguments that start it.
    pub command: Vec<String>,
    /// The user's own directory of it: what sessions start from, and where its conversations are.
    pub user_dir: PathBuf,
}

/// The setting that names a harness's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandSetting {
    /// In the settings file.
    pub name: &'static str,
    /// Without its dashes in front.
    pub flag: &'static str,
    pub env: &'static str,
    /// Words as in a shell.
    pub default: &'static str,
    pub help: &'static str,
}

/// Where a harness keeps its user's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectorySetting {
    /// The harness's own variable.
    pub env: &'static str,
    /// Without it: this, below the home directory.
    pub below_home: &'static str,
}

/// One thing `qd doctor` looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HarnessCheck {
    pub name: &'static str,
    pub found: String,
    /// What to do; none if all is well.
    pub advice: Option<String>,
}

/// Conversations in files of the harness. All of it reads the disk, so it is called where that may take time.
pub trait StoredConversations: Send + Sync {
    /// All there are. `workplaces` are directories in which sessions of this runner work.
    fn list(&self, settings: &HarnessSettings, workplaces: &[PathBuf]) -> Vec<StoredSession>;

    /// Whether a new session may continue what a client named, as far as can be known without starting it.
    fn check(&self, settings: &HarnessSettings, named: &str) -> Result<(), CodedError>;

    /// Where the conversation took place.
    fn cwd_of(&self, settings: &HarnessSettings, named: &str) -> Option<String>;

    /// The messages of a session's own conversation, read while no agent has it; none where that cannot be told.
    fn messages(
        &self,
        _settings: &HarnessSettings,
        _native_session_file: &str,
    ) -> Option<Vec<NativeMessage>> {
        None
    }
}

/// An agent at work.
pub trait AgentDriver: Send + Sync {
    /// Waits for the agent to do something. What is not ready yet is kept in the driver, so that a caller who stops
    /// waiting loses nothing.
    fn poll_next(&mut self, context: &mut Context<'_>, events: &mut Vec<AgentEvent>) -> Poll<AgentProgress>;

    fn handle(&self) -> DriverHandle;

    /// Ends the agent and everything it started. One that hangs is killed and not asked.
    fn close(self: Box<Self>, how: CloseMode) -> BoxFuture<'static, ()>;

    /// Whether the session is told the agent's own words too ([`AgentEvent::Native`]), before what they mean.
    fn set_watched(&self, _on: bool) {}

    /// Figures of the process; `None` for an agent that has none.
    fn stats(&self) -> Option<ProcessStats> {
        None
    }

    /// Whether what the agent prints can still reach us.
    fn is_stdout_open(&self) -> bool {
        true
    }

    /// Kills the agent without waiting; its end is told as any other, with this reason.
    fn kill_with_reason(&mut self, _reason: String) {}

    /// What was started, of a program in a terminal.
    fn run_start(&self) -> Option<&RunStart> {
        None
    }

    /// What a program in a terminal has written already, without waiting for more.
    fn take_available_output(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// The way to ask an agent something.
pub trait AgentHandle: Send + Sync {
    /// What the harness is called in messages for people.
    fn harness(&self) -> &'static str;

    /// Gives the agent a request without waiting for anything, in the order of the calls.
    fn send_request(&self, request: AgentRequest) -> AgentResult<SentRequest>;

    /// Tells the agent something that has no answer.
    fn send_without_reply(&self, request: AgentRequest) -> AgentResult<()>;

    /// Waits until the agent is ready and reads what it knows.
    fn prepare(&self) -> BoxFuture<'_, Result<ReadyAgent, CodedError>>;

    /// Runs a command that only the agent can carry out. With `native` the data is the agent's own words where it
    /// has some: `{"native": …}`.
    fn execute<'a>(&'a self, command: &'a Command, _native: bool) -> AgentFuture<'a, ExecutedCommand> {
        Box::pin(std::future::ready(Err(unsupported(self.harness(), command))))
    }

    /// What became of a prompt that the agent has accepted with this reply.
    fn disposition<'a>(
        &'a self,
        _reply: &'a Value,
        _is_command: bool,
        busy: bool,
    ) -> BoxFuture<'a, PromptDisposition> {
        Box::pin(std::future::ready(PromptDisposition::accepted(busy)))
    }

    /// What may have changed without an event. `known` is the conversation we think the agent is in.
    fn unannounced_changes<'a>(&'a self, _known: Option<&'a str>) -> AgentFuture<'a, Vec<CommandEffect>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Asks the agent for what is in its queue, which is empty afterwards. Written at once, like every request.
    fn reclaim_queue(&self) -> AgentResult<AgentFuture<'static, QueueState>> {
        let error = format!("{} cannot give back what is in its queue, so it stays as it is", self.harness());
        Err(AgentFailure::refused(ErrorCode::Unsupported.with(error)))
    }

    /// The terminal, of a program in one.
    fn terminal(&self) -> Option<&TerminalHandle> {
        None
    }
}
