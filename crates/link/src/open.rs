//! Opening a connection to a server: dial, TLS, WebSocket handshake. Who asks puts it into words for its caller.

use std::io;

use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Error as WebSocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::net::{BoxedIo, Dial};
use crate::tls::{self, TlsError, Trust};
use crate::url::ServerUrl;

/// As much of an error page as is worth showing.
const BODY_CHARS_MAX: usize = 500;

/// The way to a server.
#[derive(Clone, Copy)]
pub(crate) struct Route<'a> {
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
        body: String,
    },
    Strange(String),
}

impl Route<'_> {
    /// A stream to the server, encrypted where its address says so.
    pub(crate) async fn stream(&self) -> Result<BoxedIo, OpenError> {
        let ServerUrl::Network { host, is_tls, .. } = self.url else {
            return Err(OpenError::BadUrl("a socket cannot be dialled; give an http:// or https:// address"));
        };
        let stream = self.dial.dial(&self.url.address()).await.map_err(OpenError::Unreachable)?;
        if !is_tls {
            return Ok(stream);
        }
        tls::client(stream, host, self.trust).await.map_err(|error| match error {
            TlsError::Io(error) => OpenError::Unreachable(error),
            TlsError::Untrusted(reason) => OpenError::Untrusted(reason),
        })
    }

    /// A WebSocket on a path of the server.
    pub(crate) async fn websocket(
        &self,
        path: &str,
        token: &str,
        headers: &[(&'static str, &str)],
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<BoxedIo>, OpenError> {
        let url = self.url.websocket(path).ok_or(OpenError::BadUrl("a socket has no paths"))?;
        let mut request =
            url.into_client_request().map_err(|_| OpenError::BadUrl("the host cannot be used"))?;
        let mut bearer =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| OpenError::BadHeader)?;
        bearer.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, bearer);
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|_| OpenError::BadHeader)?;
            request.headers_mut().insert(HeaderName::from_static(name), value);
        }
        let stream = self.stream().await?;
        match tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(WebSocketError::Io(error)) => Err(OpenError::Unreachable(error)),
            Err(WebSocketError::Http(response)) => Err(OpenError::Status {
                status: response.status().as_u16(),
                body: readable(response.body().as_deref().unwrap_or_default()),
            }),
            Err(other) => Err(OpenError::Strange(other.to_string())),
        }
    }
}

/// An error page for a person: our hub sends `{"error":…}`, others send anything.
pub(crate) fn readable(body: &[u8]) -> String {
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
