//! The events of all runs, shared by all apps and bounded. Nobody waits for an app: one that has not taken an event
//! when its room is needed is behind in that run, and reads the log of that run until it is not. So it loses nothing,
//! gets nothing twice, and each run's events come in their order.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use qd_core::view::run::event::EventClass;
use qd_link::mutex::Mutex;

use crate::connection::{ClientSendQueue, Mailbox};
use crate::sessions::session::SessionEntry;

/// What a chunk costs beside its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 128;
/// An empty feed keeps room for no more chunks than this.
const IDLE_CAPACITY_MAX: usize = 64;
/// Runs that one app may subscribe to.
pub(super) const SUBSCRIPTIONS_MAX: usize = 10_000;

/// The events of one record.
#[derive(Clone)]
pub(super) struct RecordEvents {
    pub(super) entry: Arc<SessionEntry>,
    /// Records after this one and before `seq` have nothing to show.
    pub(super) after: u64,
    /// 0 for what is no record: it comes when it comes, and who missed it does not find it in the log.
    pub(super) seq: u64,
    pub(super) class: EventClass,
    pub(super) frames: Bytes,
}

pub(super) struct EventFeed {
    state: Mutex<FeedState>,
    followers: AtomicUsize,
    bytes_max: usize,
}

#[derive(Default)]
struct FeedState {
    chunks: VecDeque<UnreadEvents>,
    /// The number of the first chunk in `chunks`; numbers never repeat.
    first: u64,
    bytes: usize,
    /// A follower's key is its place here; places of those who left are used again.
    readers: Vec<Option<FeedReader>>,
    live: usize,
}

struct UnreadEvents {
    chunk: RecordEvents,
    /// Readers that have yet to take it.
    readers: usize,
}

struct FeedReader {
    /// The chunk to take next.
    next: u64,
    filter: RunFilter,
    /// The runs whose events come from the log, or came from there last.
    behind: HashMap<Arc<str>, LogPosition>,
    last_turn: u64,
    signal: Arc<FeedSignal>,
}

/// Where an app is in a run that it reads from the log.
struct LogPosition {
    entry: Arc<SessionEntry>,
    /// The last record it has.
    after: u64,
    /// The last record it is known to miss; when it has that one, the next chunk may follow.
    until: u64,
    /// Tells this replay from an earlier one of the same run.
    turn: u64,
}

/// What an app wants. Without a subscription that is everything; with one, output and calls of tools are only of the
/// runs it names, and the rest still of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RunFilter(Option<HashMap<Arc<str>, bool>>);

struct FeedSignal {
    ready: AtomicBool,
    /// A run is, or may be, to be read from the log.
    has_missing: AtomicBool,
    mailbox: Arc<Mailbox>,
}

impl FeedSignal {
    fn raise(&self) {
        self.ready.store(true, Ordering::Release);
        self.mailbox.wake();
    }
}

/// What to read from the log for an app.
pub(super) struct MissingEvents {
    pub(super) entry: Arc<SessionEntry>,
    pub(super) after: u64,
    pub(super) turn: u64,
    pub(super) filter: RunFilter,
}

/// An app's place in the feed; dropping it gives the place up.
pub(super) struct FeedSubscription {
    feed: Arc<EventFeed>,
    key: usize,
    signal: Arc<FeedSignal>,
}

impl RunFilter {
    pub(super) fn wants(&self, session_id: &str, class: EventClass) -> bool {
        let Some(runs) = &self.0 else { return true };
        match class {
            EventClass::Other => true,
            EventClass::Tool => runs.contains_key(session_id),
            EventClass::Output => runs.get(session_id).is_some_and(|include_output| *include_output),
        }
    }

    /// One more run, or only that one. False when there are too many.
    pub(super) fn add(&mut self, session_id: &Arc<str>, include_output: bool, replace: bool) -> bool {
        let runs = self.0.get_or_insert_default();
        if replace {
            runs.clear();
        }
        if runs.len() >= SUBSCRIPTIONS_MAX && !runs.contains_key(session_id) {
            return false;
        }
        runs.insert(Arc::clone(session_id), include_output);
        true
    }

    /// Not that run any more, or none. An app that never subscribed does so here: it wants less than everything.
    pub(super) fn remove(&mut self, session_id: Option<&str>) {
        let runs = self.0.get_or_insert_default();
        match session_id {
            Some(session_id) => drop(runs.remove(session_id)),
            None => runs.clear(),
        }
    }
}

impl EventFeed {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { state: Mutex::default(), followers: AtomicUsize::new(0), bytes_max }
    }

    /// Whether it is worth making chunks.
    pub(super) fn is_followed(&self) -> bool {
        self.followers.load(Ordering::Acquire) > 0
    }

    /// A place after everything published so far.
    pub(super) fn join(self: &Arc<Self>, mailbox: Arc<Mailbox>) -> FeedSubscription {
        let mut state = self.state.lock();
        let (ready, has_missing) = (AtomicBool::new(false), AtomicBool::new(false));
        let signal = Arc::new(FeedSignal { ready, has_missing, mailbox });
        let reader = Some(FeedReader {
            next: state.first + state.chunks.len() as u64,
            filter: RunFilter::default(),
            behind: HashMap::new(),
            last_turn: 0,
            signal: Arc::clone(&signal),
        });
        state.live += 1;
        let key = state.readers.iter().position(Option::is_none).unwrap_or(state.readers.len());
        match state.readers.get_mut(key) {
            Some(place) => *place = reader,
            None => state.readers.push(reader),
        }
        self.followers.fetch_add(1, Ordering::AcqRel);
        FeedSubscription { feed: Arc::clone(self), key, signal }
    }

    /// Gives chunks, in the order of their run, to every follower.
    pub(super) fn publish(&self, chunks: Vec<RecordEvents>) {
        let mut state = self.state.lock();
        if state.live == 0 || chunks.is_empty() {
            return;
        }
        let readers = state.live;
        for chunk in chunks {
            state.bytes += chunk.frames.len() + CHUNK_OVERHEAD_BYTES;
            state.chunks.push_back(UnreadEvents { chunk, readers });
            while state.bytes > self.bytes_max && state.chunks.len() > 1 {
                state.drop_first();
            }
        }
        state.readers.iter().flatten().for_each(|reader| reader.signal.raise());
    }

    #[cfg(test)]
    fn held_bytes(&self) -> usize {
        self.state.lock().bytes
    }
}

impl FeedState {
    /// Makes room. Who has not taken the chunk is behind in its run.
    fn drop_first(&mut self) {
        let Some(UnreadEvents { chunk, .. }) = self.chunks.pop_front() else { return };
        self.bytes -= chunk.frames.len() + CHUNK_OVERHEAD_BYTES;
        for reader in self.readers.iter_mut().flatten().filter(|reader| reader.next == self.first) {
            reader.next += 1;
            reader.miss(&chunk);
        }
        self.first += 1;
    }

    fn drop_taken(&mut self) {
        while self.chunks.front().is_some_and(|waiting| waiting.readers == 0) {
            if let Some(UnreadEvents { chunk, .. }) = self.chunks.pop_front() {
                self.bytes -= chunk.frames.len() + CHUNK_OVERHEAD_BYTES;
                self.first += 1;
            }
        }
        if self.chunks.is_empty() {
            self.chunks.shrink_to(IDLE_CAPACITY_MAX);
        }
    }
}

impl FeedReader {
    fn wants(&self, chunk: &RecordEvents) -> bool {
        self.filter.wants(&chunk.entry.id, chunk.class)
    }

    /// The place in the chunk's run, if it is read from the log.
    fn behind(&mut self, chunk: &RecordEvents) -> Option<&mut LogPosition> {
        let id = &chunk.entry.id;
        if self.behind.get(id).is_some_and(|behind| !Arc::ptr_eq(&behind.entry, &chunk.entry)) {
            // Another run has the name by now.
            self.behind.remove(id);
        }
        self.behind.get_mut(id)
    }

    fn note_missing(&self, is_missing: bool) {
        if is_missing {
            self.signal.has_missing.store(true, Ordering::Release);
        }
    }

    /// Forgets the places in runs that the app has all of. The reader must have taken every chunk; what is still on
    /// its way to the feed would be taken for news, so a run with such is kept.
    fn forget_caught_up(&mut self) {
        self.behind.retain(|_, behind| {
            let is_caught_up = !behind.is_reading() && behind.entry.committed_seq() <= behind.after;
            let is_done = is_caught_up && behind.entry.is_settled();
            !(is_done || behind.entry.is_over())
        });
    }

    /// The chunk is gone before it was taken.
    fn miss(&mut self, chunk: &RecordEvents) {
        if chunk.seq == 0 {
            return;
        }
        let wants = self.wants(chunk);
        self.note_missing(wants);
        match self.behind(chunk) {
            Some(behind) if wants => {
                if !behind.is_reading() {
                    // What came between was not wanted when it came.
                    behind.after = behind.after.max(chunk.after);
                }
                behind.until = behind.until.max(chunk.seq);
            }
            None if wants => {
                self.last_turn += 1;
                let (entry, turn) = (Arc::clone(&chunk.entry), self.last_turn);
                let behind = LogPosition { entry, after: chunk.after, until: chunk.seq, turn };
                self.behind.insert(Arc::clone(&chunk.entry.id), behind);
            }
            Some(_) | None => {}
        }
    }

    /// Whether the chunk is the next that the app is to get of its run.
    fn takes(&mut self, chunk: &RecordEvents) -> bool {
        let wants = self.wants(chunk);
        if chunk.seq == 0 {
            return wants;
        }
        match self.behind(chunk) {
            None => wants,
            Some(behind) if !wants || chunk.seq <= behind.after => false,
            Some(behind) if behind.is_reading() => {
                behind.until = behind.until.max(chunk.seq);
                self.note_missing(true);
                false
            }
            // It has everything that it missed, so this is the next.
            Some(_) => {
                self.behind.remove(&chunk.entry.id);
                true
            }
        }
    }
}

impl LogPosition {
    fn is_reading(&self) -> bool {
        self.after < self.until
    }
}

impl FeedSubscription {
    /// Moves events to `out` until it is full. Says whether that changed anything.
    pub(super) fn take(&self, out: &mut ClientSendQueue) -> bool {
        if !self.signal.ready.swap(false, Ordering::AcqRel) {
            return false;
        }
        let mut guard = self.feed.state.lock();
        let FeedState { chunks, readers, first, .. } = &mut *guard;
        let Some(Some(reader)) = readers.get_mut(self.key) else { return false };
        let mut has_progress = false;
        let mut index = usize::try_from(reader.next - *first).unwrap_or(usize::MAX);
        while let Some(waiting) = chunks.get_mut(index) {
            if out.is_full() {
                self.signal.ready.store(true, Ordering::Release);
                break;
            }
            if reader.takes(&waiting.chunk) {
                out.push(waiting.chunk.frames.clone());
            }
            waiting.readers -= 1;
            reader.next += 1;
            index += 1;
            has_progress = true;
        }
        guard.drop_taken();
        has_progress
    }

    /// Changes what the app wants.
    pub(super) fn change_filter<T>(&self, change: impl FnOnce(&mut RunFilter) -> T) -> Option<T> {
        let mut state = self.feed.state.lock();
        let reader = state.readers.get_mut(self.key)?.as_mut()?;
        Some(change(&mut reader.filter))
    }

    /// The app wants the records of a run after this one, whether it had them or not.
    pub(super) fn replay(&self, entry: &Arc<SessionEntry>, after: u64) {
        let mut state = self.feed.state.lock();
        let Some(Some(reader)) = state.readers.get_mut(self.key) else { return };
        let until = entry.committed_seq();
        reader.last_turn += 1;
        let turn = reader.last_turn;
        let behind = LogPosition { entry: Arc::clone(entry), after: after.min(until), until, turn };
        reader.behind.insert(Arc::clone(&entry.id), behind);
        reader.note_missing(true);
    }

    /// The run that waits longest to be read from the log.
    pub(super) fn missing(&self) -> Option<MissingEvents> {
        if !self.signal.has_missing.load(Ordering::Acquire) {
            return None;
        }
        let mut guard = self.feed.state.lock();
        let end = guard.first + guard.chunks.len() as u64;
        let reader = guard.readers.get_mut(self.key)?.as_mut()?;
        let waiting = reader.behind.values().filter(|behind| behind.is_reading());
        let Some(behind) = waiting.min_by_key(|behind| behind.turn) else {
            if reader.next == end {
                reader.forget_caught_up();
                self.signal.has_missing.store(false, Ordering::Release);
            }
            return None;
        };
        let (entry, after, turn) = (Arc::clone(&behind.entry), behind.after, behind.turn);
        Some(MissingEvents { entry, after, turn, filter: reader.filter.clone() })
    }

    /// A page of the log has gone to the app, up to this record; `is_end` when the log has no more. False when that
    /// page is not wanted any more.
    pub(super) fn has_read(&self, missing: &MissingEvents, next: u64, is_end: bool) -> bool {
        let mut state = self.feed.state.lock();
        let Some(Some(reader)) = state.readers.get_mut(self.key) else { return false };
        let turn = reader.last_turn + 1;
        let behind = reader.behind.get_mut(&missing.entry.id);
        let Some(behind) = behind.filter(|behind| behind.turn == missing.turn) else { return false };
        // What is not in the log is gone for ever: the session was deleted.
        behind.after = if is_end { next.max(behind.until) } else { next };
        behind.turn = turn;
        reader.last_turn = turn;
        true
    }
}

impl Drop for FeedSubscription {
    fn drop(&mut self) {
        let mut state = self.feed.state.lock();
        let Some(reader) = state.readers.get_mut(self.key).and_then(Option::take) else { return };
        while state.readers.last().is_some_and(Option::is_none) {
            state.readers.pop();
        }
        state.live -= 1;
        let index = usize::try_from(reader.next - state.first).unwrap_or(usize::MAX);
        state.chunks.iter_mut().skip(index).for_each(|waiting| waiting.readers -= 1);
        state.drop_taken();
        self.feed.followers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
