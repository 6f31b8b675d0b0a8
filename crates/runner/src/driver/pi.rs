//! pi in RPC mode, 0.84.3 and newer.
//!
//! The driver owns the process and reads its output; `handle` writes to it. What pi's lines mean is in
//! `core/harness/pi`, which requests a command takes is in `execute`.

mod bridge;
mod conversation_moves;
mod doctor;
mod error;
mod execute;
mod export;
mod file_claim;
mod handle;
mod launch;
mod private_home;
mod queries;
mod session_files;
mod shell_commands;
mod variables;
mod version;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use qd_core::agent::AgentEvent;
use qd_core::harness::pi::{PiCodec, PiOutput, pass_through, private_command};
use qd_wire::data::ProcessStats;
use qd_wire::event::NotifyLevel;
use qd_wire::{CodedError, ErrorCode};
use tokio::process::ChildStdout;

use super::{
    AgentDriver, AgentProgress, BoxFuture, CommandSetting, DirectorySetting, Driver, DriverHandle, Harness,
    HarnessCheck, HarnessSettings, PendingRequests, StartRequest, StoredConversations,
};
use crate::clock::now_ms;
use crate::config::RunnerConfig;
use crate::process::line_reader::{LINE_BYTES_MAX, LineReader};
use crate::process::{AgentProcess, CloseMode, ExitStatus};

use error::PiStartError;
pub use handle::PiHandle;
pub use private_home::session_directory;

/// Lines taken from the agent before its events are published, so that a flood cannot grow without bound.
const LINES_PER_BATCH_MAX: usize = 512;

/// pi in the table of harnesses.
pub struct Pi;

impl Harness for Pi {
    fn name(&self) -> &'static str {
        "pi"
    }

    fn capabilities(&self) -> &'static [&'static str] {
        &[
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
        ]
    }

    fn needed_variables(&self) -> &'static [&'static str] {
        variables::NEEDED
    }

    fn start<'a>(
        &'a self,
        runner: &'a RunnerConfig,
        settings: &'a HarnessSettings,
        request: StartRequest,
    ) -> BoxFuture<'a, Result<Driver, CodedError>> {
        Box::pin(async { Ok(Box::new(PiDriver::start(runner, settings, request).await?) as Driver) })
    }

    fn is_installed(&self, settings: &HarnessSettings) -> bool {
        launch::is_installed(&settings.command)
    }

    fn install_advice(&self) -> &'static str {
        "see pi_command (QD_PI_COMMAND)"
    }

    fn command_setting(&self) -> Option<CommandSetting> {
        Some(CommandSetting {
            name: "pi_command",
            flag: "pi-command",
            env: "QD_PI_COMMAND",
            default: "pi",
            help: "Command that starts pi, with arguments quoted as in a shell (no shell is involved)",
        })
    }

    fn directory_setting(&self) -> Option<DirectorySetting> {
        Some(DirectorySetting { env: "PI_CODING_AGENT_DIR", below_home: ".pi/agent" })
    }

    fn tells_native_events(&self) -> bool {
        true
    }

    fn stored(&self) -> Option<&dyn StoredConversations> {
        Some(&session_files::PiFiles)
    }

    fn check_input(&self, text: &str) -> Result<(), CodedError> {
        let Some(private) = private_command(text) else { return Ok(()) };
        let error = format!("'/{private}' is Quarterdeck's own; use the command navigate_tree");
        Err(ErrorCode::Unsupported.with(error))
    }

    fn blame_extension(&self, error: &str) -> Option<String> {
        let message = format!("The bridge extension failed, so phases are less fine: {error}");
        error.contains(launch::BRIDGE_FILE).then_some(message)
    }

    fn doctor<'a>(&'a self, settings: &'a HarnessSettings) -> BoxFuture<'a, Vec<HarnessCheck>> {
        Box::pin(doctor::checks(settings))
    }
}

/// A running pi.
pub struct PiDriver {
    process: AgentProcess,
    reader: LineReader<ChildStdout>,
    codec: PiCodec,
    /// Empty between lines; kept so that a line need not allocate a list of its own.
    outputs: Vec<PiOutput>,
    /// Requests whose replies have not come; failed all at once when pi ends.
    waiting: PendingRequests,
    handle: PiHandle,
    /// Told to the session before anything else the agent does.
    warnings: Vec<String>,
    /// pi has closed its output.
    is_stdout_closed: bool,
    /// Then its end is waited for.
    ending: Option<EndingPi>,
    /// Why we killed it.
    condemned: Option<String>,
    /// Somebody wants pi's own words beside what they mean.
    is_watched: Arc<AtomicBool>,
}

impl PiDriver {
    /// Checks the version, makes the private directory, starts the process.
    async fn start(
        runner: &RunnerConfig,
        settings: &HarnessSettings,
        request: StartRequest,
    ) -> Result<Self, PiStartError> {
        // First of all: an old pi fails later and in ways that name anything but its version.
        version::check(runner, settings).await?;
        let launched = launch::launch(runner, settings, &request).await?;
        let mut process = launched.process;
        let stdout = process.take_stdout().ok_or(PiStartError::OutputTaken)?;
        let waiting = PendingRequests::default();
        let handle = PiHandle::new(process.stdin().clone(), waiting.clone(), launched.place);
        Ok(PiDriver {
            process,
            reader: LineReader::new(stdout, LINE_BYTES_MAX),
            codec: PiCodec::new(),
            outputs: Vec::new(),
            waiting,
            handle,
            warnings: launched.warnings,
            is_stdout_closed: false,
            ending: None,
            condemned: None,
            is_watched: Arc::default(),
        })
    }

    fn take_lines(&mut self, events: &mut Vec<AgentEvent>) {
        let now = now_ms();
        let is_watched = self.is_watched.load(Ordering::Relaxed);
        for _ in 0..LINES_PER_BATCH_MAX {
            match self.reader.next_line() {
                None => break,
                Some(Ok(line)) => {
                    self.codec.line(line, now, &mut self.outputs);
                    // What the line means comes after it, and what is no event of pi's is not told.
                    if is_watched && self.outputs.iter().all(is_event) {
                        events.extend(native(line));
                    }
                }
                // A line without end must not stop the session: it is reported, and the next line is read.
                Some(Err(too_long)) => self
                    .outputs
                    .push(PiOutput::Malformed { error: too_long.to_string(), preview: String::new() }),
            }
            self.take_outputs(events);
        }
    }

    fn take_outputs(&mut self, events: &mut Vec<AgentEvent>) {
        for output in self.outputs.drain(..) {
            match output {
                PiOutput::Event(event) => events.push(event),
                PiOutput::Reply(reply) => {
                    if let Some(id) = reply.id {
                        self.waiting.answer(&id, reply.result);
                    }
                }
                // Our extension speaks through pi's own channel; what it says is for the driver and not for the
                // session.
                PiOutput::Private(word) => {
                    if let Some(request) = self.handle.bridge().handle_word(word)
                        && let Err(error) = self.handle.write_without_reply(&request)
                    {
                        tracing::warn!(%error, "our extension could not be answered");
                    }
                }
                PiOutput::Malformed { error, preview } => {
                    let message = format!("pi printed something that is not its protocol: {error} {preview}");
                    events.push(AgentEvent::Notify { level: NotifyLevel::Warning, message });
                }
            }
        }
    }

    /// Its output is over: now it is waited for.
    fn output_ended(&mut self, read_error: Option<String>) {
        self.is_stdout_closed = true;
        // A pi whose output cannot be read would go on working unseen.
        if read_error.is_some() {
            self.process.kill();
        }
        self.ending = Some(EndingPi { exited: Box::pin(self.process.exited()), read_error });
    }

    /// How it ended, with its last words.
    fn gone(&mut self, status: ExitStatus) -> AgentProgress {
        let read_error = self.ending.take().and_then(|ending| ending.read_error);
        let mut error = match &self.condemned {
            Some(reason) => format!("{reason}; it was killed"),
            None => format!("pi ended: {status}"),
        };
        if let Some(read_error) = read_error {
            error.push_str(&format!(" after its output could not be read: {read_error}"));
        }
        let mut last_words = self.process.stderr().lines();
        // Otherwise every failure would seem to be about a missing session.
        last_words.retain(|line| !is_noise(line));
        if !last_words.is_empty() {
            error.push_str(". Its last words:\n");
            error.push_str(&last_words.join("\n"));
        }
        // The error has pi's last words, which mostly say why.
        self.waiting.fail_all(&error);
        AgentProgress::Gone { error }
    }

    async fn end(mut self, how: CloseMode) {
        // Before the wait for the process: who waits for an answer need not wait for that as well.
        self.waiting.fail_all("The session was closed before the agent answered");
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

/// A pi that has closed its output.
struct EndingPi {
    exited: Pin<Box<dyn Future<Output = ExitStatus> + Send + Sync>>,
    read_error: Option<String>,
}

impl AgentDriver for PiDriver {
    /// Reads what pi printed and decodes it.
    fn poll_next(&mut self, context: &mut Context<'_>, events: &mut Vec<AgentEvent>) -> Poll<AgentProgress> {
        for message in self.warnings.drain(..) {
            events.push(AgentEvent::Notify { level: NotifyLevel::Warning, message });
        }
        // Published before pi is polled, so that a pi that says nothing does not hold them back.
        if !events.is_empty() {
            return Poll::Ready(AgentProgress::Events);
        }
        if self.ending.is_none() {
            match ready!(self.reader.poll_fill(context)) {
                Ok(true) => {
                    self.take_lines(events);
                    return Poll::Ready(AgentProgress::Events);
                }
                Ok(false) => self.output_ended(None),
                Err(error) => self.output_ended(Some(error.to_string())),
            }
        }
        let Some(ending) = &mut self.ending else { return Poll::Pending };
        let status = ready!(ending.exited.as_mut().poll(context));
        Poll::Ready(self.gone(status))
    }

    fn handle(&self) -> DriverHandle {
        Arc::new(self.handle.clone())
    }

    fn close(self: Box<Self>, how: CloseMode) -> BoxFuture<'static, ()> {
        Box::pin(self.end(how))
    }

    fn set_watched(&self, on: bool) {
        self.is_watched.store(on, Ordering::Relaxed);
    }

    fn stats(&self) -> Option<ProcessStats> {
        let stats = self.process.stats();
        Some(ProcessStats {
            alive: stats.alive,
            pid: u32::try_from(self.process.pid()).ok(),
            rss_bytes: Some(stats.rss_bytes),
            cpu_pct: Some(stats.cpu_pct),
            uptime_s: Some(stats.uptime_s),
        })
    }

    fn is_stdout_open(&self) -> bool {
        !self.is_stdout_closed
    }

    fn kill_with_reason(&mut self, reason: String) {
        self.condemned = Some(reason);
        self.process.kill();
    }
}

/// Not an answer to a request of ours, and nothing that could not be read.
fn is_event(output: &PiOutput) -> bool {
    !matches!(output, PiOutput::Reply(_) | PiOutput::Malformed { .. })
}

/// What pi says of every conversation that we let it begin under our own name.
fn is_noise(line: &str) -> bool {
    line.contains("Warning: No project session found with id '")
        && line.contains("creating a new session with that id")
}

/// An event in pi's own words, if it is for others to see.
fn native(line: &[u8]) -> Option<AgentEvent> {
    let line = pass_through(std::str::from_utf8(line).ok()?)?;
    Some(AgentEvent::Native(line.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What watchers get of a line.
    fn reported_shell_commands(line: &[u8]) -> Option<AgentEvent> {
        let mut outputs = Vec::new();
        PiCodec::new().line(line, 1, &mut outputs);
        outputs.iter().all(is_event).then(|| native(line)).flatten()
    }

    #[test]
    fn what_pi_says_of_every_new_conversation_is_noise() {
        assert!(is_noise(
            "Warning: No project session found with id 's1'; creating a new session with that id."
        ));
        assert!(!is_noise("Error: No project session found with id 's1'"));
        assert!(!is_noise("Warning: No models match pattern"));
    }

    #[test]
    fn watchers_get_events_and_no_answers() {
        for event in [r#"{"type":"agent_start"}"#, r#"{"type":"something_new","x":1}"#] {
            assert_eq!(reported_shell_commands(event.as_bytes()), Some(AgentEvent::Native(event.into())));
        }
        let others: [&[u8]; 7] = [
            br#"{"id":"q1","type":"response","command":"get_state","success":true}"#,
            br#"{"type":"response","command":"parse","success":false}"#,
            br#"{"type":"extension_ui_request","id":"u","method":"setStatus","statusKey":"qd_tools","statusText":"[]"}"#,
            b"noise",
            b"",
            br#"{"type":"message_update","half"#,
            b"{\"type\":\"\xff\"}",
        ];
        for line in others {
            assert_eq!(reported_shell_commands(line), None, "{}", String::from_utf8_lossy(line));
        }
    }
}
