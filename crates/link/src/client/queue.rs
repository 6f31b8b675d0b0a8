//! Frames between the reader and whoever takes them, and the calls that wait for answers.
//!
//! The bound is what slows the server down: the reader stops reading, the socket fills, and the hub notices a slow
//! client. A call that waits is the exception, because its answer stands behind the frames that nobody takes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use super::frame::{Frame, FrameKind};
use super::{CallError, MuxClient, PENDING_MAX};

/// Frames that may wait before the reader pauses, and with it the server's sending.
pub const FRAMES_MAX: usize = 4096;
/// Bytes of frames that may wait before the reader pauses; the frame that crosses the line is still taken.
pub const FRAMES_BYTES_MAX: usize = 16 * 1024 * 1024;
/// While calls wait, the reader goes on past [`FRAMES_MAX`] and [`FRAMES_BYTES_MAX`], because their answers stand
/// behind the frames; with this many bytes waiting the connection is given up instead.
pub const OVERFLOW_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The frames of one connection, in the order they came. Answers to [`MuxClient::call`] are not among them.
pub struct FrameQueue {
    queue: Arc<SharedFrames>,
    /// What was taken from the shared queue in one go.
    taken: VecDeque<Frame>,
    client: MuxClient,
}

impl FrameQueue {
    pub(super) fn new(queue: Arc<SharedFrames>, client: MuxClient) -> FrameQueue {
        FrameQueue { queue, taken: VecDeque::new(), client }
    }

    /// The next frame; `None` when the connection is closed and everything was taken. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = self.taken.pop_front() {
                return Some(frame);
            }
            let arrival = self.queue.arrival.notified();
            if !self.queue.take_all(&mut self.taken) {
                return None;
            }
            if self.taken.is_empty() {
                arrival.await;
            }
        }
    }

    /// The next frame if one waits already.
    pub fn try_next(&mut self) -> Option<Frame> {
        if self.taken.is_empty() {
            // Whether the connection is closed is for `next` to say.
            let _open = self.queue.take_all(&mut self.taken);
        }
        self.taken.pop_front()
    }

    /// Why the connection closed.
    pub fn close_reason(&self) -> String {
        self.queue.close_reason()
    }

    /// The connection the frames come from.
    pub fn client(&self) -> &MuxClient {
        &self.client
    }
}

pub(super) struct SharedFrames {
    state: Mutex<SharedFramesState>,
    arrival: Notify,
    room: Notify,
}

#[derive(Default)]
struct SharedFramesState {
    frames: VecDeque<Frame>,
    bytes: usize,
    pending: HashMap<u64, oneshot::Sender<Frame>>,
    closed: Option<String>,
}

impl SharedFramesState {
    fn has_room(&self) -> bool {
        let fits = self.frames.len() < FRAMES_MAX && self.bytes < FRAMES_BYTES_MAX;
        fits || !self.pending.is_empty() || self.closed.is_some()
    }
}

impl SharedFrames {
    pub(super) fn new() -> Arc<SharedFrames> {
        Arc::new(SharedFrames { state: Mutex::default(), arrival: Notify::new(), room: Notify::new() })
    }

    /// Puts a frame where it belongs and says whether there is room for the next one; an error says why the
    /// connection must be given up.
    pub(super) fn accept(&self, frame: Frame) -> Result<bool, String> {
        let kind = frame.kind();
        let mut state = self.lock();
        if let FrameKind::Response(Some(id)) = kind
            && let Some(sender) = state.pending.remove(&id)
        {
            drop(state);
            // A caller that gave up does not want the answer any more.
            let _unwanted = sender.send(frame);
            return Ok(true);
        }
        if state.bytes >= OVERFLOW_BYTES_MAX {
            return Err(format!("{OVERFLOW_BYTES_MAX} bytes of frames wait and nobody takes them"));
        }
        state.bytes += frame.text().len();
        let was_empty = state.frames.is_empty();
        state.frames.push_back(frame);
        let room = state.has_room();
        drop(state);
        if was_empty {
            self.arrival.notify_one();
        }
        Ok(room)
    }

    /// Waits until the reader may read on.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let room = self.room.notified();
            if self.has_room() {
                return;
            }
            room.await;
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.lock().has_room()
    }

    pub(super) fn expect_answer(&self, id: u64, sender: oneshot::Sender<Frame>) -> Result<(), CallError> {
        let mut state = self.lock();
        if let Some(reason) = &state.closed {
            return Err(CallError::Closed(reason.clone()));
        }
        if state.pending.len() >= PENDING_MAX {
            return Err(CallError::TooManyPending);
        }
        state.pending.insert(id, sender);
        drop(state);
        self.room.notify_one();
        Ok(())
    }

    pub(super) fn forget_answer(&self, id: u64) {
        self.lock().pending.remove(&id);
    }

    /// Ends the queue: waiting calls fail, frames that came before can still be taken. The first reason stays.
    pub(super) fn close(&self, reason: &str) {
        let mut state = self.lock();
        state.closed.get_or_insert_with(|| reason.to_owned());
        state.pending.clear();
        drop(state);
        self.arrival.notify_one();
        self.room.notify_one();
    }

    pub(super) fn close_reason(&self) -> String {
        self.lock().closed.clone().unwrap_or_else(|| "the connection was given up".to_owned())
    }

    /// Moves all waiting frames to `target`; false when nothing waits and nothing will come.
    fn take_all(&self, target: &mut VecDeque<Frame>) -> bool {
        let mut state = self.lock();
        if state.frames.is_empty() {
            return state.closed.is_none();
        }
        std::mem::swap(&mut state.frames, target);
        state.bytes = 0;
        drop(state);
        self.room.notify_one();
        true
    }

    fn lock(&self) -> MutexGuard<'_, SharedFramesState> {
        // The state is whole between any two statements here, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_frames_fill_the_queue_as_many_do() {
        const FRAME_BYTES: usize = 1024 * 1024;
        let large = Frame::new("x".repeat(FRAME_BYTES));
        let queue = SharedFrames::new();
        let taken = |queue: &SharedFrames| (1..).find(|_| queue.accept(large.clone()) != Ok(true)).unwrap();
        assert_eq!(taken(&queue), FRAMES_BYTES_MAX / FRAME_BYTES);
        assert!(!queue.has_room());
        // A call waits: its answer stands behind the frames, so they are taken until it is too much.
        let (sender, _receiver) = oneshot::channel();
        queue.expect_answer(1, sender).unwrap();
        assert!(queue.has_room());
        let more = (OVERFLOW_BYTES_MAX - FRAMES_BYTES_MAX) / FRAME_BYTES;
        assert_eq!(taken(&queue), more + 1);
        let mut frames = VecDeque::new();
        assert!(queue.take_all(&mut frames));
        assert_eq!(frames.len() * FRAME_BYTES, OVERFLOW_BYTES_MAX);
        assert_eq!(queue.accept(large), Ok(true));
    }
}
