//! The WebSocket of a connection, without tasks of its own. Reading goes through the library; writing does not,
//! because the frames are encoded once for all clients and only have to be copied to the stream.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use qd_link::net::BoxedStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};

const READ_BUFFER_BYTES: usize = 4 << 10;
/// Read and thrown away in one go while a connection closes.
const DISCARD_BYTES: usize = 16 << 10;

/// The reading side of a connection: the library checks and unmasks what comes; what it wants to answer
/// (pong, close) is collected and goes out in order with our own frames.
pub(crate) struct Socket(WebSocket<SocketSource>);

/// The stream as the library sees it, which knows nothing of tasks and wakers.
struct SocketSource {
    stream: BoxedStream,
    /// Who is woken when there is more to read: the connection's task.
    waker: Waker,
    replies: Vec<u8>,
}

impl Socket {
    /// `read_ahead` came with the request that became this connection.
    pub(crate) fn new(stream: BoxedStream, read_ahead: Vec<u8>, message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let source = SocketSource { stream, waker: Waker::noop().clone(), replies: Vec::new() };
        Self(WebSocket::from_partially_read(source, read_ahead, Role::Server, Some(config)))
    }

    /// The next message; `WouldBlock` when there is none yet, and the task is woken when there is more to read.
    pub(crate) fn read(&mut self, cx: &Context<'_>) -> tungstenite::Result<Message> {
        // It is the same task nearly always, and then this costs a comparison.
        self.0.get_mut().waker.clone_from(cx.waker());
        self.0.read()
    }

    /// What the library wants to send.
    pub(crate) fn take_replies(&mut self) -> Option<Bytes> {
        let source = self.0.get_mut();
        (!source.replies.is_empty()).then(|| Bytes::from(std::mem::take(&mut source.replies)))
    }

    /// The stream, to write to.
    pub(crate) fn stream(&mut self) -> Pin<&mut BoxedStream> {
        Pin::new(&mut self.0.get_mut().stream)
    }

    /// Ends our side, then reads and forgets until the peer ends too.
    pub(crate) fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream().poll_shutdown(cx))?;
        let mut space = [0; DISCARD_BYTES];
        loop {
            let mut buffer = ReadBuf::new(&mut space);
            ready!(self.stream().poll_read(cx, &mut buffer))?;
            if buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl Read for SocketSource {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut cx = Context::from_waker(&self.waker);
        let mut buffer = ReadBuf::new(buffer);
        match Pin::new(&mut self.stream).poll_read(&mut cx, &mut buffer) {
            Poll::Ready(result) => result.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for SocketSource {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.replies.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
