//! Opening a connection to a server: dial, TLS, WebSocket handshake. Who asks puts it into words for its caller.

use std::io;
use std::time::Duration;

use qd_wire::ErrorCode;
use qd_wire::rest::ErrorBody;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::net::{BoxedStream, Dial};
use crate::tls::{self, TlsError, Trust};
use crate::url::ServerUrl;

/// A network that was dead answers a new attempt sooner than one that has been waiting: the system repeats its first
/// packet after 1, 3 and 7 seconds.
const DIAL_TIMEOUT: Duration = Duration::from_millis(2500);
/// As much of an error page as is worth showing.
const BODY_CHARS_MAX: usize = 500;

/// The way to a server.
#[derive(Clone, Copy)]
pub(crate) struct ServerRoute<'a> {
    pub(crate) url: &'a ServerUrl,
    pub(crate) trust: &'a Trust,
    pub(crate) dial: &'a dyn Dial,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// A socket's path was given where a network address is needed, or a host that no request can name.
    BadUrl(&'static str),
    /// The token or another header has characters that cannot be sent.
    BadHeader,
    Unreachable(io::Error),
    Untrusted(String),
    /// The server answered something else than a WebSocket.
    Status {
        status: u16,
        /// What a hub of ours says beside its sentence.
        code: Option<ErrorCode>,
        body: String,
    },
    Strange(String),
}

impl ServerRoute<'_> {
    /// A stream to the server, encrypted where its address says so.
    pub(crate) async fn stream(&self) -> Result<BoxedStream, OpenError> {
        let ServerUrl::Network { host, is_tls, .. } = self.url else {
            return Err(OpenError::BadUrl("a socket cannot be dialled; give an http:// or https:// address"));
        };
        let dialing = tokio::time::timeout(DIAL_TIMEOUT, self.dial.dial(&self.url.address())).await;
        let stream = dialing.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(OpenError::Unreachable)?;
        if !is_tls {
            return Ok(stream);
        }
        tls::client(stream, host, self.trust).await.map_err(|error| match error {
            TlsError::Io(error) => OpenError::Unreachable(error),
            TlsError::Untrusted(reason) => OpenError::Untrusted(reason),
        })
    }

    /// A WebSocket on a path of the server; without a token for a server that wants it elsewhere.
    pub(crate) async fn websocket(
        &self,
        path: &str,
        token: &str,
        headers: &[(&'static str, &str)],
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<BoxedStream>, OpenError> {
        let url = self.url.websocket(path).ok_or(OpenError::BadUrl("a socket has no paths"))?;
        let mut request =
            url.into_client_request().map_err(|_| OpenError::BadUrl("the host cannot be used"))?;
        if !token.is_empty() {
            let mut bearer =
                HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| OpenError::BadHeader)?;
            bearer.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|_| OpenError::BadHeader)?;
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        let stream = self.stream().await?;
        match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(WebSocketError::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                let code = serde_json::from_slice::<ErrorBody>(body).ok().and_then(|body| body.code);
                Err(OpenError::Status { status: response.status().as_u16(), code, body: readable(body) })
            }
            Err(error) => Err(match end_of_connection(error) {
                Ok(end) => OpenError::Unreachable(end),
                Err(other) => OpenError::Strange(other.to_string()),
            }),
        }
    }
}

/// The error as the end of the connection, if it is one: a server that is stopped or killed ends its connections
/// wherever they stand, which says nothing about what it is. Anything else is given back.
pub(crate) fn end_of_connection(error: WebSocketError) -> Result<io::Error, WebSocketError> {
    match error {
        WebSocketError::Io(error) => Ok(error),
        WebSocketError::ConnectionClosed
        | WebSocketError::AlreadyClosed
        | WebSocketError::Protocol(
            ProtocolError::HandshakeIncomplete | ProtocolError::ResetWithoutClosingHandshake,
        ) => Ok(io::Error::new(io::ErrorKind::UnexpectedEof, "the server ended the connection at once")),
        other => Err(other),
    }
}

/// An error page for a person: our hub sends `{"error":…}`, others send anything.
pub(crate) fn readable(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorPage {
        error: String,
    }
    let text = match serde_json::from_slice::<ErrorPage>(body) {
        Ok(page) => page.error,
        Err(_) => String::from_utf8_lossy(body).trim().to_owned(),
    };
    text.chars().take(BODY_CHARS_MAX).collect()
}
