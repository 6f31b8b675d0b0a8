//! What a call says before its answer, at a pace a link can take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qd_wire::service::FsChanges;
use serde::Serialize;

use super::Cancellation;
use crate::clock::monotonic_now;
use crate::session::{IncomingCommand, RunnerContext};

/// A call says at most this much in one [`PACE`].
pub(crate) const PACE_BYTES_MAX: usize = 64 * 1024;

/// See [`PACE_BYTES_MAX`].
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// The voice of one call.
#[derive(Clone)]
pub(crate) struct CallProgress {
    shared: Arc<RunnerContext>,
    origin: u64,
    link_id: String,
    cmd: String,
}

/// A [`qd_wire::link::LinkProgress`] that also names its command, for clients at the runner's own socket: the hub adds
/// that itself.
#[derive(Serialize)]
struct ProgressLine<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    cmd: &'a str,
    data: &'a T,
}

impl CallProgress {
    pub(crate) fn new(shared: &Arc<RunnerContext>, incoming: &IncomingCommand) -> Self {
        let (link_id, cmd) = (incoming.link_id.clone(), incoming.cmd.clone());
        CallProgress { shared: Arc::clone(shared), origin: incoming.origin, link_id, cmd }
    }

    /// Says it, unless the asker has enough to read already; the number of bytes said.
    pub(crate) fn send<T: Serialize>(&self, data: &T) -> Option<usize> {
        let line = ProgressLine { kind: "progress", id: &self.link_id, cmd: &self.cmd, data };
        let mut bytes = serde_json::to_vec(&line).ok()?;
        bytes.push(b'\n');
        let count = bytes.len();
        self.shared.hub_delivery.send_line_if_room(self.origin, bytes.into()).then_some(count)
    }
}

/// Says what changed, one after the other, and waits where it must: for a thread that may block.
pub(crate) struct PacedChanges {
    progress: CallProgress,
    cancel: Cancellation,
    began: Instant,
    bytes: usize,
}

impl PacedChanges {
    pub(crate) fn new(progress: CallProgress, cancel: Cancellation) -> Self {
        PacedChanges { progress, cancel, began: monotonic_now(), bytes: 0 }
    }

    /// Returns when it is said, or nobody wants to hear it.
    pub(crate) fn send(&mut self, changes: &FsChanges) {
        while !self.cancel.is_cancelled() {
            if self.began.elapsed() >= PACE {
                (self.began, self.bytes) = (monotonic_now(), 0);
            }
            if self.bytes < PACE_BYTES_MAX
                && let Some(said) = self.progress.send(changes)
            {
                self.bytes += said;
                return;
            }
            std::thread::sleep(PACE.saturating_sub(self.began.elapsed()).max(Duration::from_millis(5)));
        }
    }
}
