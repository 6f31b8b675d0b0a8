//! The typed client of `/ws/mux`: commands with their answers, events in the order they came, and an
//! [`Attachment`] that survives reconnects. The command line, the tests and the benchmarks all use it.
//!
//! One connection is two tasks (reader, writer) around one queue of frames. A frame stays the text the server
//! sent until somebody asks for its meaning, so nothing is parsed twice.

mod attachment;
mod connect;
mod cursor;
mod frame;
mod local;
mod queue;
mod request;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use qd_wire::CommandResponse;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message as WebSocketMessage;

pub use crate::backoff::Backoff;
use crate::url::ServerUrl;
pub use attachment::{AttachError, AttachStart, Attachment, AttachmentUpdate};
pub use connect::{ConnectError, ConnectOptions, ServerInfo};
pub use cursor::{CursorVerdict, SessionCursor};
pub use frame::{Frame, FrameHead, FrameKind};
pub use queue::{FRAMES_BYTES_MAX, FRAMES_MAX, FrameQueue, OVERFLOW_BYTES_MAX};
pub use request::ClientRequest;

/// Commands that may wait to be written; a full queue makes the caller wait.
pub const OUTGOING_MAX: usize = 256;
/// Calls that may wait for their answers at one time.
pub const PENDING_MAX: usize = 65_536;

/// One connection to a hub. Clones share it; it closes when the last clone and the frame queue are gone.
#[derive(Clone)]
pub struct MuxClient {
    shared: Arc<Connection>,
}

struct Connection {
    outgoing: mpsc::Sender<WebSocketMessage>,
    queue: Arc<queue::SharedFrames>,
    next_id: AtomicU64,
    info: ServerInfo,
    tasks: tasks::ConnectionTasks,
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("the connection closed before the answer came: {0}")]
    Closed(String),
    #[error("{PENDING_MAX} calls already wait for answers on this connection; await some of them first")]
    TooManyPending,
    #[error("the command cannot be written as JSON: {0}")]
    Encode(#[source] serde_json::Error),
    #[error("the answer cannot be read: {0}")]
    Decode(#[source] serde_json::Error),
    /// The server answered `success: false`.
    #[error("{}", .0.error.as_deref().unwrap_or("the command failed without saying why"))]
    Refused(Box<CommandResponse>),
}

impl MuxClient {
    /// Connects to a hub (`http(s)://…` or `ws(s)://…`, with or without `/ws/mux`) and waits for its first frame, or
    /// to a runner's socket (`unix:/path`).
    pub async fn connect(url: &str, token: &str) -> Result<(MuxClient, FrameQueue), ConnectError> {
        Self::connect_with(&ConnectOptions::new(url, token)).await
    }

    /// As [`MuxClient::connect`], with every option.
    pub async fn connect_with(options: &ConnectOptions) -> Result<(MuxClient, FrameQueue), ConnectError> {
        let queue = queue::SharedFrames::new();
        let (outgoing, waiting) = mpsc::channel(OUTGOING_MAX);
        let (tasks, info) = match ServerUrl::parse(&options.url)? {
            ServerUrl::Unix(path) => {
                let link = local::open(&path, options).await?;
                (local::spawn(link, waiting, queue.clone()), local::server_info())
            }
            url @ ServerUrl::Network { .. } => {
                let (socket, info) = connect::open(&url, options).await?;
                (tasks::spawn(socket, waiting, queue.clone(), options.ping_interval), info)
            }
        };
        let connection =
            Connection { outgoing, queue: queue.clone(), next_id: AtomicU64::new(1), info, tasks };
        let client = MuxClient { shared: Arc::new(connection) };
        Ok((client.clone(), FrameQueue::new(queue, client)))
    }

    /// What the server said of itself.
    pub fn server(&self) -> &ServerInfo {
        &self.shared.info
    }

    /// Sends a command and waits for its answer, successful or not.
    pub async fn call(&self, request: &ClientRequest) -> Result<CommandResponse, CallError> {
        self.call_frame(request).await?.response().map_err(CallError::Decode)
    }

    /// Sends a command and reads `data` of its answer; an answer without success is an error.
    pub async fn query<T: DeserializeOwned>(&self, request: &ClientRequest) -> Result<T, CallError> {
        let response = self.call(request).await?;
        if !response.success {
            return Err(CallError::Refused(Box::new(response)));
        }
        serde_json::from_value(response.data.unwrap_or_default()).map_err(CallError::Decode)
    }

    /// Sends a command and waits for its answer as the text it came as.
    pub async fn call_frame(&self, request: &ClientRequest) -> Result<Frame, CallError> {
        let id = self.mint_id();
        let text = request.to_text(id).map_err(CallError::Encode)?;
        self.exchange(id, text).await
    }

    /// Sends any JSON object as a command; `channel` and `id` are filled in.
    pub async fn call_value(&self, mut command: serde_json::Value) -> Result<CommandResponse, CallError> {
        let id = self.mint_id();
        if let Some(object) = command.as_object_mut() {
            object.entry("channel").or_insert_with(|| "agent".into());
            object.insert("id".to_owned(), id.to_string().into());
        }
        self.exchange(id, command.to_string()).await?.response().map_err(CallError::Decode)
    }

    /// Sends a command whose answer arrives among the frames, in its place in the order of things.
    pub async fn post(&self, request: &ClientRequest) -> Result<u64, CallError> {
        let id = self.mint_id();
        self.send_text(request.to_text(id).map_err(CallError::Encode)?).await?;
        Ok(id)
    }

    /// Sends a text as it is; for tests that say nonsense.
    pub async fn send_text(&self, text: String) -> Result<(), CallError> {
        self.shared.outgoing.send(WebSocketMessage::text(text)).await.map_err(|_| self.closed())
    }

    fn mint_id(&self) -> u64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    async fn exchange(&self, id: u64, text: String) -> Result<Frame, CallError> {
        let (sender, receiver) = oneshot::channel();
        self.shared.queue.expect_answer(id, sender)?;
        // A caller that gives up must not leave its place taken.
        let _place = PendingAnswer { queue: &self.shared.queue, id };
        self.send_text(text).await?;
        receiver.await.map_err(|_| self.closed())
    }

    fn closed(&self) -> CallError {
        CallError::Closed(self.shared.queue.close_reason())
    }
}

struct PendingAnswer<'a> {
    queue: &'a queue::SharedFrames,
    id: u64,
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        self.queue.forget_answer(self.id);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}
