//! What waits to be sent to a host. Putting something in never waits, so reading from a host never waits for writing
//! to it: two ends that both send much cannot stand still.

use std::collections::VecDeque;

use bytes::Bytes;
use qd_core::time::iso_8601;
use qd_core::view::run::host::acks::HostAcks;
use qd_link::clock::now_ms;
use qd_link::memory::LinkSender;
use qd_link::mutex::Mutex;
use qd_wire::run_protocol::Envelope;
use qd_wire::{CodedError, ErrorCode};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

/// Bytes of commands that may wait for a host.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// While more than this waits, a host is not told what was wrong with its messages.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// An ack that is due is looked at again after this at the latest.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// The messages for one host.
pub(super) struct HostSendQueue {
    host_id: String,
    state: Mutex<HostSendQueueState>,
    filled: Notify,
}

#[derive(Default)]
struct HostSendQueueState {
    messages: VecDeque<Bytes>,
    bytes: usize,
    acks: HostAcks,
}

impl HostSendQueue {
    pub(super) fn new(host_id: &str) -> Self {
        HostSendQueue { host_id: host_id.to_owned(), state: Mutex::default(), filled: Notify::new() }
    }

    /// Queues a message; an error says why it cannot be sent.
    pub(super) fn send(&self, kind: &str, run_id: Option<&str>, data: Value) -> Result<(), CodedError> {
        self.push(kind, run_id, data, WAITING_BYTES_MAX)
    }

    /// Tells the host what was wrong with a message of its own.
    pub(super) fn error(&self, about: Option<&str>, run_id: Option<&str>, error: &CodedError) {
        let data = match about {
            Some(about) => json!({ "error": error.message, "code": error.code, "about": about }),
            None => json!({ "error": error.message, "code": error.code }),
        };
        if self.push("error", run_id, data, ERROR_BYTES_MAX).is_err() {
            tracing::debug!(host = self.host_id, %error, "a host takes nothing and is not told what is wrong");
        }
    }

    fn push(
        &self,
        kind: &str,
        run_id: Option<&str>,
        data: Value,
        bytes_max: usize,
    ) -> Result<(), CodedError> {
        let envelope = Envelope {
            kind: kind.to_owned(),
            ts: Some(iso_8601(now_ms())),
            host_id: Some(self.host_id.clone()),
            run_id: run_id.map(str::to_owned),
            seq: None,
            data,
        };
        let message =
            serde_json::to_vec(&envelope).map_err(|error| ErrorCode::Internal.with(error.to_string()))?;
        let mut state = self.state.lock();
        // An empty queue takes a message of any size; otherwise a very long input could never be sent.
        if state.bytes > 0 && state.bytes + message.len() > bytes_max {
            let error = format!("Host {} does not take messages fast enough; try again later", self.host_id);
            return Err(ErrorCode::Busy.with(error));
        }
        state.bytes += message.len();
        state.messages.push_back(message.into());
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Changes what the host is to be told of its runs.
    pub(super) fn acks(&self, change: impl FnOnce(&mut HostAcks, i64)) {
        change(&mut self.state.lock().acks, now_ms());
        self.filled.notify_one();
    }

    /// Sends what waits until the host is gone.
    pub(super) async fn write(&self, socket: &LinkSender) {
        loop {
            let (message, wait) = self.next();
            if let Some(message) = message {
                if socket.send(message).await.is_err() {
                    return;
                }
                continue;
            }
            tokio::select! {
                // A notification that came before this line is kept by `Notify`, so none is missed.
                () = self.filled.notified() => {}
                () = sleep(wait) => {}
                () = socket.closed() => return,
            }
        }
    }

    /// The next message, whether or not acks are due.
    pub(super) fn take(&self) -> Option<Bytes> {
        let mut state = self.state.lock();
        let message = state.messages.pop_front()?;
        state.bytes -= message.len();
        Some(message)
    }

    /// The next message, or how long there will be none.
    fn next(&self) -> (Option<Bytes>, Duration) {
        if let Some(message) = self.take() {
            return (Some(message), Duration::ZERO);
        }
        let now = now_ms();
        let (acks, due) = {
            let mut state = self.state.lock();
            (state.acks.take(now), state.acks.due())
        };
        for (run_id, last_seq) in acks {
            let data = json!({ "run_id": run_id, "last_seq": last_seq });
            // An ack that finds no room is told when the host shows that it has not heard it.
            if let Err(error) = self.push("run.ack", Some(&run_id), data, WAITING_BYTES_MAX) {
                tracing::debug!(host = self.host_id, %error, "an ack is left out");
            }
        }
        if let Some(message) = self.take() {
            return (Some(message), Duration::ZERO);
        }
        let wait = due.map_or(LOOK_MAX, |due| Duration::from_millis((due - now).max(1).unsigned_abs()));
        (None, wait.min(LOOK_MAX))
    }
}
