//! Links over sockets: WebSocket between machines, lines on a unix socket.
//!
//! `tasks` holds the life of such a link: one task reads, one writes, neither waits for the other. `websocket` and
//! `lines` say how blocks look on the wire, `packing` how they are compressed.

mod lines;
mod packing;
pub(crate) mod stall_timeout;
mod tasks;
mod websocket;

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::memory::LinkEnd;

/// The name under which hello and welcome agree on [`crate::memory::LinkSender::set_compression`].
pub const COMPRESSION_NAME: &str = "deflate";

/// The library's buffer for reading: large, so that a burst costs few system calls.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// What the library collects before it writes.
const WRITE_BUFFER_BYTES: usize = 64 * 1024;
/// What may wait to be written; more only collects when a peer pings without end and does not read.
const WRITE_BUFFER_BYTES_MAX: usize = 1024 * 1024;

/// How a link over a socket behaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SocketOptions {
    /// How often a sign of life is sent.
    pub ping_interval: Duration,
    /// The link is dead when nothing is heard for this long, or nothing can be written for this long.
    pub silence_max: Duration,
    /// The longest message or line that is taken or sent; also after it is unpacked.
    pub message_bytes_max: usize,
    /// Blocks from this length on are packed, once both sides agreed on it.
    pub compress_from: usize,
    /// Whether binary messages are packed blocks; else they say nothing.
    pub takes_packed: bool,
}

impl Default for SocketOptions {
    fn default() -> Self {
        SocketOptions {
            ping_interval: Duration::from_secs(7),
            silence_max: Duration::from_secs(20),
            // A record can be as long as the longest line of an agent (64 MiB) with what we put around it; one that
            // did not fit would end every link that carries it.
            message_bytes_max: 256 * 1024 * 1024,
            compress_from: 1024,
            takes_packed: true,
        }
    }
}

impl SocketOptions {
    /// How the WebSocket of such a link is to be opened or accepted.
    pub fn websocket_config(&self) -> WebSocketConfig {
        WebSocketConfig::default()
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(WRITE_BUFFER_BYTES)
            .max_write_buffer_size(WRITE_BUFFER_BYTES_MAX)
            .max_message_size(Some(self.message_bytes_max))
            .max_frame_size(Some(self.message_bytes_max))
    }
}

/// A link over a WebSocket whose handshake is done; open or accept it with [`SocketOptions::websocket_config`].
///
/// The link says goodbye when all its senders are dropped, and soon after its receiver is dropped.
pub fn over_websocket<S>(socket: WebSocketStream<S>, options: &SocketOptions) -> LinkEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (source, sink) = websocket::halves(socket, options);
    tasks::spawn(source, sink, options)
}

/// A link over a stream of lines, for clients on the same machine: the system tells when they are gone, so there
/// are no pings. Whether the lines are UTF-8 is not looked at.
pub fn over_lines<S>(stream: S, options: &SocketOptions) -> LinkEnd
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (source, sink) = lines::halves(stream, options);
    tasks::spawn(source, sink, options)
}

#[cfg(test)]
#[path = "socket/socket_tests.rs"]
mod tests;
