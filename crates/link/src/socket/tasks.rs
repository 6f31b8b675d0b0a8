//! The life of a link over a socket: a task that reads and a task that writes.
//!
//! Reading waits for room in the link's queue, writing for room in the socket, and neither for the other: so two
//! ends that both send much cannot stand still. Each task ends the other when it ends. Where several things may
//! happen next the order is fixed, so that a simulated world runs the same way each time.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::SocketOptions;
use crate::memory::{CloseReason, LinkCarrier, LinkEnd, QueuedBlock, carried};

/// Bytes read from the socket that may wait for their reader. A longer block waits until it is alone.
const INCOMING_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a link that nobody reads any more may still write, and how long a goodbye may take.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// Where blocks come from.
pub(super) trait BlockSource: Send + 'static {
    /// The next block, never empty; an error says why there will be none. Safe to drop and call again.
    fn next(&mut self) -> impl Future<Output = Result<Bytes, String>> + Send;
}

/// Where blocks go. Each call makes progress within the link's stall timeout or fails.
pub(super) trait BlockSink: Send + 'static {
    /// Takes a block; it may stay in a buffer until the next `flush`.
    fn feed(&mut self, block: Bytes, may_pack: bool) -> impl Future<Output = Result<(), WriteError>> + Send;
    fn flush(&mut self) -> impl Future<Output = Result<(), WriteError>> + Send;
    /// Sends a sign of life.
    fn ping(&mut self) -> impl Future<Output = Result<(), WriteError>> + Send;
    /// Flushes and says goodbye.
    fn close(&mut self, goodbye: CloseMessage<'_>) -> impl Future<Output = Result<(), WriteError>> + Send;
}

/// What the other end is told at last.
pub(super) enum CloseMessage<'a> {
    Plain,
    /// The link is over, for this reason.
    Over(&'a str),
    /// This end will have nothing of the other one, for this reason.
    Refused(&'a str),
}

/// Why writing ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteError {
    /// The peer takes nothing any more, or the block cannot be sent: the link is over.
    Fatal(String),
    /// The socket failed; what came in before can still be read, and reading may say better why.
    Broken(String),
}

pub(super) fn spawn(source: impl BlockSource, sink: impl BlockSink, options: &SocketOptions) -> LinkEnd {
    let (end, carrier) = carried();
    let life = LinkLife { over: CancellationToken::new(), unread: CancellationToken::new() };
    let LinkCarrier { outgoing, incoming, compression, reason, refusal } = carrier;
    let mut pings = tokio::time::interval(options.ping_interval);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings.reset();
    let room = Arc::new(Semaphore::new(INCOMING_BYTES_MAX));
    let reader = BlockReader { source, incoming, room, reason: reason.clone(), life: life.clone() };
    let may_pack = move || compression.load(Ordering::Relaxed);
    let silence_max = options.silence_max;
    let writer = BlockWriter { sink, outgoing, pings, may_pack, silence_max, reason, refusal, life };
    tokio::spawn(reader.run());
    tokio::spawn(writer.run());
    end
}

/// What the two tasks tell each other.
#[derive(Clone)]
struct LinkLife {
    /// The link is over; its reason is set.
    over: CancellationToken,
    /// Nobody takes what is read.
    unread: CancellationToken,
}

struct BlockReader<S> {
    source: S,
    incoming: mpsc::Sender<QueuedBlock>,
    room: Arc<Semaphore>,
    reason: CloseReason,
    life: LinkLife,
}

impl<S: BlockSource> BlockReader<S> {
    async fn run(mut self) {
        let listener = self.incoming.clone();
        let ending = tokio::select! {
            biased;
            () = self.life.over.cancelled() => None,
            ending = deliver(&mut self.source, &self.incoming, &self.room) => ending,
            () = listener.closed() => None,
        };
        if let Some(reason) = ending {
            self.reason.set(reason);
        } else if !self.life.over.is_cancelled() {
            // The receiver is dropped. Reading on keeps the connection in order until the goodbye is said: unread
            // bytes would make the system throw away what we have just written.
            self.life.unread.cancel();
            tokio::select! {
                biased;
                () = self.life.over.cancelled() => {}
                () = discard(&mut self.source) => {}
            }
            self.reason.set("this end stopped listening".to_owned());
        }
        self.life.over.cancel();
    }
}

/// Hands blocks to the queue; returns why there are no more, or `None` when nobody takes them.
async fn deliver(
    source: &mut impl BlockSource,
    incoming: &mpsc::Sender<QueuedBlock>,
    room: &Arc<Semaphore>,
) -> Option<String> {
    loop {
        let block = match source.next().await {
            Ok(block) => block,
            Err(reason) => return Some(reason),
        };
        let bytes = u32::try_from(block.len().min(INCOMING_BYTES_MAX)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let taken = room.clone().acquire_many_owned(bytes).await.ok();
        if incoming.send(QueuedBlock { block, room: taken }).await.is_err() {
            return None;
        }
    }
}

async fn discard(source: &mut impl BlockSource) {
    while source.next().await.is_ok() {}
}

struct BlockWriter<S, P> {
    sink: S,
    outgoing: mpsc::Receiver<QueuedBlock>,
    pings: Interval,
    may_pack: P,
    silence_max: Duration,
    reason: CloseReason,
    refusal: CloseReason,
    life: LinkLife,
}

impl<S: BlockSink, P: Fn() -> bool + Send + 'static> BlockWriter<S, P> {
    async fn run(mut self) {
        let over = self.life.over.clone();
        let written = tokio::select! {
            biased;
            () = over.cancelled() => None,
            written = self.write_all() => Some(written),
        };
        // From here on senders learn that the link is closed.
        self.outgoing.close();
        while self.outgoing.try_recv().is_ok() {}
        match written {
            None => self.say_goodbye().await,
            Some(Ok(())) => {
                // The goodbye is said; the other end answers it by closing.
                let limit = if self.life.unread.is_cancelled() { GOODBYE_MAX } else { self.silence_max };
                self.wait_for_the_reader(limit, "the other end did not answer the goodbye").await;
            }
            Some(Err(WriteError::Broken(reason))) => self.wait_for_the_reader(GOODBYE_MAX, &reason).await,
            Some(Err(WriteError::Fatal(reason))) => {
                self.reason.set(reason);
                self.life.over.cancel();
                self.say_goodbye().await;
            }
        }
    }

    /// Writes until all senders are dropped, or some time after the receiver is dropped, and says goodbye.
    async fn write_all(&mut self) -> Result<(), WriteError> {
        let unread = self.life.unread.clone();
        tokio::select! {
            biased;
            written = self.write_blocks() => written?,
            () = unread_for(&unread, GOODBYE_MAX) => {}
        }
        let goodbye = self.refusal.get().map_or(CloseMessage::Plain, CloseMessage::Refused);
        self.sink.close(goodbye).await
    }

    async fn write_blocks(&mut self) -> Result<(), WriteError> {
        loop {
            tokio::select! {
                biased;
                _ = self.pings.tick() => self.sink.ping().await?,
                parcel = self.outgoing.recv() => match parcel {
                    Some(parcel) => self.write_waiting(parcel.block).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Writes a block and all that wait behind it with one flush.
    async fn write_waiting(&mut self, first: Bytes) -> Result<(), WriteError> {
        self.sink.feed(first, (self.may_pack)()).await?;
        while let Ok(next) = self.outgoing.try_recv() {
            self.sink.feed(next.block, (self.may_pack)()).await?;
        }
        self.sink.flush().await
    }

    async fn wait_for_the_reader(&mut self, limit: Duration, reason: &str) {
        if tokio::time::timeout(limit, self.life.over.cancelled()).await.is_err() {
            self.reason.set(reason.to_owned());
            self.life.over.cancel();
        }
    }

    /// The link is over; a peer that can still hear is told why.
    async fn say_goodbye(&mut self) {
        let reason = self.reason.get().map(str::to_owned);
        // A peer that cannot hear finds out by itself.
        let goodbye = reason.as_deref().map_or(CloseMessage::Plain, CloseMessage::Over);
        let _unheard = tokio::time::timeout(GOODBYE_MAX, self.sink.close(goodbye)).await;
    }
}

async fn unread_for(unread: &CancellationToken, duration: Duration) {
    unread.cancelled().await;
    tokio::time::sleep(duration).await;
}
