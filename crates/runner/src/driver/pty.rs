//! Programs in terminals: any program, watched as it is, typed into, resized and stopped.
//!
//! There is no protocol here: what is written is the output, what is typed is the input, and the screen is `core`'s.
//! Reading has a task of its own (`reader`), because a program's last words must be read after it has ended; writing
//! has one too (`input`), because a program that does not read must not block its session.

mod input;
mod launch;
mod reader;

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use qd_core::agent::{AgentEvent, AgentRequest};
use qd_core::redact::{Scrubber, redact};
use qd_core::session::{ReadyAgent, RunStart};
use qd_link::mutex::Mutex;
use qd_wire::Command;
use qd_wire::data::ProcessStats;
use qd_wire::run::{PTY_HARNESS, RunSignal, TERMINAL_HARNESS};
use qd_wire::{CodedError, ErrorCode};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::{
    AgentDriver, AgentFailure, AgentHandle, AgentProgress, AgentResult, BoxFuture, CommandEffect, Driver,
    DriverHandle, ExecutedCommand, Harness, HarnessSettings, SentRequest, StartRequest, session_name,
};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::process::{
    CloseMode, ExitStatus, GuardedProcess, InputMode, LINE_BYTES_MAX, Privileges, SpawnSpec, Terminal,
    TerminalSignal,
};
use input::TerminalInput;
use launch::ResolvedProgram;
use reader::ReaderMessage;

/// The size of a terminal that nobody has looked at.
const COLS: u16 = 80;
const ROWS: u16 = 24;

/// Output taken at once: one commit for several pieces, when they come faster than they are stored.
const TAKE_BYTES: usize = 128 * 1024;

/// How long the end of a killed program is waited for when nobody wants to know how it ended.
/// Longer than the guard takes to kill everything beneath it.
const END_WAIT_MAX: Duration = Duration::from_secs(8);

/// Why a program in a terminal does not do what agents do.
const NO_AGENT: &str = "This session is a program in a terminal; type to it with run.input or run.stdin";

/// Programs in terminals in the table of harnesses, by the names that the protocol has for them.
pub struct TerminalHarness(&'static str);

pub static PTY: TerminalHarness = TerminalHarness(PTY_HARNESS);
pub static TERMINAL: TerminalHarness = TerminalHarness(TERMINAL_HARNESS);

impl Harness for TerminalHarness {
    fn name(&self) -> &'static str {
        self.0
    }

    fn capabilities(&self) -> &'static [&'static str] {
        &["run"]
    }

    fn start<'a>(
        &'a self,
        runner: &'a RunnerConfig,
        _settings: &'a HarnessSettings,
        request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>> {
        Box::pin(async { PtyDriver::start(runner, request).await.map(|driver| Box::new(driver) as Driver) })
    }
}

/// How a program ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunExit {
    /// -1 where there is none.
    pub code: i32,
    pub signal: Option<i32>,
    pub error: Option<String>,
}

/// A program in its terminal.
pub struct PtyDriver {
    messages: mpsc::Receiver<ReaderMessage>,
    /// The program's end, when it was received together with output: it is reported by the next call.
    next_message: Option<ReaderMessage>,
    handle: PtyHandle,
    start: RunStart,
}

/// The way to a program. Clones share it.
#[derive(Clone)]
pub struct PtyHandle {
    terminal: Arc<AsyncFd<Terminal>>,
    process: Arc<GuardedProcess>,
    input: TerminalInput,
    scrubber: Arc<Mutex<Scrubber>>,
}

impl PtyDriver {
    /// Starts the program of a session.
    async fn start(runner: &RunnerConfig, request: StartRequest) -> Result<Self, CodedError> {
        let mut environment = launch::environment(runner, &request);
        let ResolvedProgram { argv, tool, command } = launch::program(&request, &environment)?;
        environment.set.push(("QD_TOOL".into(), tool.clone().into()));
        let run = request.config.run.clone().unwrap_or_default();
        let (cols, rows) = (run.cols.unwrap_or(COLS), run.rows.unwrap_or(ROWS));
        check_size(cols, rows)?;
        let cannot = |error: std::io::Error| {
            ErrorCode::AgentGone.with(format!("No terminal could be opened for {tool}: {error}"))
        };
        let terminal = Terminal::open(cols, rows).map_err(cannot)?;
        let spawn = SpawnSpec {
            program: argv,
            cwd: request.cwd.clone(),
            environment,
            guard: runner.guard.clone(),
            config: runner.process.clone(),
            privileges: Privileges::OfTheUser,
            session_id: request.session_id.clone(),
        };
        let process = spawn.start_in(&terminal).await?;
        let start = RunStart {
            tool: tool.clone(),
            command: redact(&command).into_owned(),
            cwd: request.cwd.to_string_lossy().into_owned(),
            pid: u32::try_from(process.pid()).ok(),
            cols,
            rows,
        };
        let terminal = Arc::new(terminal.watched().map_err(cannot)?);
        let scrubber = Arc::<Mutex<Scrubber>>::default();
        let messages = reader::start(Arc::clone(&terminal), Arc::clone(&scrubber), process.exited());
        let input = TerminalInput::start(Arc::clone(&terminal));
        let handle = PtyHandle { terminal, process: Arc::new(process), input, scrubber };
        Ok(PtyDriver { messages, next_message: None, handle, start })
    }

    fn take_messages(&mut self, texts: &mut Vec<String>) {
        let mut bytes: usize = texts.iter().map(String::len).sum();
        // The end comes after everything that was written.
        while bytes < TAKE_BYTES && self.next_message.is_none() {
            match self.messages.try_recv() {
                Ok(ReaderMessage::Text(text)) => {
                    bytes += text.len();
                    texts.push(text);
                }
                Ok(ended @ ReaderMessage::Ended(_)) => self.next_message = Some(ended),
                Err(_) => break,
            }
        }
    }

    /// Kills the program and everything it started; what it still said is lost.
    async fn end(mut self) {
        self.handle.process.kill();
        self.messages.close();
        while self.messages.recv().await.is_some() {}
        if tokio::time::timeout(END_WAIT_MAX, self.handle.process.exited()).await.is_err() {
            tracing::error!(pid = self.handle.process.pid(), "a program's end was not reported in time");
        }
    }
}

impl AgentDriver for PtyDriver {
    /// The program writes something, or it ends.
    fn poll_next(&mut self, context: &mut Context<'_>, _events: &mut Vec<AgentEvent>) -> Poll<AgentProgress> {
        let first = match self.next_message.take() {
            Some(message) => Some(message),
            None => ready!(self.messages.poll_recv(context)),
        };
        let mut texts = match first {
            Some(ReaderMessage::Text(text)) => vec![text],
            Some(ReaderMessage::Ended(status)) => return Poll::Ready(AgentProgress::Exited(exit_of(status))),
            // The reader is gone, with the runtime.
            None => return Poll::Ready(AgentProgress::Exited(exit_of(ExitStatus::Unknown))),
        };
        self.take_messages(&mut texts);
        Poll::Ready(AgentProgress::Output(texts))
    }

    fn handle(&self) -> DriverHandle {
        Arc::new(self.handle.clone())
    }

    fn close(self: Box<Self>, _how: CloseMode) -> BoxFuture<'static, ()> {
        Box::pin(self.end())
    }

    fn stats(&self) -> Option<ProcessStats> {
        let stats = self.handle.process.stats();
        Some(ProcessStats {
            alive: stats.alive,
            pid: u32::try_from(self.handle.process.pid()).ok(),
            rss_bytes: Some(stats.rss_bytes),
            cpu_pct: Some(stats.cpu_pct),
            uptime_s: Some(stats.uptime_s),
        })
    }

    fn run_start(&self) -> Option<&RunStart> {
        Some(&self.start)
    }

    fn take_available_output(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        self.take_messages(&mut texts);
        texts
    }
}

impl AgentHandle for PtyHandle {
    fn harness(&self) -> &'static str {
        "A program in a terminal"
    }

    /// A program answers nothing; that it lives is seen by its process.
    fn send_request(&self, request: AgentRequest) -> AgentResult<SentRequest> {
        if request == AgentRequest::GetState {
            Ok(SentRequest::done())
        } else {
            Err(AgentFailure::refused(ErrorCode::Unsupported.with(NO_AGENT)))
        }
    }

    fn send_without_reply(&self, _request: AgentRequest) -> AgentResult<()> {
        Err(AgentFailure::refused(ErrorCode::Unsupported.with(NO_AGENT)))
    }

    fn prepare(&self) -> BoxFuture<'_, Result<ReadyAgent, CodedError>> {
        Box::pin(std::future::ready(Ok(ReadyAgent::default())))
    }

    fn execute<'a>(
        &'a self,
        command: &'a Command,
        _native: bool,
    ) -> BoxFuture<'a, AgentResult<ExecutedCommand>> {
        let result = match command {
            Command::SetSessionName(params) => session_name(&params.name)
                .map(|name| ExecutedCommand::with_effect(CommandEffect::Title(name)))
                .map_err(AgentFailure::refused),
            other => {
                let error = format!("'{}' is for agents. {NO_AGENT}", other.spec().name);
                Err(AgentFailure::refused(ErrorCode::Unsupported.with(error)))
            }
        };
        Box::pin(std::future::ready(result))
    }

    fn terminal(&self) -> Option<&PtyHandle> {
        Some(self)
    }
}

impl PtyHandle {
    /// Whether this text can be written, now or later.
    pub fn check_input(&self, text: &str) -> Result<(), CodedError> {
        self.input.check_room(text.len())?;
        let is_too_long = |line: &str| line.len() > LINE_BYTES_MAX;
        if self.input_mode().is_by_lines && text.split(['\r', '\n']).any(is_too_long) {
            let error = format!(
                "The program reads lines, and its terminal cuts a line after {LINE_BYTES_MAX} bytes; send shorter ones"
            );
            return Err(ErrorCode::TooLarge.with(error));
        }
        Ok(())
    }

    /// Types a text. A failure says whether some of it was typed already.
    pub fn write(&self, text: &str) -> AgentResult<()> {
        self.input.write(text.as_bytes())
    }

    /// How the program takes its input now.
    pub fn input_mode(&self) -> InputMode {
        self.terminal.get_ref().input_mode()
    }

    /// Sets the terminal's size.
    pub fn resize(&self, cols: u16, rows: u16) -> Result<(), CodedError> {
        check_size(cols, rows)?;
        let resized = self.terminal.get_ref().resize(cols, rows);
        resized.map_err(|error| ErrorCode::Failed.with(format!("The terminal could not be resized: {error}")))
    }

    /// From now on the output does not show this.
    pub fn hide(&self, secret: &str) {
        self.scrubber.lock().expect(now_ms(), secret);
    }

    /// Sends a signal. Whether the program ends by it is another question.
    pub fn signal(&self, signal: RunSignal) {
        match signal {
            RunSignal::Int => {
                self.process.signal_terminal(self.terminal.get_ref(), TerminalSignal::Interrupt)
            }
            RunSignal::Term => {
                self.process.signal_terminal(self.terminal.get_ref(), TerminalSignal::Terminate)
            }
            RunSignal::Kill => self.process.kill(),
        }
    }

    /// Takes the terminal away: the program is told so and asked to end.
    pub fn hang_up(&self) {
        self.process.signal_terminal(self.terminal.get_ref(), TerminalSignal::HangUp);
        self.process.signal_terminal(self.terminal.get_ref(), TerminalSignal::Terminate);
    }
}

/// A size that screens of people have.
pub fn check_size(cols: u16, rows: u16) -> Result<(), CodedError> {
    if !(2..=500).contains(&cols) {
        return Err(CodedError::invalid(format!("cols: Must be between 2 and 500, not {cols}")));
    }
    if !(1..=200).contains(&rows) {
        return Err(CodedError::invalid(format!("rows: Must be between 1 and 200, not {rows}")));
    }
    Ok(())
}

fn exit_of(status: ExitStatus) -> RunExit {
    match status {
        ExitStatus::Code(code) => RunExit { code, signal: None, error: None },
        ExitStatus::Signal(signal) => {
            RunExit { code: -1, signal: Some(signal), error: Some(status.to_string()) }
        }
        ExitStatus::Unknown => RunExit { code: -1, signal: None, error: Some(status.to_string()) },
    }
}
