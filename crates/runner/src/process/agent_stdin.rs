//! The way to an agent's stdin: a queue with two bounds, and one task that writes.

use std::sync::Arc;

use bytes::Bytes;
use qd_link::mutex::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// How many messages wait at most.
pub const STDIN_QUEUE_MAX: usize = 64;
/// How many bytes wait at most; a single larger message goes alone.
pub const STDIN_QUEUE_BYTES_MAX: u32 = 64 * 1024 * 1024;

/// Why a message was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StdinError {
    #[error("the agent's stdin is closed; restart the session")]
    Closed,
    #[error("the agent has stopped reading its stdin and the queue is full; wait or restart the session")]
    Full,
}

/// Sends whole messages to the agent, in order. Clones share one queue.
#[derive(Debug, Clone)]
pub struct AgentStdin {
    /// None once closed.
    queue: Arc<Mutex<Option<mpsc::Sender<QueuedMessage>>>>,
    bytes: Arc<Semaphore>,
}

#[derive(Debug)]
struct QueuedMessage {
    bytes: Bytes,
    /// Held until the message is written.
    _room: OwnedSemaphorePermit,
}

impl AgentStdin {
    pub(super) fn start(stdin: ChildStdin) -> Self {
        let (sender, receiver) = mpsc::channel(STDIN_QUEUE_MAX);
        tokio::spawn(write_all(stdin, receiver));
        let bytes = Arc::new(Semaphore::new(STDIN_QUEUE_BYTES_MAX as usize));
        Self { queue: Arc::new(Mutex::new(Some(sender))), bytes }
    }

    /// Queues a message, which includes its `\n`; waits while the queue is full.
    pub async fn send(&self, bytes: Bytes) -> Result<(), StdinError> {
        let queue = self.queue.lock().clone().ok_or(StdinError::Closed)?;
        let room = tokio::select! {
            room = Arc::clone(&self.bytes).acquire_many_owned(weight(&bytes)) => room,
            () = queue.closed() => return Err(StdinError::Closed),
        };
        let message = QueuedMessage { bytes, _room: room.map_err(|_| StdinError::Closed)? };
        queue.send(message).await.map_err(|_| StdinError::Closed)
    }

    /// Queues a message if there is room now.
    pub fn try_send(&self, bytes: Bytes) -> Result<(), StdinError> {
        let queue = self.queue.lock().clone().ok_or(StdinError::Closed)?;
        if queue.is_closed() {
            return Err(StdinError::Closed);
        }
        let room =
            Arc::clone(&self.bytes).try_acquire_many_owned(weight(&bytes)).map_err(|_| StdinError::Full)?;
        queue.try_send(QueuedMessage { bytes, _room: room }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => StdinError::Full,
            mpsc::error::TrySendError::Closed(_) => StdinError::Closed,
        })
    }

    /// Ends the agent's input after what is queued; most agents then exit by themselves.
    pub fn close(&self) {
        self.queue.lock().take();
    }
}

fn weight(bytes: &Bytes) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).min(STDIN_QUEUE_BYTES_MAX)
}

/// Ends when the queue is closed, or the agent has closed its end.
async fn write_all(mut stdin: ChildStdin, mut queue: mpsc::Receiver<QueuedMessage>) {
    while let Some(message) = queue.recv().await {
        if let Err(error) = stdin.write_all(&message.bytes).await {
            // Senders see the closed queue; how the agent ended is told by its exit.
            tracing::debug!(%error, "the agent's stdin is gone");
            return;
        }
    }
}
