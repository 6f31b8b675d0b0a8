//! The runner send queue: commands and acks that wait for a runner's link.
//!
//! Lines that nobody would send again have room beside that of commands, and acks take almost none.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use qd_link::memory::LinkSender;
use qd_link::mutex::Mutex;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::Notify;

use crate::runners::line_head::json_string;

/// Bytes of commands that may wait for a runner.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// What lines of the hub's own may add to that; they are short.
const CONTROL_BYTES_MAX: usize = 1 << 20;

/// A block has no more bytes than this, unless its only line has: with all that may wait here in one block, a link
/// would have to carry messages greater than its bound.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Lines for a runner. Putting something in never waits: acks are merged per session, and commands beyond
/// the bound are refused. So the reader of the link never waits for the writer.
#[derive(Default)]
pub(crate) struct RunnerSendQueue {
    state: Mutex<RunnerSendQueueState>,
    filled: Notify,
}

#[derive(Default)]
struct RunnerSendQueueState {
    lines: BytesMut,
    /// The latest per session. An ack covers everything before it, so a slow link needs only one and the map stays
    /// small.
    acks: BTreeMap<Arc<str>, u64>,
    /// No more lines. Acks still go out, since what they confirm is committed.
    is_closed: bool,
    /// The writer stops when everything is written.
    is_finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SendQueueError {
    #[error("it is not connected; start it and try again")]
    Closed,
    #[error("it does not take commands fast enough; try again later")]
    Full,
}

impl SendQueueError {
    /// The same as whoever asked the runner is told.
    pub(crate) fn coded(self, runner_id: &str) -> CodedError {
        let code = match self {
            SendQueueError::Closed => ErrorCode::RunnerOffline,
            SendQueueError::Full => ErrorCode::Busy,
        };
        code.with(format!("Runner {runner_id}: {self}"))
    }
}

impl RunnerSendQueue {
    /// Queues one whole line.
    pub(crate) fn push(&self, line: &[u8]) -> Result<(), SendQueueError> {
        self.push_within(line, QUEUE_BYTES_MAX)
    }

    /// Queues a line that nobody would send again: there is room for it when there is none for commands.
    pub(crate) fn push_control(&self, line: &[u8]) -> Result<(), SendQueueError> {
        self.push_within(line, QUEUE_BYTES_MAX + CONTROL_BYTES_MAX)
    }

    fn push_within(&self, line: &[u8], bytes_max: usize) -> Result<(), SendQueueError> {
        let mut state = self.state.lock();
        if state.is_closed {
            return Err(SendQueueError::Closed);
        }
        // An empty queue takes a line of any length; otherwise a very long command could never be sent.
        if !state.lines.is_empty() && state.lines.len() + line.len() > bytes_max {
            return Err(SendQueueError::Full);
        }
        state.lines.extend_from_slice(line);
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Everything of the session up to `seq` is committed.
    pub(crate) fn ack(&self, session_id: &Arc<str>, seq: u64) {
        self.state.lock().acks.insert(Arc::clone(session_id), seq);
        self.filled.notify_one();
    }

    /// No more lines are taken; what is queued, and acks, still go out.
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Nothing more comes; what is queued still goes out.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.is_finished = true;
        drop(state);
        self.filled.notify_one();
    }

    /// The next block of what waits; `None` after the last one.
    async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut state = self.state.lock();
                let block = state.take_block();
                if !block.is_empty() {
                    return Some(block);
                }
                if state.is_finished {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }
}

impl RunnerSendQueueState {
    /// Whole lines first, then acks: so the welcome, which is the first line of all, comes before any ack.
    fn take_block(&mut self) -> Bytes {
        let mut block = self.take_lines();
        while block.len() < BLOCK_BYTES_MAX
            && let Some((session_id, seq)) = self.acks.pop_first()
        {
            let session_id = json_string(&session_id);
            block.extend_from_slice(
                format!("{{\"type\":\"ack\",\"session_id\":{session_id},\"seq\":{seq}}}\n").as_bytes(),
            );
        }
        block.freeze()
    }

    fn take_lines(&mut self) -> BytesMut {
        if self.lines.len() <= BLOCK_BYTES_MAX {
            return std::mem::take(&mut self.lines);
        }
        let end = memchr::memrchr(b'\n', &self.lines[..BLOCK_BYTES_MAX])
            .or_else(|| memchr::memchr(b'\n', &self.lines));
        let bytes = end.map_or(self.lines.len(), |end| end + 1);
        self.lines.split_to(bytes)
    }
}

/// Writes to the link until the queue is finished and empty, or the other end is gone.
pub(super) async fn write(send_queue: Arc<RunnerSendQueue>, link: LinkSender) {
    while let Some(block) = send_queue.next().await {
        if link.send(block).await.is_err() {
            send_queue.close();
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_is_given_out_in_blocks_of_whole_lines_and_the_acks_come_too() {
        let send_queue = RunnerSendQueue::default();
        let (short, long) = ([&[b'x'; 99_999][..], b"\n"].concat(), [&[b'y'; 2 << 20][..], b"\n"].concat());
        for _ in 0..25 {
            send_queue.push(&short).unwrap();
        }
        send_queue.push(&long).unwrap();
        send_queue.push(&short).unwrap();
        send_queue.ack(&Arc::from("s"), 7);
        send_queue.finish();
        let (mut bytes, mut text) = (0, Vec::new());
        while let Some(block) = send_queue.next().await {
            assert!(block.ends_with(b"\n"));
            assert!(block.len() <= BLOCK_BYTES_MAX + 64 || block.len() == long.len(), "{}", block.len());
            bytes += block.len();
            text.extend_from_slice(&block);
        }
        let ack = b"{\"type\":\"ack\",\"session_id\":\"s\",\"seq\":7}\n";
        assert_eq!(bytes, 26 * short.len() + long.len() + ack.len());
        assert!(text.windows(ack.len()).any(|found| found == ack));
    }
}
