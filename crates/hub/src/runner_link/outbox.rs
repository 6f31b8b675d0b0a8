use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use qd_link::memory::LinkSender;
use tokio::sync::Notify;

use crate::head::json_string;

/// Bytes of commands that may wait for a runner.
const OUTBOX_BYTES_MAX: usize = 64 << 20;

/// Lines for a runner. Putting something in never waits: acks are merged per session, and commands beyond
/// the bound are refused. So the reader of the link never waits for the writer.
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    filled: Notify,
}

#[derive(Default)]
struct OutboxState {
    lines: BytesMut,
    acks: BTreeMap<Arc<str>, u64>,
    is_closed: bool,
    is_finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutboxError {
    #[error("it is not connected; start it and try again")]
    Closed,
    #[error("it does not take commands fast enough; try again later")]
    Full,
}

impl Outbox {
    /// Queues one whole line.
    pub(crate) fn push(&self, line: &[u8]) -> Result<(), OutboxError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(OutboxError::Closed);
        }
        if !state.lines.is_empty() && state.lines.len() + line.len() > OUTBOX_BYTES_MAX {
            return Err(OutboxError::Full);
        }
        state.lines.extend_from_slice(line);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Everything of the session up to `seq` is committed.
    pub(crate) fn ack(&self, session_id: &Arc<str>, seq: u64) {
        self.lock().acks.insert(Arc::clone(session_id), seq);
        self.filled.notify_one();
    }

    /// No more lines are taken; what is queued, and acks, still go out.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Nothing more comes; what is queued still goes out.
    pub(super) fn finish(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.is_finished = true;
        drop(state);
        self.filled.notify_one();
    }

    /// All that waits as one block; `None` after the last one.
    async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut state = self.lock();
                let mut block = std::mem::take(&mut state.lines);
                for (session_id, seq) in std::mem::take(&mut state.acks) {
                    let session_id = json_string(&session_id);
                    block.extend_from_slice(
                        format!("{{\"type\":\"ack\",\"session_id\":{session_id},\"seq\":{seq}}}\n")
                            .as_bytes(),
                    );
                }
                if !block.is_empty() {
                    return Some(block.freeze());
                }
                if state.is_finished {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes to the link until the outbox is finished and empty, or the other end is gone.
pub(super) async fn write(outbox: Arc<Outbox>, link: LinkSender) {
    while let Some(block) = outbox.next().await {
        if link.send(block).await.is_err() {
            outbox.close();
            return;
        }
    }
}
