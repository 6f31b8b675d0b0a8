//! The two ends of a link, and a link inside one process: two bounded queues of blocks.
//!
//! Sockets feed the same queues, so whoever uses a link need not know whether its other end is in this process, on
//! this machine or elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

/// Blocks that may wait in one direction; a full queue makes the sender wait.
pub const BLOCKS_MAX: usize = 64;

/// One end of a link. A block is one or more whole lines, each ended by `\n`.
pub struct LinkEnd {
    pub sender: LinkSender,
    pub receiver: LinkReceiver,
}

/// The writing half; clones write to the same link.
#[derive(Clone)]
pub struct LinkSender {
    queue: mpsc::Sender<QueuedBlock>,
    compression: Arc<AtomicBool>,
    refusal: CloseReason,
}

/// The reading half.
pub struct LinkReceiver {
    queue: mpsc::Receiver<QueuedBlock>,
    reason: CloseReason,
}

/// The other end is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the link is closed")]
pub struct LinkClosed;

/// Why a block was not taken at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrySendError {
    /// No room; here is the block again.
    #[error("the link is full")]
    Full(Bytes),
    #[error("the link is closed")]
    Closed,
}

impl LinkSender {
    /// Sends one block, waiting while the link is full.
    pub async fn send(&self, block: Bytes) -> Result<(), LinkClosed> {
        self.queue.send(QueuedBlock::plain(block)).await.map_err(|_| LinkClosed)
    }

    /// Sends one block if there is room for it now.
    pub fn try_send(&self, block: Bytes) -> Result<(), TrySendError> {
        self.queue.try_send(QueuedBlock::plain(block)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(parcel) => TrySendError::Full(parcel.block),
            mpsc::error::TrySendError::Closed(_) => TrySendError::Closed,
        })
    }

    /// From now on long blocks may travel packed; both sides agreed on it. Without effect inside one process.
    pub fn set_compression(&self, is_on: bool) {
        self.compression.store(is_on, Ordering::Relaxed);
    }

    /// When the link is closed, the other end is told that it is refused, and why. Without effect inside one process,
    /// and on lines.
    pub fn refuse(&self, reason: &str) {
        self.refusal.set(reason.to_owned());
    }

    /// Whether the other end is gone.
    pub fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }

    /// Blocks the queue has room for now, of [`BLOCKS_MAX`].
    pub fn room(&self) -> usize {
        self.queue.capacity()
    }

    /// Waits until the other end is gone.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }
}

impl LinkReceiver {
    /// The next block; `None` when the other end is gone. Safe to drop and call again.
    pub async fn recv(&mut self) -> Option<Bytes> {
        self.queue.recv().await.map(|parcel| parcel.block)
    }

    /// The next block if one waits already.
    pub fn try_recv(&mut self) -> Option<Bytes> {
        self.queue.try_recv().ok().map(|parcel| parcel.block)
    }

    /// How many blocks wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Why the link ended, once [`LinkReceiver::recv`] has said `None`.
    pub fn close_reason(&self) -> String {
        self.reason.get().unwrap_or("the other end closed the link").to_owned()
    }
}

/// Two ends joined: what one sends the other receives.
pub fn pair() -> (LinkEnd, LinkEnd) {
    let (left_sender, right_receiver) = direction();
    let (right_sender, left_receiver) = direction();
    let end = |queue, receiver| LinkEnd {
        sender: LinkSender { queue, compression: Arc::default(), refusal: CloseReason::default() },
        receiver: LinkReceiver { queue: receiver, reason: CloseReason::default() },
    };
    (end(left_sender, left_receiver), end(right_sender, right_receiver))
}

fn direction() -> (mpsc::Sender<QueuedBlock>, mpsc::Receiver<QueuedBlock>) {
    mpsc::channel(BLOCKS_MAX)
}

/// A block in a queue, with the room it takes there where bytes are counted.
pub(crate) struct QueuedBlock {
    pub(crate) block: Bytes,
    #[allow(dead_code, reason = "the room is given back when the parcel is dropped")]
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

impl QueuedBlock {
    fn plain(block: Bytes) -> QueuedBlock {
        QueuedBlock { block, room: None }
    }
}

/// Why a link ended; the first reason stays.
#[derive(Clone, Default)]
pub(crate) struct CloseReason(Arc<OnceLock<String>>);

impl CloseReason {
    pub(crate) fn set(&self, reason: String) {
        // A later reason is a consequence of the first one.
        let _later = self.0.set(reason);
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The inner side of a link whose other end is elsewhere: what the tasks that carry it hold.
pub(crate) struct LinkCarrier {
    pub(crate) outgoing: mpsc::Receiver<QueuedBlock>,
    pub(crate) incoming: mpsc::Sender<QueuedBlock>,
    pub(crate) compression: Arc<AtomicBool>,
    pub(crate) reason: CloseReason,
    /// What this end has against the other one.
    pub(crate) refusal: CloseReason,
}

/// An end whose other end is elsewhere, and what the tasks in between hold.
pub(crate) fn carried() -> (LinkEnd, LinkCarrier) {
    let (to_carrier, outgoing) = direction();
    let (incoming, from_carrier) = direction();
    let (compression, reason) = (Arc::<AtomicBool>::default(), CloseReason::default());
    let refusal = CloseReason::default();
    let sender = LinkSender { queue: to_carrier, compression: compression.clone(), refusal: refusal.clone() };
    let receiver = LinkReceiver { queue: from_carrier, reason: reason.clone() };
    (LinkEnd { sender, receiver }, LinkCarrier { outgoing, incoming, compression, reason, refusal })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_link_gives_the_block_back_and_a_closed_one_says_so() {
        let (left, mut right) = pair();
        for _ in 0..BLOCKS_MAX {
            left.sender.try_send(Bytes::from_static(b"a\n")).unwrap();
        }
        let block = Bytes::from_static(b"b\n");
        assert_eq!(left.sender.try_send(block.clone()), Err(TrySendError::Full(block.clone())));
        assert_eq!(right.receiver.recv().await.as_deref(), Some(&b"a\n"[..]));
        assert_eq!(left.sender.try_send(block.clone()), Ok(()));
        drop(right);
        assert!(left.sender.is_closed());
        assert_eq!(left.sender.try_send(block.clone()), Err(TrySendError::Closed));
        assert_eq!(left.sender.send(block).await, Err(LinkClosed));
    }
}
