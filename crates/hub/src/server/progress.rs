//! A stream that gives up on a peer that reads nothing, whatever is written: a page, an export, frames of a WebSocket.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use qd_link::net::BoxedStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::server::slots::SlotActivity;

/// A stream whose writes must make progress.
pub(crate) struct ProgressStream {
    stream: BoxedStream,
    activity: SlotActivity,
    /// How long a write may wait for the peer to take anything of it.
    stall_max: Duration,
    stall: Option<Stall>,
}

/// Runs while a write or a flush waits.
struct Stall {
    timer: Pin<Box<Sleep>>,
    /// A flush that is done ends its own wait only: a socket that takes nothing has nothing to flush either.
    is_of_flush: bool,
}

impl ProgressStream {
    pub(crate) fn new(stream: BoxedStream, activity: SlotActivity, stall_max: Duration) -> Self {
        Self { stream, activity, stall_max, stall: None }
    }

    /// What a write or a flush has come to: progress, or an error once it has waited too long.
    fn check<T>(
        &mut self,
        done: Poll<io::Result<T>>,
        is_flush: bool,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            if self.stall.take_if(|stall| !is_flush || stall.is_of_flush).is_some() || !is_flush {
                self.activity.note();
            }
            return done;
        }
        let stall_max = self.stall_max;
        let stall = self
            .stall
            .get_or_insert_with(|| Stall { timer: Box::pin(sleep(stall_max)), is_of_flush: is_flush });
        match stall.timer.as_mut().poll(cx) {
            Poll::Ready(()) => {
                let error = format!("the peer has read nothing for {} s", stall_max.as_secs());
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, error)))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for ProgressStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready() {
            self.activity.note();
        }
        read
    }
}

impl AsyncWrite for ProgressStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.check(written, false, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.check(flushed, true, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.check(shut, false, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, pieces);
        self.check(written, false, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::Instant;

    use super::*;
    use crate::config::Limits;
    use crate::server::slots::ConnectionSlots;

    const STALL_MAX: Duration = Duration::from_secs(30);

    /// A stream with room for four bytes, and its peer.
    fn stream() -> (ProgressStream, DuplexStream) {
        let slot = ConnectionSlots::new(&Limits::default()).take(&Arc::from("peer"));
        let (near, far) = tokio::io::duplex(4);
        (ProgressStream::new(Box::new(near), slot.activity(), STALL_MAX), far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_given_up() {
        let (mut stream, _far) = stream();
        let start = Instant::now();
        let error = stream.write_all(b"more than fits").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(start.elapsed().as_secs(), STALL_MAX.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_is_not_and_silence_while_nothing_is_written_costs_nothing() {
        let (mut stream, mut far) = stream();
        let read = tokio::spawn(async move {
            let mut all = Vec::new();
            while all.len() < 12 {
                tokio::time::sleep(STALL_MAX - Duration::from_secs(1)).await;
                let mut piece = [0; 4];
                let length = far.read(&mut piece).await.unwrap();
                all.extend_from_slice(&piece[..length]);
            }
            (all, far)
        });
        stream.write_all(b"twelve bytes").await.unwrap();
        let (all, mut far) = read.await.unwrap();
        assert_eq!(all, b"twelve bytes");
        tokio::time::sleep(STALL_MAX * 3).await;
        stream.write_all(b"next").await.unwrap();
        stream.flush().await.unwrap();
        let mut piece = [0; 4];
        far.read_exact(&mut piece).await.unwrap();
        assert_eq!(&piece, b"next");
    }
}
