//! What a call says before its answer, at a pace a link can take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use qd_wire::service::FsChanges;
use serde::Serialize;

use super::error::Cancel;
use crate::clock::monotonic_now;
use crate::session::{Incoming, Shared};

/// A call says at most this much in one [`PACE`].
pub(crate) const PACE_BYTES_MAX: usize = 64 * 1024;

/// See [`PACE_BYTES_MAX`].
pub(crate) const PACE: Duration = Duration::from_millis(50);

/// The voice of one call.
#[derive(Clone)]
pub(crate) struct Progress {
    shared: Arc<Shared>,
    origin: u64,
    link_id: String,
    cmd: String,
}

/// A [`qd_wire::link::LinkProgress`] that also names its command, for clients at the runner's own socket: the hub adds
/// that itself.
#[derive(Serialize)]
struct Line<'a, T> {
    #[serde(rename = "type")]
    kind: &'static str,
    id: &'a str,
    cmd: &'a str,
    data: &'a T,
}

impl Progress {
    pub(crate) fn new(shared: &Arc<Shared>, incoming: &Incoming) -> Self {
        let (link_id, cmd) = (incoming.link_id.clone(), incoming.cmd.clone());
        Progress { shared: Arc::clone(shared), origin: incoming.origin, link_id, cmd }
    }

    /// Says it, unless the asker has enough to read already; the number of bytes said.
    pub(crate) fn say<T: Serialize>(&self, data: &T) -> Option<usize> {
        let line = Line { kind: "progress", id: &self.link_id, cmd: &self.cmd, data };
        let mut bytes = serde_json::to_vec(&line).ok()?;
        bytes.push(b'\n');
        let count = bytes.len();
        self.shared.outlet.tell_if_room(self.origin, bytes.into()).then_some(count)
    }
}

/// Says what changed, one after the other, and waits where it must: for a thread that may block.
pub(crate) struct PacedChanges {
    progress: Progress,
    cancel: Cancel,
    began: Instant,
    bytes: usize,
}

impl PacedChanges {
    pub(crate) fn new(progress: Progress, cancel: Cancel) -> Self {
        PacedChanges { progress, cancel, began: monotonic_now(), bytes: 0 }
    }

    /// Returns when it is said, or nobody wants to hear it.
    pub(crate) fn say(&mut self, changes: &FsChanges) {
        while !self.cancel.is_cancelled() {
            if self.began.elapsed() >= PACE {
                (self.began, self.bytes) = (monotonic_now(), 0);
            }
            if self.bytes < PACE_BYTES_MAX
                && let Some(said) = self.progress.say(changes)
            {
                self.bytes += said;
                return;
            }
            std::thread::sleep(PACE.saturating_sub(self.began.elapsed()).max(Duration::from_millis(5)));
        }
    }
}
