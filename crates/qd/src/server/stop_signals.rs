//! The signals that ask a server to stop: SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Result;

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

    /// Returns when a person presses Ctrl-C (again).
    pub(crate) async fn interrupted(&mut self) {
        self.interrupts.recv().await;
    }
}
