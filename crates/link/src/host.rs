//! How our runner reaches a server that others wrote for the run document: as a host of it.

use std::sync::Arc;
use std::time::Duration;

use crate::memory::LinkEnd;
use crate::net::{Dial, TcpDial};
use crate::open::{OpenError, ServerRoute};
use crate::runner::ConnectFailure;
use crate::socket::{SocketOptions, over_websocket};
use crate::tls::Trust;
use crate::url::ServerUrl;

/// Where hosts connect.
pub const HOST_PATH: &str = "/ws/host";
/// How long an attempt may take, TLS and handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Dials a server's `/ws/host`. Each message is a block of its own, either way.
#[derive(Clone)]
pub struct HostDialer {
    pub url: ServerUrl,
    pub host_id: String,
    pub host_token: String,
    pub trust: Trust,
    /// Whether the token may travel unencrypted to another machine.
    pub allow_plain: bool,
    pub dial: Arc<dyn Dial>,
    pub options: SocketOptions,
}

impl HostDialer {
    /// The usual way to a server: TCP, certificates checked by the system, nothing unencrypted leaves the machine.
    pub fn new(url: ServerUrl, host_id: impl Into<String>, host_token: impl Into<String>) -> HostDialer {
        HostDialer {
            url,
            host_id: host_id.into(),
            host_token: host_token.into(),
            trust: Trust::System,
            allow_plain: false,
            dial: Arc::new(TcpDial),
            options: SocketOptions { takes_packed: false, ..SocketOptions::default() },
        }
    }

    /// One attempt.
    pub async fn connect(&self) -> Result<LinkEnd, ConnectFailure> {
        if !self.url.is_tls() && !self.url.is_loopback() && !self.allow_plain {
            let reason = format!(
                "{} is on another machine and unencrypted; use https://, or allow plain connections (--allow-plain)",
                self.url
            );
            return Err(ConnectFailure { reason, is_refusal: true, code: None });
        }
        let route = ServerRoute { url: &self.url, trust: &self.trust, dial: &*self.dial };
        // The document wants both in the query.
        let path = format!(
            "{HOST_PATH}?host_id={}&host_token={}",
            encoded(&self.host_id),
            encoded(&self.host_token)
        );
        let opening = route.websocket(&path, "", &[], self.options.websocket_config());
        match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
            Ok(Ok(socket)) => Ok(over_websocket(socket, &self.options)),
            Ok(Err(error)) => Err(explain(&self.url, error)),
            Err(_) => Err(ConnectFailure {
                reason: format!("the server at {} did not answer within {CONNECT_TIMEOUT:?}", self.url),
                is_refusal: false,
                code: None,
            }),
        }
    }
}

/// A value of a query.
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if is_plain(byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// Why there is no link; the address with the token in it is never part of it.
fn explain(url: &ServerUrl, error: OpenError) -> ConnectFailure {
    let (reason, is_refusal) = match error {
        OpenError::Status { status: status @ (400 | 401 | 403 | 404 | 409), body, .. } => {
            (format!("the server at {url} refused this host (HTTP {status}): {body}"), true)
        }
        OpenError::BadUrl(reason) => (format!("{url}: {reason}"), true),
        OpenError::BadHeader => {
            ("the host's id or token has characters that cannot be sent".to_owned(), true)
        }
        OpenError::Untrusted(reason) => (format!("the server at {url} cannot be trusted: {reason}"), true),
        OpenError::Unreachable(source) => (format!("no server answers at {url}: {source}"), false),
        OpenError::Status { status, body, .. } => {
            (format!("{url} does not take hosts, or is not ready (HTTP {status}): {body}"), false)
        }
        OpenError::Strange(reason) => (format!("{url} does not take hosts: {reason}"), false),
    };
    ConnectFailure { reason, is_refusal, code: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_any_characters_fits_into_a_query() {
        assert_eq!(encoded("aZ-9_~. +&é"), "aZ-9_~.%20%2B%26%C3%A9");
    }

    #[tokio::test]
    async fn a_token_does_not_leave_the_machine_unencrypted() {
        let dialer = HostDialer::new(ServerUrl::parse("http://10.0.0.1").unwrap(), "h", "secret");
        let failure = dialer.connect().await.err().unwrap();
        assert!(failure.is_refusal && !failure.reason.contains("secret"), "{failure}");
    }
}
