//! pi in RPC mode, 0.84.3 and newer.

mod execute;
mod files;
mod handle;
mod home;
mod launch;
mod version;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use qd_core::agent::AgentEvent;
use qd_core::harness::pi::{PiCodec, PiOutput};
use qd_wire::data::ProcessStats;
use qd_wire::event::NotifyLevel;
use serde_json::Value;
use tokio::process::ChildStdout;
use tokio::sync::oneshot;

use super::{AgentFailure, Progress, StartRequest};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::process::lines::{LINE_BYTES_MAX, LineReader};
use crate::process::{AgentProcess, Close};

pub(super) use execute::{execute, where_now};
pub use handle::{PiHandle, PiReceiver};
pub use home::session_directory;
pub use launch::{BRIDGE_FILE, is_installed};

/// Lines taken from the agent before its events are published, so that a flood cannot grow without bound.
const LINES_PER_BATCH_MAX: usize = 512;

type Reply = oneshot::Sender<Result<Value, AgentFailure>>;

type Waiting = Arc<Mutex<Requests>>;

/// Requests that wait for pi's answer.
enum Requests {
    /// By the id we gave them.
    Open(BTreeMap<String, Reply>),
    /// pi is gone, for this reason: none waits in vain.
    Gone(String),
}

/// A running pi.
pub struct PiDriver {
    process: AgentProcess,
    reader: LineReader<ChildStdout>,
    codec: PiCodec,
    outputs: Vec<PiOutput>,
    waiting: Waiting,
    handle: PiHandle,
    /// Told to the session before anything else the agent does.
    warnings: Vec<String>,
    /// pi has closed its output.
    is_stdout_closed: bool,
    /// Why we killed it.
    condemned: Option<String>,
}

impl PiDriver {
    /// Checks the version, makes the private directory, starts the process.
    pub async fn start(runner: &RunnerConfig, request: StartRequest) -> Result<Self, String> {
        version::check(runner).await?;
        let launched = launch::launch(runner, &request).await?;
        let mut process = launched.process;
        let stdout = process.take_stdout().ok_or("The agent's output is already taken")?;
        let waiting: Waiting = Arc::new(Mutex::new(Requests::Open(BTreeMap::new())));
        let handle = PiHandle::new(process.stdin().clone(), Arc::clone(&waiting), launched.place);
        Ok(PiDriver {
            process,
            reader: LineReader::new(stdout, LINE_BYTES_MAX),
            codec: PiCodec::new(),
            outputs: Vec::new(),
            waiting,
            handle,
            warnings: launched.warnings,
            is_stdout_closed: false,
            condemned: None,
        })
    }

    pub fn handle(&self) -> PiHandle {
        self.handle.clone()
    }

    pub fn stats(&self) -> ProcessStats {
        let stats = self.process.stats();
        ProcessStats {
            alive: stats.alive,
            pid: u32::try_from(self.process.pid()).ok(),
            rss_bytes: Some(stats.rss_bytes),
            cpu_pct: Some(stats.cpu_pct),
            uptime_s: Some(stats.uptime_s),
        }
    }

    pub fn is_stdout_open(&self) -> bool {
        !self.is_stdout_closed
    }

    /// Kills pi; how it ended is then told by [`next`](Self::next).
    pub fn condemn(&mut self, reason: String) {
        self.condemned = Some(reason);
        self.process.kill();
    }

    /// Reads what pi printed and decodes it.
    pub async fn next(&mut self, events: &mut Vec<AgentEvent>) -> Progress {
        for message in self.warnings.drain(..) {
            events.push(AgentEvent::Notify { level: NotifyLevel::Warning, message });
        }
        if !events.is_empty() {
            return Progress::Events;
        }
        match self.reader.fill().await {
            Ok(true) => {
                self.take_lines(events);
                Progress::Events
            }
            Ok(false) => self.gone(None).await,
            Err(error) => self.gone(Some(error.to_string())).await,
        }
    }

    fn take_lines(&mut self, events: &mut Vec<AgentEvent>) {
        let now = now_ms();
        for _ in 0..LINES_PER_BATCH_MAX {
            match self.reader.next_line() {
                None => break,
                Some(Ok(line)) => self.codec.line(line, now, &mut self.outputs),
                Some(Err(too_long)) => self
                    .outputs
                    .push(PiOutput::Malformed { error: too_long.to_string(), preview: String::new() }),
            }
        }
        for output in self.outputs.drain(..) {
            match output {
                PiOutput::Event(event) => events.push(event),
                PiOutput::Reply(reply) => {
                    let waiting = reply.id.and_then(|id| forget(&self.waiting, &id));
                    if let Some(waiting) = waiting {
                        // Nobody listens any more when the asker gave up; that is its right.
                        let _ = waiting.send(reply.result.map_err(AgentFailure::replied));
                    }
                }
                PiOutput::Malformed { error, preview } => {
                    let message = format!("pi printed something that is not its protocol: {error} {preview}");
                    events.push(AgentEvent::Notify { level: NotifyLevel::Warning, message });
                }
            }
        }
    }

    async fn gone(&mut self, read_error: Option<String>) -> Progress {
        self.is_stdout_closed = true;
        if read_error.is_some() {
            self.process.kill();
        }
        let status = self.process.exited().await;
        let mut error = match &self.condemned {
            Some(reason) => format!("{reason}; it was killed"),
            None => format!("pi ended: {status}"),
        };
        if let Some(read_error) = read_error {
            error.push_str(&format!(" after its output could not be read: {read_error}"));
        }
        let last_words = self.process.stderr().lines();
        if !last_words.is_empty() {
            error.push_str(". Its last words:\n");
            error.push_str(&last_words.join("\n"));
        }
        self.fail_waiting(&error);
        Progress::Gone { error }
    }

    /// Whoever still waits for an answer gets this one; nobody waits after that.
    fn fail_waiting(&self, error: &str) {
        let before = std::mem::replace(&mut *lock(&self.waiting), Requests::Gone(error.to_owned()));
        if let Requests::Open(requests) = before {
            for (_, waiting) in requests {
                // The asker may have given up.
                let _ = waiting.send(Err(AgentFailure::lost(error)));
            }
        }
    }

    pub async fn close(mut self, how: Close) {
        self.fail_waiting("The session was closed before the agent answered");
        let process = self.process;
        // pi ends by itself when its input ends; what it still prints must not block it.
        let reader = &mut self.reader;
        let drain = async {
            while let Ok(true) = reader.fill().await {
                while reader.next_line().is_some() {}
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = process.close(how) => {}
            () = drain => {}
        }
    }
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, Requests> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a request out of the list.
fn forget(waiting: &Waiting, id: &str) -> Option<Reply> {
    match &mut *lock(waiting) {
        Requests::Open(requests) => requests.remove(id),
        Requests::Gone(_) => None,
    }
}
