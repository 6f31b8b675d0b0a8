//! Keeps the last lines an agent wrote to stderr.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use bytes::{Bytes, BytesMut};
use qd_link::mutex::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::process::ChildStderr;
use tokio::sync::mpsc;

/// How many lines are kept by default.
pub const STDERR_LINES_MAX: usize = 50;
/// Longer lines are cut here.
pub const STDERR_LINE_BYTES_MAX: usize = 4 * 1024;
/// Read at once; on the stack while reading, so an idle agent costs nothing.
const READ_BYTES: usize = 4 * 1024;
/// Read at once where all of it is wanted.
const TAP_BYTES: usize = 64 * 1024;

/// The last lines of stderr, as they come in. Clones share them.
#[derive(Debug, Clone)]
pub struct StderrTail {
    ring: Arc<Mutex<LineRing>>,
}

impl StderrTail {
    pub(super) fn new(lines_max: usize) -> Self {
        Self { ring: Arc::new(Mutex::new(LineRing::new(lines_max))) }
    }

    /// The lines kept now, oldest first; a line not yet ended is the last.
    pub fn lines(&self) -> Vec<String> {
        self.with(|ring| ring.lines())
    }

    /// Reads to the end of the stream, however much that is: the agent must never block on it.
    pub(super) async fn read_from(self, mut stderr: ChildStderr) {
        poll_fn(move |context| {
            let mut storage = [0_u8; READ_BYTES];
            loop {
                let mut buffer = ReadBuf::new(&mut storage);
                // An error means that nothing more will come, as the end of the stream does.
                let result = ready!(Pin::new(&mut stderr).poll_read(context, &mut buffer));
                if result.is_err() || buffer.filled().is_empty() {
                    return Poll::Ready(());
                }
                self.with(|ring| ring.push(buffer.filled()));
            }
        })
        .await;
    }

    /// The same, and passes everything on. Waits for whoever takes it, so that nothing is lost.
    pub(super) async fn read_and_tap(self, mut stderr: ChildStderr, tap: mpsc::Sender<Bytes>) {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(TAP_BYTES);
            match stderr.read_buf(&mut buffer).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            self.with(|ring| ring.push(&buffer));
            if tap.send(buffer.split().freeze()).await.is_err() {
                // Nobody listens any more; the agent must not block for that.
                return self.read_from(stderr).await;
            }
        }
    }

    fn with<T>(&self, action: impl FnOnce(&mut LineRing) -> T) -> T {
        action(&mut self.ring.lock())
    }
}

/// Pure: bytes in, the last lines out.
#[derive(Debug)]
struct LineRing {
    lines_max: usize,
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl LineRing {
    fn new(lines_max: usize) -> Self {
        Self { lines_max, lines: VecDeque::new(), partial: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let content = piece.strip_suffix(b"\n").unwrap_or(piece);
            let room = STDERR_LINE_BYTES_MAX.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&content[..content.len().min(room)]);
            if content.len() < piece.len() {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.partial);
        if self.lines_max == 0 {
            return;
        }
        if self.lines.len() >= self.lines_max {
            self.lines.pop_front();
        }
        self.lines.push_back(text(&line));
    }

    fn lines(&self) -> Vec<String> {
        let partial = (!self.partial.is_empty()).then(|| text(&self.partial));
        let all: Vec<String> = self.lines.iter().cloned().chain(partial).collect();
        let surplus = all.len().saturating_sub(self.lines_max);
        all.into_iter().skip(surplus).collect()
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_whatever_the_chunks() {
        let stream: &[u8] = b"one\r\ntwo\n\nbad \xff byte\nopen";
        for chunk_size in 1..stream.len() {
            let mut ring = LineRing::new(3);
            stream.chunks(chunk_size).for_each(|chunk| ring.push(chunk));
            assert_eq!(ring.lines(), ["", "bad \u{fffd} byte", "open"]);
        }
    }

    #[test]
    fn long_lines_are_cut_and_the_next_is_intact() {
        let mut ring = LineRing::new(50);
        for _ in 0..100 {
            ring.push(&[b'x'; 1000]);
        }
        ring.push(b"\nnext\n");
        let lines = ring.lines();
        assert_eq!(lines[0].len(), STDERR_LINE_BYTES_MAX);
        assert_eq!(lines[1], "next");
    }
}
