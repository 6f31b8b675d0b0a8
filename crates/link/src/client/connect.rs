//! Opening a connection, and saying clearly why there is none.

use std::time::Duration;

use futures_util::StreamExt;
use qd_wire::mux::SystemEvent;
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::frame::Frame;

/// The longest frame a client takes.
const FRAME_BYTES_MAX: usize = 128 * 1024 * 1024;
/// As much of an error page as is worth showing.
const BODY_CHARS_MAX: usize = 500;
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
    #[error("'{url}' is not an address of a server: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("the token contains characters that cannot be sent")]
    BadToken,
    #[error("nothing answers at {address}: {source}")]
    Unreachable { address: String, source: std::io::Error },
    #[error("the server at {address} did not answer in time")]
    TimedOut { address: String },
    /// 401 or 403.
    #[error("the server refused the connection (HTTP {status}): {body}")]
    Denied { status: u16, body: String },
    #[error("{address} is not a Quarterdeck server: {reason}")]
    NotQuarterdeck { address: String, reason: String },
}

impl ConnectError {
    /// Whether trying again later can help.
    pub fn is_temporary(&self) -> bool {
        match self {
            ConnectError::Unreachable { .. } | ConnectError::TimedOut { .. } => true,
            ConnectError::BadUrl { .. }
            | ConnectError::BadToken
            | ConnectError::Denied { .. }
            | ConnectError::NotQuarterdeck { .. } => false,
        }
    }
}

pub(super) async fn open(
    options: &ConnectOptions,
) -> Result<(WebSocketStream<TcpStream>, ServerInfo), ConnectError> {
    let address = authority(&options.url)?;
    match tokio::time::timeout(options.timeout, open_at(&address, options)).await {
        Ok(result) => result,
        Err(_) => Err(ConnectError::TimedOut { address }),
    }
}

async fn open_at(
    address: &str,
    options: &ConnectOptions,
) -> Result<(WebSocketStream<TcpStream>, ServerInfo), ConnectError> {
    let unreachable = |source| ConnectError::Unreachable { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    let mut request = format!("ws://{address}{MUX_PATH}")
        .into_client_request()
        .map_err(|_| ConnectError::BadUrl { url: options.url.clone(), reason: "the host cannot be used" })?;
    let mut bearer =
        HeaderValue::from_str(&format!("Bearer {}", options.token)).map_err(|_| ConnectError::BadToken)?;
    bearer.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, bearer);
    let config = WebSocketConfig::default()
        .read_buffer_size(options.read_buffer_bytes)
        .max_message_size(Some(FRAME_BYTES_MAX))
        .max_frame_size(Some(FRAME_BYTES_MAX));
    let (mut socket, _) = tokio_tungstenite::client_async_with_config(request, stream, Some(config))
        .await
        .map_err(|error| handshake_error(address, error))?;
    let info = first_frame(address, &mut socket).await?;
    Ok((socket, info))
}

async fn first_frame(
    address: &str,
    socket: &mut WebSocketStream<TcpStream>,
) -> Result<ServerInfo, ConnectError> {
    let stranger = |reason: String| ConnectError::NotQuarterdeck { address: address.to_owned(), reason };
    match socket.next().await {
        Some(Ok(Message::Text(text))) => match Frame::new(text).system() {
            Ok(SystemEvent::Connected { protocol_version, server_version, connection_id }) => {
                Ok(ServerInfo { protocol_version, server_version, connection_id })
            }
            Ok(_) | Err(_) => Err(stranger("its first frame is not 'connected'".to_owned())),
        },
        Some(Ok(_)) => Err(stranger("its first frame is not text".to_owned())),
        Some(Err(WebSocketError::Io(source))) => {
            Err(ConnectError::Unreachable { address: address.to_owned(), source })
        }
        Some(Err(error)) => Err(stranger(error.to_string())),
        None => Err(stranger("it closed the connection at once".to_owned())),
    }
}

fn handshake_error(address: &str, error: WebSocketError) -> ConnectError {
    match error {
        WebSocketError::Io(source) => ConnectError::Unreachable { address: address.to_owned(), source },
        WebSocketError::Http(response) => {
            let status = response.status().as_u16();
            let body = readable(response.body().as_deref().unwrap_or_default());
            match status {
                401 | 403 => ConnectError::Denied { status, body },
                502..=504 => ConnectError::Unreachable {
                    address: address.to_owned(),
                    source: std::io::Error::other(format!("HTTP {status} {body}")),
                },
                _ => ConnectError::NotQuarterdeck {
                    address: address.to_owned(),
                    reason: format!("HTTP {status} {body}"),
                },
            }
        }
        other => ConnectError::NotQuarterdeck { address: address.to_owned(), reason: other.to_string() },
    }
}

/// An error page for a person: our hub sends `{"error":…}`, others send anything.
fn readable(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Page {
        error: String,
    }
    let text = match serde_json::from_slice::<Page>(body) {
        Ok(page) => page.error,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    text.chars().take(BODY_CHARS_MAX).collect()
}

/// `host:port` of a URL; what follows the host is not looked at.
fn authority(url: &str) -> Result<String, ConnectError> {
    let bad = |reason| ConnectError::BadUrl { url: url.to_owned(), reason };
    let (scheme, rest) = url.split_once("://").unwrap_or(("ws", url));
    match scheme {
        "ws" | "http" => {}
        "wss" | "https" => return Err(bad("TLS is not built in yet; use http:// or ws://")),
        _ => return Err(bad("it must begin with http:// or ws://")),
    }
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.is_empty() || host.contains('@') {
        return Err(bad("it names no host"));
    }
    let port_follows =
        host.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':') || before.ends_with(']'));
    Ok(if port_follows { host.to_owned() } else { format!("{host}:80") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_urls() {
        let cases = [
            ("http://127.0.0.1:7433", Some("127.0.0.1:7433")),
            ("ws://localhost:1/ws/mux?x=y", Some("localhost:1")),
            ("127.0.0.1:9/#code", Some("127.0.0.1:9")),
            ("http://[::1]:5/", Some("[::1]:5")),
            ("http://host", Some("host:80")),
            ("http://[::1]", Some("[::1]:80")),
            ("https://host", None),
            ("ftp://host", None),
            ("http://", None),
            ("http://user@host", None),
        ];
        for (url, expected) in cases {
            assert_eq!(authority(url).ok().as_deref(), expected, "{url}");
        }
    }
}
