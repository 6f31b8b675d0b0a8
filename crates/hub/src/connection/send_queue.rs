//! The client send queue: whole frames that wait for the socket. It holds references to shared bytes, so a frame that
//! goes to many clients is in memory once.
//!
//! Its bound only stops the taking of more events: whatever is pushed is queued whole.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

/// Above this a connection takes no more events; they stay in the ring, where all subscribers share them.
const EVENTS_BYTES_MAX: usize = 256 << 10;
/// Pieces given to the kernel in one call.
const PIECES_MAX: usize = 64;

/// Whole frames on their way to one client, and how far the first of them is written.
#[derive(Default)]
pub(crate) struct ClientSendQueue {
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// The stream may keep back some of what it took (TLS does, when the network takes no more).
    is_flush_due: bool,
}

impl ClientSendQueue {
    pub(crate) fn push(&mut self, frames: Bytes) {
        if !frames.is_empty() {
            self.bytes += frames.len();
            self.queue.push_back(frames);
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= EVENTS_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Nothing is left to write, here or in the stream.
    pub(crate) fn is_flushed(&self) -> bool {
        self.queue.is_empty() && !self.is_flush_due
    }

    /// Gives the stream as much as it takes in one call, or makes it send what it has kept back.
    pub(crate) fn poll_write_to(
        &mut self,
        stream: Pin<&mut (impl AsyncWrite + ?Sized)>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        if self.queue.is_empty() {
            ready!(stream.poll_flush(cx))?;
            self.is_flush_due = false;
            return Poll::Ready(Ok(()));
        }
        // One call for many frames: small events come in bursts, and a call for each would cost more than the bytes.
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (piece, bytes) in pieces.iter_mut().zip(&self.queue) {
            *piece = IoSlice::new(bytes);
            count += 1;
        }
        let written = ready!(stream.poll_write_vectored(cx, &pieces[..count]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.is_flush_due = true;
        self.advance(written);
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        while let Some(first) = self.queue.front_mut() {
            if written < first.len() {
                first.advance(written);
                break;
            }
            written -= first.len();
            self.queue.pop_front();
        }
        // Idle connections are the many; the room that a burst needed goes back.
        if self.queue.is_empty() {
            self.queue.shrink_to(PIECES_MAX / 8);
        }
    }

    #[cfg(test)]
    pub(crate) fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.queue.iter()
    }
}
