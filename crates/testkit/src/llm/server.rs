//! The server itself: accepts, records, answers.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use qd_link::mutex::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::answer_stream::{AnswerStream, OpenRequest};
use super::conversation::read_conversation;
use super::plan::{Failures, Reply, plan_reply};
use super::record::{Api, Ending, RecordedRequest};
use super::{anthropic, openai};

/// The longest request read; enough for several images.
const REQUEST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A server refuses further requests after this many: no test means to send more.
const REQUESTS_MAX: usize = 10_000;
/// How long [`LlmServer::wait_until`] waits: far longer than a healthy test needs, on a loaded machine too.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A scripted model on a loopback port of its own. It stops, with all its connections, when dropped.
pub struct LlmServer {
    address: SocketAddr,
    shared: Arc<SharedLlm>,
    accepting: AbortHandle,
}

/// A condition did not come true in time.
#[derive(Debug, thiserror::Error)]
#[error("the scripted model waited {WAIT_MAX:?} in vain; its requests: {requests:#?}")]
pub struct WaitError {
    /// Every request so far, one line each.
    pub requests: Vec<String>,
}

impl LlmServer {
    /// Binds a free loopback port and serves on the current tokio runtime.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedLlm { state: Mutex::default(), changes: watch::Sender::new(0) });
        let accepting = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Ok(Self { address, shared, accepting })
    }

    /// `http://127.0.0.1:PORT`, without the `/v1`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far, oldest first.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.state.lock().requests.clone()
    }

    /// Opens a gate of `@@hold`, for the answer that waits there and for all later ones.
    pub fn release(&self, gate: &str) {
        self.shared.state.lock().open_gates.insert(gate.to_owned());
        self.shared.announce();
    }

    /// Waits until the requests satisfy a condition, and returns them.
    pub async fn wait_until(
        &self,
        condition: impl Fn(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, WaitError> {
        let mut changes = self.shared.changes.subscribe();
        let satisfied = changes.wait_for(|_| condition(&self.shared.state.lock().requests));
        // The sender lives in `shared`, so the only way not to be satisfied is the time.
        let in_time = tokio::time::timeout(WAIT_MAX, satisfied).await.is_ok();
        if in_time { Ok(self.requests()) } else { Err(WaitError { requests: self.describe() }) }
    }

    fn describe(&self) -> Vec<String> {
        let line = |r: &RecordedRequest| format!("{:?} {} {:?}: {}", r.api, r.model(), r.ending, r.prompt());
        self.requests().iter().map(line).collect()
    }
}

impl Drop for LlmServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// What the connections and the owner of the server share.
pub(crate) struct SharedLlm {
    state: Mutex<LlmState>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct LlmState {
    requests: Vec<RecordedRequest>,
    failures: Failures,
    open_gates: HashSet<String>,
}

impl SharedLlm {
    fn announce(&self) {
        self.changes.send_modify(|version| *version += 1);
    }

    /// Notes the request and decides on it; none if there were too many.
    fn admit(&self, api: Api, body: Value) -> Option<(usize, Reply)> {
        let conversation = read_conversation(&body);
        let mut state = self.state.lock();
        let index = state.requests.len();
        if index >= REQUESTS_MAX {
            return None;
        }
        let reply = plan_reply(&conversation, &mut state.failures);
        state.requests.push(RecordedRequest { api, body, ending: Ending::Open });
        drop(state);
        self.announce();
        Some((index, reply))
    }

    pub(crate) fn finish(&self, index: usize, ending: Ending) {
        if let Some(request) = self.state.lock().requests.get_mut(index) {
            request.ending = ending;
        }
        self.announce();
    }

    pub(crate) async fn wait_gate(&self, gate: &str) {
        let mut changes = self.changes.subscribe();
        // An error means that the sender is gone, and it lives in `self`.
        let _ = changes.wait_for(|_| self.state.lock().open_gates.contains(gate)).await;
    }
}

/// Accepts until aborted; the set takes the connections with it.
async fn accept(listener: TcpListener, shared: Arc<SharedLlm>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // Nagle's algorithm would hold back small deltas until the last one is acknowledged.
                let Ok(stream) = accepted.and_then(|(stream, _)| stream.set_nodelay(true).map(|()| stream)) else {
                    // The client has gone before we got to it; it knows.
                    continue;
                };
                let shared = shared.clone();
                let service = service_fn(move |request| serve(request, shared.clone()));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(request: Request<Incoming>, shared: Arc<SharedLlm>) -> Result<Response<Body>, Infallible> {
    let api = match (request.method(), request.uri().path()) {
        (&Method::POST, "/v1/chat/completions") => Api::OpenAi,
        (&Method::POST, "/v1/messages") => Api::Anthropic,
        (method, path) => {
            return Ok(plain(
                StatusCode::NOT_FOUND,
                format!("the scripted model does not serve {method} {path}"),
            ));
        }
    };
    let bytes = match to_bytes(Body::new(request.into_body()), REQUEST_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return Ok(plain(StatusCode::BAD_REQUEST, error.to_string())),
    };
    let body: Value = match serde_json::from_slice(&bytes) {
        Ok(body) => body,
        Err(error) => return Ok(plain(StatusCode::BAD_REQUEST, error.to_string())),
    };
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    let Some((index, reply)) = shared.admit(api, body) else {
        return Ok(plain(StatusCode::TOO_MANY_REQUESTS, format!("more than {REQUESTS_MAX} requests")));
    };
    let open = OpenRequest { shared, index, ending: Ending::ClientGone };
    Ok(answer(api, &model, bytes.len() as u64 / 4, reply, open).await)
}

async fn answer(api: Api, model: &str, tokens: u64, reply: Reply, mut open: OpenRequest) -> Response<Body> {
    match reply {
        Reply::Hang => std::future::pending().await,
        Reply::Fail(failure) => {
            open.ending = Ending::Failed;
            let body = match api {
                Api::OpenAi => openai::error_body(&failure),
                Api::Anthropic => anthropic::error_body(&failure),
            };
            let mut response = plain(StatusCode::BAD_REQUEST, body.to_string());
            *response.status_mut() = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::BAD_REQUEST);
            response.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
            if let Some(seconds) = failure.retry_after {
                response.headers_mut().insert("retry-after", seconds.into());
            }
            response
        }
        Reply::Stream(plan) => {
            let (delay, drop_after) = (plan.delay, plan.drop_after);
            let request = open.index as u64 + 1;
            let frames = match api {
                Api::OpenAi => openai::frames(plan, request, model, tokens),
                Api::Anthropic => anthropic::frames(plan, request, model, tokens),
            };
            let body = Body::from_stream(AnswerStream::new(frames, delay, drop_after, open).into_stream());
            let mut response = Response::new(body);
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream"));
            response
        }
    }
}

fn plain(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
