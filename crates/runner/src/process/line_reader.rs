//! Strict JSON lines from an agent's output: the line splitter of `qd-core` on an async byte source.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt};

pub use qd_core::harness::lines::{LINE_BYTES_MAX, LineSplitter, LineTooLong};

/// Size of the read buffer, which is that of a pipe.
pub const READ_BUFFER_BYTES: usize = 64 * 1024;

/// Reads lines in batches: fill once, then take every line that arrived.
///
/// ```text
/// while reader.fill().await? {
///     while let Some(line) = reader.next_line() { … }
/// }
/// ```
/// An idle reader owns no buffer: it is allocated when there is something to read, and given back
/// as soon as the source has nothing more.
#[derive(Debug)]
pub struct LineReader<R> {
    source: R,
    splitter: LineSplitter,
    buffer: Vec<u8>,
    position: usize,
    ended: bool,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// A reader that skips lines of more than `max_line_bytes`.
    pub fn new(source: R, max_line_bytes: usize) -> Self {
        let splitter = LineSplitter::new(max_line_bytes);
        Self { source, splitter, buffer: Vec::new(), position: 0, ended: false }
    }

    /// Waits for more bytes; false at the end of the stream, when nothing is left to take.
    ///
    /// Cancelling it loses nothing. Lines not yet taken are kept, so it may be called early.
    pub async fn fill(&mut self) -> io::Result<bool> {
        poll_fn(|context| self.poll_fill(context)).await
    }

    /// The same for those who poll.
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.position < self.buffer.len() {
            return Poll::Ready(Ok(true));
        }
        if self.ended {
            return Poll::Ready(Ok(self.splitter.has_partial()));
        }
        self.buffer.clear();
        self.position = 0;
        if self.buffer.capacity() == 0 {
            self.buffer.reserve_exact(READ_BUFFER_BYTES);
        }
        // The future of one read holds no state of its own, so it may be made anew per poll.
        let poll = pin!(self.source.read_buf(&mut self.buffer)).poll(context);
        if poll.is_pending() {
            self.buffer = Vec::new();
        }
        let count = ready!(poll)?;
        if count == 0 {
            self.ended = true;
            self.buffer = Vec::new();
            return Poll::Ready(Ok(self.splitter.has_partial()));
        }
        Poll::Ready(Ok(true))
    }

    /// The next line of what was read; `None` when [`fill`](Self::fill) is due again.
    pub fn next_line(&mut self) -> Option<Result<&[u8], LineTooLong>> {
        if self.ended {
            return self.splitter.finish();
        }
        let mut input = &self.buffer[self.position..];
        let line = self.splitter.next_line(&mut input);
        self.position = self.buffer.len() - input.len();
        line
    }

    /// Heap bytes held now.
    pub fn buffered_bytes(&self) -> usize {
        self.buffer.capacity() + self.splitter.buffered_bytes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    async fn all_lines(reader: &mut LineReader<impl AsyncRead + Unpin>) -> Vec<Result<String, LineTooLong>> {
        let mut lines = Vec::new();
        while reader.fill().await.unwrap() {
            while let Some(line) = reader.next_line() {
                lines.push(line.map(|bytes| String::from_utf8_lossy(bytes).into_owned()));
            }
        }
        lines
    }

    #[tokio::test]
    async fn reads_to_the_end_and_past_an_overlong_line() {
        let long = "y".repeat(50);
        let source = format!("{{}}\r\n{long}\n\nlast");
        let mut reader = LineReader::new(source.as_bytes(), 20);
        let too_long = LineTooLong { length: 50, max: 20 };
        let expected = vec![Ok("{}".into()), Err(too_long), Ok(String::new()), Ok("last".into())];
        assert_eq!(all_lines(&mut reader).await, expected);
        assert!(!reader.fill().await.unwrap());
    }

    #[tokio::test]
    async fn an_idle_reader_holds_no_buffer() {
        let (mut writer, source) = tokio::io::duplex(READ_BUFFER_BYTES);
        let mut reader = LineReader::new(source, 1000);
        writer.write_all(b"one\ntw").await.unwrap();
        assert!(reader.fill().await.unwrap());
        assert_eq!(reader.next_line(), Some(Ok(b"one".as_slice())));
        assert_eq!(reader.next_line(), None);
        // Nothing to read: one poll shows it, then the future is dropped, which must lose nothing.
        {
            let fill = pin!(reader.fill());
            assert!(futures_poll_once(fill).is_pending());
        }
        assert!(reader.buffered_bytes() < 64, "{} bytes held", reader.buffered_bytes());
        writer.write_all(b"o\n").await.unwrap();
        assert!(reader.fill().await.unwrap());
        assert_eq!(reader.next_line(), Some(Ok(b"two".as_slice())));
    }

    fn futures_poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
    }
}
