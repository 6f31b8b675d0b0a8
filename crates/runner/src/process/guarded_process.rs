//! A process under its guard, whatever its streams are.

use qd_link::mutex::Mutex;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;

use super::exit_status::ExitStatus;
use super::process_stats::{ProcessStats, StatsReader};

/// The runner's hold on a process: dropping it makes the guard kill the process and everything it started.
#[derive(Debug)]
pub struct GuardedProcess {
    pub(super) pid: i32,
    pub(super) stats: Mutex<StatsReader>,
    pub(super) exit: watch::Receiver<Option<ExitStatus>>,
    /// The guard takes the end of this for the order to kill everything.
    pub(super) control: OwnedWriteHalf,
}

impl GuardedProcess {
    /// The process id of the program, not the guard's.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kills the process and everything it started.
    pub fn kill(&self) {
        self.send_order(b"kill\n");
    }

    /// Resolves as soon as the process and all it started are gone. Independent of `self`.
    pub fn exited(&self) -> impl Future<Output = ExitStatus> + Send + 'static {
        let mut exit = self.exit.clone();
        async move {
            match exit.wait_for(Option::is_some).await {
                Ok(status) => status.unwrap_or(ExitStatus::Unknown),
                // The supervisor is gone, with the runtime and so with the control socket.
                Err(_) => ExitStatus::Unknown,
            }
        }
    }

    /// How the process ended, if it has.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    /// Reads what the process uses now: two small files of /proc.
    pub fn stats(&self) -> ProcessStats {
        let exited = self.exit_status().is_some();
        self.stats.lock().read(exited)
    }

    /// Tells the guard what to do: one of its words, with its `\n`.
    pub(super) fn send_order(&self, line: &[u8]) {
        // The socket is empty but for such orders, so a few bytes never block.
        if let Err(error) = self.control.try_write(line) {
            tracing::debug!(%error, "the guard is gone already");
        }
    }
}
