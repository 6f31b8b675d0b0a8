use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio::net::TcpStream;
use tungstenite::protocol::{Role, WebSocketConfig};
use tungstenite::{Message, WebSocket};

const READ_BUFFER_BYTES: usize = 4 << 10;
/// Read and thrown away in one go while a connection closes.
const DISCARD_BYTES: usize = 16 << 10;

/// The reading side of a connection: the library checks and unmasks what comes; what it wants to answer
/// (pong, close) is collected and goes out in order with our own frames.
pub(crate) struct Socket(WebSocket<Source>);

struct Source {
    stream: TcpStream,
    replies: Vec<u8>,
}

impl Socket {
    /// `read_ahead` came with the request that became this connection.
    pub(crate) fn new(stream: TcpStream, read_ahead: Vec<u8>, message_bytes_max: usize) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0)
            .max_message_size(Some(message_bytes_max))
            .max_frame_size(Some(message_bytes_max));
        let source = Source { stream, replies: Vec::new() };
        Self(WebSocket::from_partially_read(source, read_ahead, Role::Server, Some(config)))
    }

    /// The next message; `WouldBlock` when there is none yet.
    pub(crate) fn read(&mut self) -> tungstenite::Result<Message> {
        self.0.read()
    }

    /// What the library wants to send.
    pub(crate) fn take_replies(&mut self) -> Option<Bytes> {
        let source = self.0.get_mut();
        (!source.replies.is_empty()).then(|| Bytes::from(std::mem::take(&mut source.replies)))
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.0.get_ref().stream
    }

    pub(crate) fn stream_mut(&mut self) -> &mut TcpStream {
        &mut self.0.get_mut().stream
    }

    /// Reads and forgets; `Ok(0)` is the end of the stream.
    pub(crate) fn discard(&self) -> io::Result<usize> {
        self.stream().try_read(&mut [0; DISCARD_BYTES])
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.try_read(buffer)
    }
}

impl Write for Source {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.replies.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
