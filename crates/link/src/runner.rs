//! How a runner reaches its hub.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use qd_wire::ErrorCode;

use crate::memory::LinkEnd;
use crate::net::{Dial, TcpDial};
use crate::open::{OpenError, ServerRoute};
use crate::socket::{SocketOptions, over_websocket};
use crate::tls::Trust;
use crate::url::ServerUrl;

/// The header that names the runner whose key is shown.
pub const RUNNER_HEADER: &str = "x-qd-runner";
/// Where runners connect.
pub const RUNNER_PATH: &str = "/ws/runner";
/// How long an attempt may take, TLS and handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What [`HubConnector::connect`] returns.
pub type ConnectFuture = Pin<Box<dyn Future<Output = Result<LinkEnd, ConnectFailure>> + Send>>;

/// Opens a link to the hub; asked again whenever the link is lost.
pub trait HubConnector: Send + Sync {
    fn connect(&self) -> ConnectFuture;
}

/// Why there is no link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct ConnectFailure {
    pub reason: String,
    /// The hub was reached and said no, or the settings forbid the attempt: trying at once again is no use.
    pub is_refusal: bool,
    /// What the hub said with its no; absent from hubs older than the codes.
    pub code: Option<ErrorCode>,
}

/// The keys to try, the one in use first; asked at each attempt.
pub type RunnerKeys = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Dials a hub's `/ws/runner`.
#[derive(Clone)]
pub struct RunnerDialer {
    pub url: ServerUrl,
    pub runner_id: String,
    pub keys: RunnerKeys,
    pub trust: Trust,
    /// Whether the key may travel unencrypted to another machine.
    pub allow_plain: bool,
    pub dial: Arc<dyn Dial>,
    pub options: SocketOptions,
}

impl RunnerDialer {
    /// The usual way to a hub: TCP, certificates checked by the system, nothing unencrypted leaves the machine.
    pub fn new(url: ServerUrl, runner_id: impl Into<String>, keys: RunnerKeys) -> RunnerDialer {
        RunnerDialer {
            url,
            runner_id: runner_id.into(),
            keys,
            trust: Trust::System,
            allow_plain: false,
            dial: Arc::new(TcpDial),
            options: SocketOptions::default(),
        }
    }
}

impl HubConnector for RunnerDialer {
    fn connect(&self) -> ConnectFuture {
        let dialer = self.clone();
        Box::pin(async move { dialer.attempt().await })
    }
}

impl RunnerDialer {
    async fn attempt(&self) -> Result<LinkEnd, ConnectFailure> {
        if !self.url.is_tls() && !self.url.is_loopback() && !self.allow_plain {
            return Err(refusal(format!(
                "{} is on another machine and unencrypted; use https://, or allow plain connections in the settings",
                self.url
            )));
        }
        let mut last_refusal =
            refusal("this runner has no key; join the hub first: qd runner join".to_owned());
        for key in (self.keys)() {
            match self.open(&key).await {
                Ok(link) => return Ok(link),
                Err(OpenFailure::KeyRefused(failure)) => last_refusal = failure,
                Err(OpenFailure::Other(failure)) => return Err(failure),
            }
        }
        Err(last_refusal)
    }

    async fn open(&self, key: &str) -> Result<LinkEnd, OpenFailure> {
        let route = ServerRoute { url: &self.url, trust: &self.trust, dial: &*self.dial };
        let headers = [(RUNNER_HEADER, self.runner_id.as_str())];
        let opening = route.websocket(RUNNER_PATH, key, &headers, self.options.websocket_config());
        match tokio::time::timeout(CONNECT_TIMEOUT, opening).await {
            Ok(Ok(socket)) => Ok(over_websocket(socket, &self.options)),
            Ok(Err(error)) => Err(explain(&self.url, error)),
            Err(_) => Err(OpenFailure::Other(ConnectFailure {
                reason: format!("the hub at {} did not answer within {CONNECT_TIMEOUT:?}", self.url),
                is_refusal: false,
                code: None,
            })),
        }
    }
}

enum OpenFailure {
    /// Another key may be the right one.
    KeyRefused(ConnectFailure),
    Other(ConnectFailure),
}

fn refusal(reason: String) -> ConnectFailure {
    ConnectFailure { reason, is_refusal: true, code: None }
}

fn explain(url: &ServerUrl, error: OpenError) -> OpenFailure {
    let (reason, is_refusal) = match error {
        OpenError::Status { status: status @ (401 | 403), code, body } => {
            let reason = format!("the hub at {url} refused this runner (HTTP {status}): {body}");
            return OpenFailure::KeyRefused(ConnectFailure { code, ..refusal(reason) });
        }
        OpenError::BadUrl(reason) => (format!("{url}: {reason}"), true),
        OpenError::BadHeader => {
            ("the key or the runner's id has characters that cannot be sent".to_owned(), true)
        }
        OpenError::Untrusted(reason) => (format!("the hub at {url} cannot be trusted: {reason}"), true),
        OpenError::Unreachable(source) => (format!("no server answers at {url}: {source}"), false),
        // A proxy in front of a hub that restarts says things like this; the hub itself never does.
        OpenError::Status { status, body, .. } => {
            (format!("{url} is not a hub, or not ready (HTTP {status}): {body}"), false)
        }
        OpenError::Strange(reason) => (format!("{url} is not a hub: {reason}"), false),
    };
    OpenFailure::Other(ConnectFailure { reason, is_refusal, code: None })
}

#[cfg(test)]
mod tests;
