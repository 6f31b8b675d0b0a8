//! The live events of one session, in the forms in which clients want them, kept as long as a subscriber has yet to
//! take them and never beyond a bound.
//!
//! When the bound is reached the publisher waits a moment for subscribers that keep up in general; one that does
//! not even then, or has fallen behind not long ago, loses its place and is told so. Nobody waits for it long.
//!
//! A chunk is shared and never copied for a subscriber; what differs between them is only their place. `waiting` of a
//! chunk counts who has yet to take it, and a chunk goes when that is zero.

mod coalesce;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use qd_link::mutex::Mutex;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, timeout_at};

use crate::connection::{ClientSendQueue, Mailbox};
use crate::runners::stall_timeout::StallTimeout;

/// What a chunk costs beside its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 64;
/// An empty ring keeps room for no more chunks than this.
const IDLE_CAPACITY_MAX: usize = 8;

/// Who is further behind than this gets the shortest stream that says the same.
const BEHIND_BYTES: u64 = 64 << 10;
/// Bytes brought into that form in one go, so that a connection never holds much more than it does otherwise.
const COALESCE_BYTES_MAX: usize = 256 << 10;
/// Pieces in that form that a ring keeps for others who are behind at the same place.
const SHORTENED_MAX: usize = 4;

/// How old the oldest chunk of a full ring may get before those who have not taken it are left behind: when
/// most have taken it, and when most have not.
const WAIT_FOR_SLOW: Duration = Duration::from_millis(250);
const WAIT_FOR_ALL: Duration = Duration::from_millis(500);

/// Chunks of whole WebSocket frames in order, shared by all subscribers.
pub(crate) struct Ring {
    state: Mutex<RingState>,
    bytes_max: usize,
    /// A chunk has gone while someone waited for room.
    room: Notify,
}

struct RingState {
    chunks: VecDeque<RingChunk>,
    /// The number of the first chunk in `chunks`; numbers never repeat.
    first: u64,
    bytes: usize,
    /// Bytes of all chunks there ever were.
    published_bytes: u64,
    /// The last record published.
    seq: u64,
    /// A subscription's key is its place here; places of those who left are used again.
    subscribers: Vec<Option<Subscriber>>,
    live: usize,
    /// Subscribers that watch a terminal and keep up.
    terminals: usize,
    is_awaited: bool,
    /// Stretches of chunks that were brought into their shortest form: who is behind is seldom alone.
    shortened: VecDeque<ShortenedChunks>,
}

/// Chunks `from` up to, not including, `to` in their shortest form.
#[derive(Clone)]
struct ShortenedChunks {
    from: u64,
    to: u64,
    bytes: Bytes,
}

struct RingChunk {
    bytes: Bytes,
    /// What it is on a screen; only there while somebody watches one.
    terminal: Option<TerminalChunk>,
    /// What it counts for.
    cost: usize,
    /// Bytes of all chunks before it.
    begins_at: u64,
    published_at: Instant,
    /// The last record up to the end of this chunk.
    seq: u64,
    /// Subscribers that have yet to take it.
    waiting: usize,
}

/// The form in which a subscriber takes the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubscriberView {
    /// Events as they came: frames of the `agent` channel.
    Agent,
    /// Frames of the `terminal` channel. Records up to this one are on the screen that its client has.
    Terminal { seen: u64 },
}

/// A chunk as frames of the `terminal` channel, made once for all who watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TerminalChunk {
    pub(crate) frames: Bytes,
    /// The terminal ends here.
    pub(crate) is_end: bool,
}

struct Subscriber {
    view: SubscriberView,
    /// The chunk to take next.
    next: u64,
    lagged: bool,
    signal: Arc<RingSignal>,
}

/// Tells a connection that one of its subscriptions has something.
struct RingSignal {
    ready: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl RingSignal {
    fn raise(&self) {
        self.ready.store(true, Ordering::Release);
        self.mailbox.wake();
    }
}

/// Chunks from number `from` on that somebody who is behind takes, to be shortened when the ring is not locked.
struct ChunksBehind {
    from: u64,
    chunks: Vec<Bytes>,
}

/// One reader's place in a ring; dropping it gives the place up.
pub(crate) struct Subscription {
    ring: Arc<Ring>,
    key: usize,
    signal: Arc<RingSignal>,
    /// The last record taken.
    pub(crate) seq: u64,
}

/// What a subscriber found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenEvents {
    /// Everything there was.
    All,
    /// The receiver is full; there is more.
    Some,
    /// Events were dropped before they could be taken.
    Lagged,
    /// The terminal has ended, and nothing more is to be taken.
    Ended,
}

impl Ring {
    /// A ring whose last record, published before its time, is `seq`.
    pub(crate) fn new(bytes_max: usize, seq: u64) -> Self {
        let state = RingState {
            chunks: VecDeque::new(),
            first: 0,
            bytes: 0,
            published_bytes: 0,
            seq,
            subscribers: Vec::new(),
            live: 0,
            terminals: 0,
            is_awaited: false,
            shortened: VecDeque::new(),
        };
        Self { state: Mutex::new(state), bytes_max, room: Notify::new() }
    }

    /// Waits, but not long and not beyond the link's stall timeout, until there is room for a chunk of `bytes`.
    pub(crate) async fn make_room(&self, bytes: usize, stall_timeout: &StallTimeout) {
        let Some(mut deadline) = self.wait_until(bytes, stall_timeout) else { return };
        let began = Instant::now();
        while timeout_at(deadline, self.room.notified()).await.is_ok() {
            match self.wait_until(bytes, stall_timeout) {
                Some(later) => deadline = later,
                None => break,
            }
        }
        self.state.lock().is_awaited = false;
        stall_timeout.spend(began.elapsed());
    }

    /// How long those who keep the ring full may be waited for; `None` if there is room, or nobody is worth it.
    fn wait_until(&self, bytes: usize, link: &StallTimeout) -> Option<Instant> {
        let mut state = self.state.lock();
        state.is_awaited = false;
        let has_room = |state: &RingState| state.chunks.is_empty() || state.bytes + bytes <= self.bytes_max;
        if has_room(&state) {
            return None;
        }
        // Only those at the oldest chunk keep the ring full, and of them those who were slow before go first.
        state.leave_behind(|signal| signal.mailbox.has_lagged_lately());
        let front = state.chunks.front().filter(|_| !has_room(&state))?;
        let (published_at, first) = (front.published_at, state.first);
        let now = Instant::now();
        let blockers = state.subscribers.iter().flatten().filter(|it| !it.lagged && it.next <= first).count();
        // Where most keep up, the rest is slow; where most do not, the publisher is too fast for anyone.
        let is_slow = blockers * 2 <= state.live;
        let stall_timeout = if is_slow { WAIT_FOR_SLOW } else { WAIT_FOR_ALL };
        let deadline = (published_at + stall_timeout).min(now + link.left(now));
        state.is_awaited = deadline > now;
        state.is_awaited.then_some(deadline)
    }

    /// Gives a chunk to every subscriber. `seq` is the last record in it, if it has one.
    pub(crate) fn publish(&self, bytes: Bytes, seq: Option<u64>) {
        self.publish_with(bytes, seq, TerminalChunk::default);
    }

    /// The same for a chunk that may have something for screens; `terminal` is called if somebody watches one.
    pub(crate) fn publish_with(
        &self,
        bytes: Bytes,
        seq: Option<u64>,
        terminal: impl FnOnce() -> TerminalChunk,
    ) {
        let mut state = self.state.lock();
        if let Some(seq) = seq {
            state.seq = state.seq.max(seq);
        }
        let waiting = state.live;
        // Nobody follows, which is the usual case of a session: nothing is kept.
        if waiting == 0 {
            return;
        }
        let terminal = (state.terminals > 0).then(terminal);
        let terminal_bytes = terminal.as_ref().map_or(0, |terminal| terminal.frames.len());
        let cost = bytes.len() + terminal_bytes + CHUNK_OVERHEAD_BYTES;
        state.bytes += cost;
        let (seq, begins_at) = (state.seq, state.published_bytes);
        state.published_bytes += bytes.len() as u64;
        let published_at = Instant::now();
        state.chunks.push_back(RingChunk { bytes, terminal, cost, begins_at, published_at, seq, waiting });
        // One chunk always stays, however large: whoever keeps up must be able to take it.
        while state.bytes > self.bytes_max && state.chunks.len() > 1 {
            state.leave_behind(|_| true);
        }
        for subscriber in state.subscribers.iter().flatten().filter(|subscriber| !subscriber.lagged) {
            subscriber.signal.raise();
        }
    }

    /// A place after everything published so far, for one who has it or reads it from the store.
    pub(crate) fn subscribe(self: &Arc<Self>, mailbox: Arc<Mailbox>) -> Subscription {
        self.subscribe_as(SubscriberView::Agent, mailbox)
    }

    /// The same for another form than that of the `agent` channel.
    pub(crate) fn subscribe_as(
        self: &Arc<Self>,
        view: SubscriberView,
        mailbox: Arc<Mailbox>,
    ) -> Subscription {
        let mut state = self.state.lock();
        state.terminals += usize::from(view != SubscriberView::Agent);
        let seq = state.seq;
        let signal = Arc::new(RingSignal { ready: AtomicBool::new(false), mailbox });
        let next = state.first + state.chunks.len() as u64;
        let subscriber = Some(Subscriber { view, next, lagged: false, signal: Arc::clone(&signal) });
        state.live += 1;
        let key = state.subscribers.iter().position(Option::is_none).unwrap_or(state.subscribers.len());
        match state.subscribers.get_mut(key) {
            Some(place) => *place = subscriber,
            None => state.subscribers.push(subscriber),
        }
        Subscription { ring: Arc::clone(self), key, signal, seq }
    }

    /// The last record published.
    pub(crate) fn seq(&self) -> u64 {
        self.state.lock().seq
    }

    /// Makes every subscriber look, though there may be nothing new.
    pub(crate) fn wake_all(&self) {
        self.state.lock().subscribers.iter().flatten().for_each(|subscriber| subscriber.signal.raise());
    }

    pub(crate) fn subscriber_count(&self) -> usize {
        self.state.lock().subscribers.iter().flatten().count()
    }

    /// Bytes held for subscribers.
    #[cfg(test)]
    pub(crate) fn held_bytes(&self) -> usize {
        self.state.lock().bytes
    }
}

impl RingState {
    /// Takes the place of subscribers that have not taken the oldest chunk, if `who` says so. They are told, and
    /// hold nothing from then on.
    fn leave_behind(&mut self, who: impl Fn(&RingSignal) -> bool) {
        let first = self.first;
        for index in 0..self.subscribers.len() {
            let Some(subscriber) = &mut self.subscribers[index] else { continue };
            if !subscriber.lagged && subscriber.next <= first && who(&subscriber.signal) {
                subscriber.lagged = true;
                subscriber.signal.mailbox.note_lag();
                subscriber.signal.raise();
                self.terminals -= usize::from(subscriber.view != SubscriberView::Agent);
                let next = subscriber.next;
                self.release(next);
            }
        }
        self.drop_taken();
    }

    /// Nobody waits any more, as this subscriber, for chunks from `next` on.
    fn release(&mut self, next: u64) {
        self.live -= 1;
        let skip = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        for chunk in self.chunks.iter_mut().skip(skip) {
            chunk.waiting -= 1;
        }
    }

    fn drop_taken(&mut self) {
        while self.chunks.front().is_some_and(|chunk| chunk.waiting == 0) {
            if let Some(chunk) = self.chunks.pop_front() {
                self.bytes -= chunk.cost;
                self.first += 1;
            }
        }
        let first = self.first;
        self.shortened.retain(|shortened| shortened.from >= first);
        if self.chunks.is_empty() {
            self.chunks.shrink_to(IDLE_CAPACITY_MAX);
        }
    }

    /// Keeps a shortened stretch for others at its beginning, while there are any.
    fn keep_shortened(&mut self, shortened: ShortenedChunks) {
        let is_kept = |kept: &ShortenedChunks| kept.from == shortened.from && kept.to >= shortened.to;
        if shortened.from < self.first || self.shortened.iter().any(is_kept) {
            return;
        }
        self.shortened.retain(|kept| kept.from != shortened.from);
        if self.shortened.len() == SHORTENED_MAX {
            self.shortened.pop_front();
        }
        self.shortened.push_back(shortened);
    }

    /// The chunks from `index` on that are shortened in one go.
    fn stretch(&self, index: usize) -> Vec<Bytes> {
        let mut bytes = 0;
        let fits = |chunk: &&RingChunk| {
            let has_room = bytes < COALESCE_BYTES_MAX;
            bytes += chunk.bytes.len();
            has_room
        };
        self.chunks.iter().skip(index).take_while(fits).map(|chunk| chunk.bytes.clone()).collect()
    }

    /// Whether so much came after the chunk at `index` that who takes it next is behind. A great chunk that came just
    /// now makes nobody slow: what counts is what came after it.
    fn is_behind(&self, index: usize) -> bool {
        let second = self.chunks.get(index + 1);
        second.is_some_and(|second| self.published_bytes - second.begins_at > BEHIND_BYTES)
    }
}

impl Subscription {
    /// Whether it is worth calling `take`.
    pub(crate) fn is_ready(&self) -> bool {
        self.signal.ready.load(Ordering::Acquire)
    }

    /// Moves chunks to `out` until it is full.
    pub(crate) fn take(&mut self, out: &mut ClientSendQueue) -> TakenEvents {
        // Lowered before looking: what is published after the look raises it again, and nothing is missed.
        self.signal.ready.store(false, Ordering::Release);
        let ring = Arc::clone(&self.ring);
        let mut guard = ring.state.lock();
        let (taken, behind) = self.take_from(&mut guard, out);
        guard.drop_taken();
        let is_awaited = guard.is_awaited;
        drop(guard);
        if taken == TakenEvents::Some {
            self.signal.ready.store(true, Ordering::Release);
        }
        if is_awaited {
            ring.room.notify_one();
        }
        if let Some(ChunksBehind { from, chunks }) = behind {
            // Not under the lock: it parses, and the publisher of the session would wait for it.
            let bytes = coalesce::coalesce(&chunks);
            out.push(bytes.clone());
            let to = from + chunks.len() as u64;
            ring.state.lock().keep_shortened(ShortenedChunks { from, to, bytes });
        }
        taken
    }

    fn take_from(
        &mut self,
        state: &mut RingState,
        out: &mut ClientSendQueue,
    ) -> (TakenEvents, Option<ChunksBehind>) {
        let Some(Some(subscriber)) = state.subscribers.get(self.key) else { return (TakenEvents::All, None) };
        if subscriber.lagged {
            return (TakenEvents::Lagged, None);
        }
        let (view, mut next) = (subscriber.view, subscriber.next);
        let mut behind = None;
        let taken = loop {
            let index = usize::try_from(next - state.first).unwrap_or(usize::MAX);
            if index >= state.chunks.len() {
                break TakenEvents::All;
            }
            if out.is_full() || behind.is_some() {
                break TakenEvents::Some;
            }
            let is_behind = view == SubscriberView::Agent && state.is_behind(index);
            let mut to = next + 1;
            if !is_behind {
                let chunk = &state.chunks[index];
                match view {
                    SubscriberView::Agent => out.push(chunk.bytes.clone()),
                    SubscriberView::Terminal { seen } if chunk.seq > seen => {
                        if let Some(terminal) = &chunk.terminal {
                            out.push(terminal.frames.clone());
                            if terminal.is_end {
                                self.count_taken(state, next, to);
                                next = to;
                                break TakenEvents::Ended;
                            }
                        }
                    }
                    SubscriberView::Terminal { .. } => {}
                }
            } else if let Some(shortened) = state.shortened.iter().find(|it| it.from == next) {
                to = shortened.to;
                out.push(shortened.bytes.clone());
            } else {
                let chunks = state.stretch(index);
                to = next + chunks.len() as u64;
                behind = Some(ChunksBehind { from: next, chunks });
            }
            self.count_taken(state, next, to);
            next = to;
        };
        if let Some(Some(subscriber)) = state.subscribers.get_mut(self.key) {
            subscriber.next = next;
        }
        (taken, behind)
    }

    /// One reader less waits for chunks `from` up to `to`.
    fn count_taken(&mut self, state: &mut RingState, from: u64, to: u64) {
        let skip = usize::try_from(from - state.first).unwrap_or(usize::MAX);
        let count = usize::try_from(to - from).unwrap_or(usize::MAX);
        for chunk in state.chunks.iter_mut().skip(skip).take(count) {
            chunk.waiting -= 1;
            self.seq = chunk.seq.max(self.seq);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.ring.state.lock();
        let Some(subscriber) = state.subscribers.get_mut(self.key).and_then(Option::take) else { return };
        while state.subscribers.last().is_some_and(Option::is_none) {
            state.subscribers.pop();
        }
        if !subscriber.lagged {
            state.terminals -= usize::from(subscriber.view != SubscriberView::Agent);
            state.release(subscriber.next);
            state.drop_taken();
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
