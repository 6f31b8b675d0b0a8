//! Sends the frames of an answer at the script's pace.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;

use super::record::Ending;
use super::server::SharedLlm;

/// One step of an answer.
pub(crate) enum Frame {
    /// Framing: sent, not counted.
    Event(Bytes),
    /// Content: counted, and followed by the script's pause.
    Delta(Bytes),
    /// Wait until a test opens this gate.
    Hold(String),
}

pub(crate) type Frames = Box<dyn Iterator<Item = Frame> + Send>;

/// An answer under way. When hyper drops it before its end, the client has gone.
pub(crate) struct AnswerStream {
    frames: Frames,
    delay: Duration,
    drop_after: Option<u64>,
    deltas: u64,
    open: OpenRequest,
}

/// Notes how a request ended, even if nobody gets to say so.
pub(crate) struct OpenRequest {
    pub(crate) shared: Arc<SharedLlm>,
    pub(crate) index: usize,
    pub(crate) ending: Ending,
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.shared.finish(self.index, self.ending);
    }
}

impl AnswerStream {
    pub(crate) fn new(frames: Frames, delay: Duration, drop_after: Option<u64>, open: OpenRequest) -> Self {
        Self { frames, delay, drop_after, deltas: 0, open }
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        unfold(Some(self), |stream| async move { stream?.step().await })
    }

    async fn step(mut self) -> Option<(io::Result<Bytes>, Option<Self>)> {
        loop {
            if self.drop_after.is_some_and(|after| self.deltas >= after) {
                // hyper writes out what it has when the body is pending, and throws it away when the body fails.
                tokio::task::yield_now().await;
                self.open.ending = Ending::Dropped;
                let error = io::Error::new(io::ErrorKind::ConnectionReset, "dropped by the script");
                return Some((Err(error), None));
            }
            match self.frames.next() {
                Some(Frame::Event(bytes)) => return Some((Ok(bytes), Some(self))),
                Some(Frame::Delta(bytes)) => {
                    self.deltas += 1;
                    if !self.delay.is_zero() {
                        tokio::time::sleep(self.delay).await;
                    }
                    return Some((Ok(bytes), Some(self)));
                }
                Some(Frame::Hold(gate)) => self.open.shared.wait_gate(&gate).await,
                None => {
                    self.open.ending = Ending::Complete;
                    return None;
                }
            }
        }
    }
}
