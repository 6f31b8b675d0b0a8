//! A link inside one process: two bounded queues of blocks.

use bytes::Bytes;
use tokio::sync::mpsc;

/// Blocks that may wait in one direction; a full queue makes the sender wait.
pub const BLOCKS_MAX: usize = 64;

/// One end of a link. A block is one or more whole lines, each ended by `\n`.
pub struct LinkEnd {
    pub sender: LinkSender,
    pub receiver: LinkReceiver,
}

/// The writing half; clones write to the same link.
#[derive(Clone)]
pub struct LinkSender(mpsc::Sender<Bytes>);

/// The reading half.
pub struct LinkReceiver(mpsc::Receiver<Bytes>);

/// The other end is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link is closed")]
pub struct LinkClosed;

impl LinkSender {
    /// Sends one block, waiting while the link is full.
    pub async fn send(&self, block: Bytes) -> Result<(), LinkClosed> {
        self.0.send(block).await.map_err(|_| LinkClosed)
    }
}

impl LinkReceiver {
    /// The next block; `None` when the other end is gone.
    pub async fn recv(&mut self) -> Option<Bytes> {
        self.0.recv().await
    }

    /// The next block if one waits already.
    pub fn try_recv(&mut self) -> Option<Bytes> {
        self.0.try_recv().ok()
    }
}

/// Two ends joined: what one sends the other receives.
pub fn pair() -> (LinkEnd, LinkEnd) {
    let (left_sender, right_receiver) = mpsc::channel(BLOCKS_MAX);
    let (right_sender, left_receiver) = mpsc::channel(BLOCKS_MAX);
    (
        LinkEnd { sender: LinkSender(left_sender), receiver: LinkReceiver(left_receiver) },
        LinkEnd { sender: LinkSender(right_sender), receiver: LinkReceiver(right_receiver) },
    )
}
