//! Opening a connection, and saying clearly why there is none.
//!
//! The kinds of failure are what callers decide by: whether trying again can help, whether a person has to log in,
//! and whether this is a hub at all.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use qd_wire::mux::SystemEvent;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::frame::Frame;
use crate::net::{BoxedStream, Dial, TcpDial};
use crate::open::{OpenError, ServerRoute, end_of_connection};
use crate::tls::Trust;
use crate::url::{BadUrl, ServerUrl};

/// The longest frame a client takes.
const FRAME_BYTES_MAX: usize = 128 * 1024 * 1024;
const MUX_PATH: &str = "/ws/mux";

/// Where and how to connect.
#[derive(Clone)]
pub struct ConnectOptions {
    pub url: String,
    pub token: String,
    /// The library's buffer for one connection; small for many idle clients, large for fast streams.
    pub read_buffer_bytes: usize,
    /// How long connecting may take, first frame included.
    pub timeout: Duration,
    pub ping_interval: Duration,
    /// Whose certificate counts when the address says `https`.
    pub trust: Trust,
    pub dial: Arc<dyn Dial>,
}

impl ConnectOptions {
    /// The usual options.
    pub fn new(url: &str, token: &str) -> ConnectOptions {
        ConnectOptions {
            url: url.to_owned(),
            token: token.to_owned(),
            read_buffer_bytes: 64 * 1024,
            timeout: Duration::from_secs(10),
            ping_interval: Duration::from_secs(20),
            trust: Trust::System,
            dial: Arc::new(TcpDial),
        }
    }
}

/// The server's first frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    pub protocol_version: String,
    pub server_version: String,
    pub connection_id: String,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("'{url}' is not a server address: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("the token contains characters that cannot be sent")]
    BadToken,
    #[error("no server answers at {address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    #[error("the server at {address} did not answer in time")]
    TimedOut { address: String },
    /// 401 or 403.
    #[error("the server refused the connection (HTTP {status}): {body}")]
    Denied { status: u16, body: String },
    /// The certificate is not one that counts.
    #[error("the server at {address} cannot be trusted: {reason}")]
    Untrusted { address: String, reason: String },
    #[error("{address} is not a Quarterdeck server: {reason}")]
    NotQuarterdeck { address: String, reason: String },
}

impl From<BadUrl> for ConnectError {
    fn from(BadUrl { url, reason }: BadUrl) -> Self {
        ConnectError::BadUrl { url, reason }
    }
}

impl ConnectError {
    /// Whether trying again later can help.
    pub fn is_temporary(&self) -> bool {
        match self {
            ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. } => true,
            ConnectError::BadUrl { .. }
            | ConnectError::BadToken
            | ConnectError::Denied { .. }
            | ConnectError::Untrusted { .. }
            | ConnectError::NotQuarterdeck { .. } => false,
        }
    }
}

/// A connection to a hub, its first frame read.
pub(super) async fn open(
    url: &ServerUrl,
    options: &ConnectOptions,
) -> Result<(WebSocketStream<BoxedStream>, ServerInfo), ConnectError> {
    let address = url.address();
    match tokio::time::timeout(options.timeout, open_at(url, &address, options)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::TimedOut { address }),
    }
}

async fn open_at(
    url: &ServerUrl,
    address: &str,
    options: &ConnectOptions,
) -> Result<(WebSocketStream<BoxedStream>, ServerInfo), ConnectError> {
    let config = WebSocketConfig::default()
        .read_buffer_size(options.read_buffer_bytes)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let route = ServerRoute { url, trust: &options.trust, dial: &*options.dial };
    let mut socket = route
        .websocket(MUX_PATH, &options.token, &[], config)
        .await
        .map_err(|error| explain(&options.url, address, error))?;
    let info = first_frame(address, &mut socket).await?;
    Ok((socket, info))
}

async fn first_frame(
    address: &str,
    socket: &mut WebSocketStream<BoxedStream>,
) -> Result<ServerInfo, ConnectError> {
    let stranger = |reason: String| ConnectError::NotQuarterdeck { address: address.to_owned(), reason };
    let gone = |source| ConnectError::Unreachable { address: address.to_owned(), source };
    match socket.next().await.unwrap_or(Err(WebSocketError::ConnectionClosed)) {
        Ok(Message::Text(text)) => match Frame::new(text).system() {
            Ok(SystemEvent::Connected { protocol_version, server_version, connection_id }) => {
                Ok(ServerInfo { protocol_version, server_version, connection_id })
            }
            Ok(_) | Err(_) => Err(stranger("its first frame is not 'connected'".to_owned())),
        },
        // Told as unreachable, so that callers retry: a hub that is going down may close at once.
        Ok(Message::Close(close)) => {
            let reason = close.map(|close| close.reason.as_str().to_owned()).filter(|text| !text.is_empty());
            let reason = reason.unwrap_or_else(|| "the server closed the connection at once".to_owned());
            Err(gone(std::io::Error::new(std::io::ErrorKind::ConnectionAborted, reason)))
        }
        Ok(_) => Err(stranger("its first frame is not text".to_owned())),
        Err(error) => Err(match end_of_connection(error) {
            Ok(end) => gone(end),
            Err(other) => stranger(other.to_string()),
        }),
    }
}

fn explain(url: &str, address: &str, error: OpenError) -> ConnectError {
    let address = address.to_owned();
    match error {
        OpenError::BadUrl(reason) => ConnectError::BadUrl { url: url.to_owned(), reason },
        OpenError::BadHeader => ConnectError::BadToken,
        OpenError::Unreachable(source) => ConnectError::Unreachable { address, source },
        OpenError::Untrusted(reason) => ConnectError::Untrusted { address, reason },
        OpenError::Status { status: status @ (401 | 403), body, .. } => ConnectError::Denied { status, body },
        // A proxy in front of a hub that is restarting says this.
        OpenError::Status { status: status @ 502..=504, body, .. } => ConnectError::Unreachable {
            address,
            source: std::io::Error::other(format!("HTTP {status} {body}")),
        },
        OpenError::Status { status, body, .. } => {
            ConnectError::NotQuarterdeck { address, reason: format!("HTTP {status} {body}") }
        }
        OpenError::Strange(reason) => ConnectError::NotQuarterdeck { address, reason },
    }
}

#[cfg(test)]
#[path = "connect_tests.rs"]
mod tests;
