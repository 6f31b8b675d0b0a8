//! The signals that ask a server to stop: SIGINT, SIGTERM and SIGHUP.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Result;

/// How long a clean stop may take; ten seconds are promised.
const STOP_TIME_MAX: Duration = Duration::from_millis(9500);
/// The exit code of a program ended by SIGINT, as shells say it.
const EXIT_INTERRUPTED: i32 = 130;

/// Heard from when this is made.
pub(crate) struct StopSignals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> Result<StopSignals> {
        Ok(StopSignals {
            interrupts: signal(SignalKind::interrupt())?,
            terminations: signal(SignalKind::terminate())?,
            hangups: signal(SignalKind::hangup())?,
        })
    }

    /// Returns when one of them comes.
    pub(crate) async fn recv(&mut self) {
        tokio::select! {
            _ = self.interrupts.recv() => {}
            _ = self.terminations.recv() => {}
            _ = self.hangups.recv() => {}
        }
    }

    /// Waits for a clean stop to be done; `None` when it took too long. A person who presses Ctrl-C again does not
    /// want to wait.
    pub(crate) async fn stop_in_time<T>(&mut self, stopping: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = stopping => Some(done),
            () = tokio::time::sleep(STOP_TIME_MAX) => {
                tracing::warn!("not everything stopped in time; ending anyway");
                None
            }
            _ = self.interrupts.recv() => std::process::exit(EXIT_INTERRUPTED),
        }
    }
}
