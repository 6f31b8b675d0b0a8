//! The runner's end of the control socket: reads reports, and sees the guard through to its end.

use std::io;
use std::time::Duration;

use tokio::net::unix::OwnedReadHalf;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::exit_status::ExitStatus;
use super::guard_table::GuardEntry;
use super::line_reader::LineReader;
use super::orphan_sweep;
use crate::guard::cgroup::AgentCgroup;
use crate::guard::report::{GuardReport, REPORT_BYTES_MAX};

/// How long the exit waits for the rest of stderr. All its writers are dead then, so it is short.
const STDERR_DRAIN_MAX: Duration = Duration::from_millis(500);

/// Reads the guard's reports one by one.
pub(super) struct GuardReports {
    lines: LineReader<OwnedReadHalf>,
}

impl GuardReports {
    pub(super) fn new(control: OwnedReadHalf) -> Self {
        Self { lines: LineReader::new(control, REPORT_BYTES_MAX) }
    }

    /// The next report; none when the guard has closed its end.
    pub(super) async fn next(&mut self) -> io::Result<Option<GuardReport>> {
        loop {
            if let Some(line) = self.lines.next_line() {
                let line = line.map_err(io::Error::other)?;
                return Ok(Some(serde_json::from_slice(line)?));
            }
            if !self.lines.fill().await? {
                return Ok(None);
            }
        }
    }
}

/// Everything needed to see one guard through to its end.
pub(super) struct GuardSupervisor {
    pub(super) guard: Child,
    /// Until the guard is reaped: what is below it is known by it.
    pub(super) entry: Option<GuardEntry>,
    pub(super) reports: GuardReports,
    /// Reads the rest of stderr; a terminal has none of its own.
    pub(super) stderr: Option<JoinHandle<()>>,
    pub(super) exit: watch::Sender<Option<ExitStatus>>,
    pub(super) key: Option<String>,
    pub(super) cgroup: Option<AgentCgroup>,
}

impl GuardSupervisor {
    /// Publishes how the agent ended, once nothing of it is left.
    pub(super) async fn run(mut self) {
        let status = match self.exit_report().await {
            Some(status) => status,
            None => {
                self.clean_up_after_guard().await;
                ExitStatus::Unknown
            }
        };
        if let Some(mut stderr) = self.stderr.take()
            && tokio::time::timeout(STDERR_DRAIN_MAX, &mut stderr).await.is_err()
        {
            stderr.abort();
        }
        self.exit.send_replace(Some(status));
        // A guard with something unkillable below it lives on; it is reaped whenever it ends.
        if let Err(error) = self.guard.wait().await {
            tracing::warn!(%error, "the guard could not be reaped");
        }
        drop(self.entry);
    }

    /// None if the guard ended without a report, that is, was killed.
    async fn exit_report(&mut self) -> Option<ExitStatus> {
        loop {
            match self.reports.next().await {
                Ok(Some(GuardReport::Exit { exit, left })) => {
                    if !left.is_empty() {
                        tracing::error!(
                            ?left,
                            "processes of an agent resist SIGKILL; their guard stays with them"
                        );
                    }
                    return Some(ExitStatus::from(&exit));
                }
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(error) => {
                    tracing::error!(%error, "the guard's report is not readable");
                    return None;
                }
            }
        }
    }

    /// The kernel kills the agent of a dead guard, and this kills what the agent had started.
    async fn clean_up_after_guard(&mut self) {
        // A guard that is alive but talks nonsense must not go on either; a dead one stays dead.
        if let Err(error) = self.guard.start_kill() {
            tracing::debug!(%error, "the guard is gone already");
        }
        let (key, cgroup) = (self.key.take(), self.cgroup.take());
        match tokio::task::spawn_blocking(move || orphan_sweep::sweep_agent(key.as_deref(), cgroup)).await {
            Ok(count) => tracing::warn!(count, "the guard was killed; the agent's processes were swept up"),
            Err(error) => tracing::error!(%error, "sweeping up after a killed guard failed"),
        }
    }
}
