//! Blocks on a stream of lines.
//! For a runner's local socket, so nothing is packed and nothing pings: the system tells when a local peer is gone.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufWriter, ReadHalf, WriteHalf};

use super::SocketOptions;
use super::tasks::{BlockSink, BlockSource, CloseMessage, WriteError};
use crate::socket::stall_timeout::StallTimeout;

/// What is read at once.
const READ_BYTES: usize = 64 * 1024;
/// Small blocks are collected up to this before they are written.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;

pub(super) fn halves<S>(stream: S, options: &SocketOptions) -> (LineSource<S>, LineSink<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (reading, writing) = tokio::io::split(stream);
    let source = LineSource {
        stream: reading,
        buffer: BytesMut::new(),
        searched: 0,
        is_at_end: false,
        line_bytes_max: options.message_bytes_max,
    };
    let writing = BufWriter::with_capacity(WRITE_BUFFER_BYTES, writing);
    (source, LineSink { stream: writing, stall_timeout: StallTimeout::new(options.silence_max) })
}

pub(super) struct LineSource<S> {
    stream: ReadHalf<S>,
    buffer: BytesMut,
    /// How far the buffer is known to hold no end of a line.
    searched: usize,
    /// The stream is over, but its last line may still have to be given out first.
    is_at_end: bool,
    line_bytes_max: usize,
}

impl<S> BlockSource for LineSource<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    async fn next(&mut self) -> Result<Bytes, String> {
        loop {
            // Up to the last line end: all whole lines that have arrived become one block, which costs one wake-up.
            if let Some(last) = memchr::memrchr(b'\n', &self.buffer[self.searched..]) {
                let block = self.buffer.split_to(self.searched + last + 1).freeze();
                self.searched = 0;
                return Ok(block);
            }
            self.searched = self.buffer.len();
            if self.searched > self.line_bytes_max {
                let bytes_max = self.line_bytes_max;
                return Err(format!("the other end sent a line of more than {bytes_max} bytes"));
            }
            if self.is_at_end {
                return Err("the other end closed the link".to_owned());
            }
            self.buffer.reserve(READ_BYTES);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => {
                    self.is_at_end = true;
                    // The last line may lack its end, as it is when a person types.
                    if !self.buffer.is_empty() {
                        self.buffer.extend_from_slice(b"\n");
                    }
                }
                Ok(_) => {}
                Err(error) => return Err(format!("the connection broke off: {error}")),
            }
        }
    }
}

pub(super) struct LineSink<S> {
    stream: BufWriter<WriteHalf<S>>,
    stall_timeout: StallTimeout,
}

impl<S> BlockSink for LineSink<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    /// Loops by hand, because `write_all` would put one limit on the whole block instead of one on each piece.
    async fn feed(&mut self, block: Bytes, _may_pack: bool) -> Result<(), WriteError> {
        let mut rest = block;
        while !rest.is_empty() {
            let written = self.stall_timeout.within_limit(self.stream.write_buf(&mut rest)).await;
            judge(&self.stall_timeout, written.map(|written| written.map(|_| ())))?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), WriteError> {
        let flushed = self.stall_timeout.within_limit(self.stream.flush()).await;
        judge(&self.stall_timeout, flushed)
    }

    async fn ping(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    async fn close(&mut self, _goodbye: CloseMessage<'_>) -> Result<(), WriteError> {
        let closed = self.stall_timeout.within_limit(self.stream.shutdown()).await;
        judge(&self.stall_timeout, closed)
    }
}

fn judge(stall_timeout: &StallTimeout, written: Option<std::io::Result<()>>) -> Result<(), WriteError> {
    match written {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) => Err(WriteError::Broken(format!("the connection broke off: {error}"))),
        None => {
            let seconds = stall_timeout.limit().as_secs_f32();
            Err(WriteError::Fatal(format!("the other end accepted no data for {seconds} s")))
        }
    }
}
