//! `host.bash`: a shell command in the root, under the guard, both streams told as they come and kept at the end.
//!
//! The command is a process like an agent: under the guard, so that nothing it started outlives the call. The answer
//! has the last bytes of each stream. What is told meanwhile is text, paced, and may have holes, which are counted.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use qd_core::terminal::Utf8Joiner;
use qd_wire::ErrorCode;
use qd_wire::service::{BashData, BashOutput, HostBashParams};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::process::ChildStdout;
use tokio::sync::mpsc;

use crate::clock::monotonic_now;
use crate::config::RunnerConfig;
use crate::process::{AgentProcess, Environment, ExitStatus, InheritedVariables, Privileges, SpawnSpec};
use crate::services::call::progress::{CallProgress, PACE, PACE_BYTES_MAX};
use crate::services::call::{CallOutput, CallResult, Cancellation, ServiceError};
use crate::services::root::kernel_files;

/// What is kept of each stream: its end, where the reason of a failure is.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Builds and tests take minutes; a command that is meant to run for longer says so.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10 * 60);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Pieces of stderr that may wait; the command waits when there are more.
const PIECES_MAX: usize = 16;

/// Read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long the rest of the output is read after the end of the command. All it wrote is there by then; somebody who
/// still holds the other end must not hold the call.
const DRAIN: Duration = Duration::from_millis(500);

/// The names of the streams.
const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// Why a command was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KillReason {
    TimedOut,
    Cancelled,
}

/// Where a command runs, and for whom.
pub(crate) struct ShellContext<'a> {
    pub(crate) config: &'a RunnerConfig,
    pub(crate) root: &'a Path,
    /// Empty without a session.
    pub(crate) session_id: &'a str,
}

/// Runs the command to its end.
pub(crate) async fn run(
    shell: ShellContext<'_>,
    params: &HostBashParams,
    cancel: &Cancellation,
    progress: &CallProgress,
) -> CallResult {
    if params.command.trim().is_empty() {
        return Err(ServiceError::Missing("cmd"));
    }
    if params.command.contains('\0') {
        refuse!(InvalidRequest, "command: Must not contain NUL");
    }
    let limit = params.timeout_ms.map_or(TIMEOUT_DEFAULT, Duration::from_millis);
    if limit > TIMEOUT_MAX || limit.is_zero() {
        refuse!(InvalidRequest, "timeout_ms: Must be 1 to {}", TIMEOUT_MAX.as_millis());
    }
    kernel_files::check_directory(shell.root)?;
    let began = monotonic_now();
    let (tap, stderr) = mpsc::channel(PIECES_MAX);
    let mut process = spawn(shell.config, shell.root, shell.session_id, &params.command)
        .start_tapped(Some(tap))
        .await
        .map_err(|error| {
            ServiceError::coded(ErrorCode::Failed, format!("The command could not be started: {error}"))
        })?;
    let Some(stdout) = process.take_stdout() else {
        refuse!(Internal, "The command has no output; this is a fault of the runner");
    };
    if let Some(stdin) = &params.stdin
        && let Err(error) = process.stdin().try_send(Bytes::from(stdin.clone()))
    {
        refuse!(Failed, "The command's input could not be sent: {error}");
    }
    // A command that reads its input must see its end and not wait for a person.
    process.stdin().close();
    let mut running =
        RunningShell { process, stdout: Some(stdout), stderr: Some(stderr), output: ShellOutput::default() };
    let (status, ended) = running.finish(limit, cancel, progress).await;
    done(running.output, status, ended, began.elapsed())
}

fn spawn(config: &RunnerConfig, root: &Path, session_id: &str, command: &str) -> SpawnSpec {
    SpawnSpec {
        // A login shell: its profile is where a user's PATH and tools are set up.
        program: vec![OsString::from("bash"), "-lc".into(), command.into()],
        cwd: root.to_owned(),
        environment: environment(session_id),
        guard: config.guard.clone(),
        config: config.process.clone(),
        privileges: Privileges::OfTheUser,
        session_id: session_id.to_owned(),
    }
}

/// What a person's terminals get: the runner's own without its credentials, and the session it is for.
fn environment(session_id: &str) -> Environment {
    let is_in_session = !session_id.is_empty();
    let set = is_in_session.then(|| ("QD_SESSION_ID".into(), session_id.into()));
    Environment { inherit: InheritedVariables::All, remove: Vec::new(), set: set.into_iter().collect() }
}

struct RunningShell {
    process: AgentProcess,
    /// Until they have ended.
    stdout: Option<ChildStdout>,
    stderr: Option<mpsc::Receiver<Bytes>>,
    output: ShellOutput,
}

impl RunningShell {
    async fn finish(
        &mut self,
        limit: Duration,
        cancel: &Cancellation,
        progress: &CallProgress,
    ) -> (ExitStatus, Option<KillReason>) {
        let exited = self.process.exited();
        let over = tokio::time::sleep(limit);
        // Set when the process ends. Until then it must not fire.
        let drained = tokio::time::sleep(Duration::MAX);
        tokio::pin!(exited, over, drained);
        let (mut status, mut ended) = (None, None);
        let mut buffer = BytesMut::new();
        // Output is told in steps, so that a command that prints byte by byte does not cost a message for each.
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while status.is_none() || self.stdout.is_some() || self.stderr.is_some() {
            tokio::select! {
                exit = &mut exited, if status.is_none() => {
                    status = Some(exit);
                    drained.as_mut().reset(tokio::time::Instant::now() + DRAIN);
                }
                () = &mut drained, if status.is_some() => break,
                is_more = read(&mut self.stdout, &mut buffer), if self.stdout.is_some() => {
                    if is_more {
                        self.output.take(0, &buffer.split());
                    } else {
                        self.stdout = None;
                    }
                }
                piece = receive(&mut self.stderr), if self.stderr.is_some() => match piece {
                    Some(piece) => self.output.take(1, &piece),
                    None => self.stderr = None,
                },
                // The loop goes on after the kill: what was written until then belongs to the answer.
                () = &mut over, if ended.is_none() => {
                    ended = Some(KillReason::TimedOut);
                    self.process.kill();
                }
                () = cancel.cancelled(), if ended.is_none() => {
                    ended = Some(KillReason::Cancelled);
                    self.process.kill();
                }
                _ = pace.tick(), if self.output.has_unsent() => self.output.send_output(progress),
            }
        }
        self.output.finish();
        self.output.send_output(progress);
        (status.unwrap_or(ExitStatus::Unknown), ended)
    }
}

/// False at the end of the stream.
async fn read(stdout: &mut Option<ChildStdout>, buffer: &mut BytesMut) -> bool {
    let Some(stdout) = stdout else { return std::future::pending().await };
    buffer.reserve(READ_BYTES);
    // An error means that nothing more will come, as the end of the stream does.
    matches!(stdout.read_buf(buffer).await, Ok(count) if count > 0)
}

async fn receive(stderr: &mut Option<mpsc::Receiver<Bytes>>) -> Option<Bytes> {
    match stderr {
        Some(stderr) => stderr.recv().await,
        None => std::future::pending().await,
    }
}

/// What the command has written.
#[derive(Default)]
struct ShellOutput {
    streams: [OutputStream; 2],
}

#[derive(Default)]
struct OutputStream {
    kept: StreamTail,
    joiner: Utf8Joiner,
    /// To be told.
    unsent: String,
    skipped: u64,
    /// Bytes of the stream before `skipped`: told, or left out before.
    sent_bytes: u64,
}

impl ShellOutput {
    fn take(&mut self, stream: usize, bytes: &[u8]) {
        let Some(stream) = self.streams.get_mut(stream) else { return };
        // Kept as bytes and told as text: a cut in the middle of a character must not spoil the result.
        stream.kept.push(bytes);
        stream.joiner.push(bytes, &mut stream.unsent);
        stream.cut();
    }

    fn finish(&mut self) {
        for stream in &mut self.streams {
            stream.joiner.finish(&mut stream.unsent);
        }
    }

    fn has_unsent(&self) -> bool {
        self.streams.iter().any(|stream| !stream.unsent.is_empty() || stream.skipped > 0)
    }

    fn send_output(&mut self, progress: &CallProgress) {
        for (name, stream) in STREAMS.iter().zip(&mut self.streams) {
            if stream.unsent.is_empty() && stream.skipped == 0 {
                continue;
            }
            let text = std::mem::take(&mut stream.unsent);
            let skipped = (stream.skipped > 0).then_some(stream.skipped);
            let length = text.len() as u64;
            let offset = Some(stream.sent_bytes + stream.skipped);
            let output = BashOutput { stream: (*name).to_owned(), text, offset, skipped };
            match progress.send(&output) {
                Some(_) => {
                    stream.sent_bytes += stream.skipped + length;
                    stream.skipped = 0;
                }
                // The asker has enough to read: it hears how much it missed.
                None => stream.skipped += length,
            }
        }
    }
}

impl OutputStream {
    /// What comes faster than it can be told is left out, the oldest first.
    fn cut(&mut self) {
        // Half for each, so that a loud stdout does not displace the error on stderr.
        let max = PACE_BYTES_MAX / STREAMS.len();
        if self.unsent.len() <= max {
            return;
        }
        let cut = self.unsent.ceil_char_boundary(self.unsent.len() - max);
        self.unsent.drain(..cut);
        self.skipped += cut as u64;
    }
}

/// The end of a stream.
#[derive(Default)]
struct StreamTail {
    bytes: VecDeque<u8>,
    total: u64,
}

impl StreamTail {
    fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let bytes = &bytes[bytes.len().saturating_sub(KEPT_BYTES_MAX)..];
        let surplus = (self.bytes.len() + bytes.len()).saturating_sub(KEPT_BYTES_MAX);
        self.bytes.drain(..surplus);
        self.bytes.extend(bytes);
    }

    fn is_cut(&self) -> bool {
        self.total > self.bytes.len() as u64
    }

    /// As text; where the beginning is missing it begins with a whole character.
    fn text(mut self) -> String {
        let is_cut = self.is_cut();
        let bytes = &*self.bytes.make_contiguous();
        let is_inner = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        // A character has at most three bytes after its first.
        let start = if is_cut { bytes.iter().take(3).take_while(is_inner).count() } else { 0 };
        String::from_utf8_lossy(&bytes[start..]).into_owned()
    }
}

fn done(
    output: ShellOutput,
    status: ExitStatus,
    ended: Option<KillReason>,
    duration: Duration,
) -> CallResult {
    let [stdout, stderr] = output.streams.map(|stream| stream.kept);
    let (exit_code, signal) = match status {
        ExitStatus::Code(code) => (Some(code), None),
        ExitStatus::Signal(signal) => (None, Some(signal)),
        ExitStatus::Unknown => (None, None),
    };
    let data = BashData {
        exit_code,
        signal,
        timed_out: ended == Some(KillReason::TimedOut),
        cancelled: ended == Some(KillReason::Cancelled),
        truncated: stdout.is_cut() || stderr.is_cut(),
        stdout_bytes: stdout.total,
        stderr_bytes: stderr.total,
        stdout: stdout.text(),
        stderr: stderr.text(),
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
    };
    let summary = json!({
        "exit_code": data.exit_code,
        "signal": data.signal,
        "stdout_len": data.stdout_bytes,
        "stderr_len": data.stderr_bytes,
        "truncated": data.truncated,
    });
    let error = match (ended, data.exit_code) {
        // `bash exited with code` is the run document's.
        (Some(KillReason::TimedOut), _) => Some("timeout".to_owned()),
        (Some(KillReason::Cancelled), _) => Some("cancelled".to_owned()),
        (None, Some(0)) => None,
        (None, Some(code)) => Some(format!("bash exited with code {code}")),
        (None, None) => Some(format!("bash: {status}")),
    };
    Ok(CallOutput { error, ..CallOutput::new(data, |_| summary)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hole 20: the end of a stream begins with a whole character, wherever it was cut.
    #[test]
    fn hole_20_the_end_of_a_stream_is_cut_between_characters() {
        for character in ["x", "é", "語", "🦀"] {
            for extra in 0..8 {
                let mut kept = StreamTail::default();
                let text = character.repeat(KEPT_BYTES_MAX / character.len() + 10) + &"y".repeat(extra);
                for chunk in text.as_bytes().chunks(4097) {
                    kept.push(chunk);
                }
                assert_eq!(kept.total, text.len() as u64);
                assert!(kept.is_cut());
                let end = kept.text();
                assert!(text.ends_with(&end) && end.len() > KEPT_BYTES_MAX - 4, "{character} {extra}");
            }
        }
    }

    #[test]
    fn what_comes_too_fast_to_be_told_is_counted() {
        let mut stream = OutputStream { unsent: "語".repeat(100_000), ..OutputStream::default() };
        stream.cut();
        assert_eq!(stream.skipped + stream.unsent.len() as u64, 300_000);
        assert!(stream.unsent.len() <= PACE_BYTES_MAX / 2);
    }
}
