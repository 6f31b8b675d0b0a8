//! What the rest of the hub leaves for a connection: frames, answers and results of reads. Putting something in never
//! waits, so nobody is held up by a slow client; instead the bytes are counted, and a client for which too many of
//! them wait is disconnected.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_wire::CodedError;

use crate::access::principals::Principal;
use crate::channels::TerminalOpened;
use crate::command::ask::CommandSender;
use crate::command::reply::ReplyTo;
use crate::sessions::reads::HubCommand;
use crate::sessions::ring::Subscription;
use crate::sessions::session::SessionEntry;

/// A client may hold so many times the usual bound as long as it takes something now and then: answers to
/// commands sent before it was known how long they are.
const HELD_FACTOR_MAX: usize = 4;

/// How long a client that fell behind counts as slow.
const LAG_MEMORY_MS: i64 = 30_000;

/// What the rest of the hub knows of a connection: where to put things for it.
pub(crate) struct Mailbox {
    /// Who is connected, for what is asked on behalf of the connection. Its `connection_id` is `c1`, `c2`…
    pub(crate) asker: CommandSender,
    waker: AtomicWaker,
    full: AtomicBool,
    state: Mutex<MailboxState>,
    /// Bytes in the mailbox.
    waiting_bytes: AtomicUsize,
    /// Bytes the connection has taken and not written yet.
    send_queue_bytes: AtomicUsize,
    /// When the client last took something, or had nothing to take, in unix milliseconds.
    taken_at: AtomicI64,
    bounds: MailboxBounds,
    /// Commands that wait for their answer.
    in_flight: AtomicUsize,
    /// Those of them whose success is one more session to follow.
    attaching: AtomicUsize,
    /// When one of its subscriptions last fell behind, in unix milliseconds.
    lagged_at: AtomicI64,
}

/// How much may wait for a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MailboxBounds {
    /// Above this a client has to take something now and then.
    pub(crate) held_bytes_max: usize,
    /// How seldom that may be.
    pub(crate) stall_max: Duration,
}

#[derive(Default)]
struct MailboxState {
    items: VecDeque<ConnectionMail>,
    /// The connection is to end: it gets all that is left, room or not.
    is_closing: bool,
    closed: bool,
}

pub(crate) enum ConnectionMail {
    /// Whole frames.
    Frames(Bytes),
    /// One frame in pieces, which are not copied into one.
    Pieces(Box<[Bytes]>),
    /// An answered attach: send the frame, replay, then follow the session.
    Attached(Box<AttachedSession>),
    /// A read of the store is done.
    StoreReadDone(Box<StoreReadDone>),
    /// A read the hub does itself, whose dependencies are met.
    Run(Box<HubCommand>),
    /// A terminal is open: its screen, and the place from which it is watched.
    Terminal(Box<TerminalOpened>),
    /// A resync could not be done.
    ResyncFailed { generation: u64, is_session_gone: bool },
    /// It is time to try a failed resync again.
    ResyncNow { generation: u64 },
    /// Last frames, then a close.
    Close { frames: Bytes, code: u16, reason: Cow<'static, str> },
}

/// A new place in a session's events, and what its client gets first.
pub(crate) struct AttachedSession {
    pub(crate) session: Arc<SessionEntry>,
    pub(crate) subscription: Subscription,
    pub(crate) frame: AttachFrame,
    /// Records after the first and up to the second number come before live events.
    pub(crate) replay: Option<(u64, u64)>,
    /// Set when this replaces a place that fell behind: the generation of that one.
    pub(crate) resync_of: Option<u64>,
    /// The hub answered, because the runner was away.
    pub(crate) is_away: bool,
}

pub(crate) enum AttachFrame {
    Ready(Bytes),
    /// The newest messages go between the two halves of the text.
    WithMessages {
        before: Vec<u8>,
        after: Vec<u8>,
    },
}

pub(crate) enum StoreReadDone {
    Frames(Bytes),
    ReadFailed {
        reply: ReplyTo,
        error: CodedError,
    },
    /// An attach that has its messages, or that the hub answered itself.
    Attached(Box<AttachedSession>),
    Replayed {
        generation: u64,
        frames: Bytes,
        next: u64,
        until: u64,
    },
    /// Records after `after` could not be read.
    Failed {
        generation: u64,
        after: u64,
    },
}

impl Mailbox {
    pub(crate) fn new(connection_id: String, principal: &Principal, bounds: MailboxBounds) -> Arc<Self> {
        Arc::new(Self {
            asker: CommandSender::new(principal, connection_id.into()),
            waker: AtomicWaker::new(),
            full: AtomicBool::new(false),
            state: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            send_queue_bytes: AtomicUsize::new(0),
            taken_at: AtomicI64::new(now_ms()),
            bounds,
            in_flight: AtomicUsize::new(0),
            attaching: AtomicUsize::new(0),
            lagged_at: AtomicI64::new(0),
        })
    }

    pub(crate) fn note_lag(&self) {
        self.lagged_at.store(now_ms(), Ordering::Relaxed);
    }

    /// A client that fell behind a short while ago is not waited for again.
    pub(crate) fn has_lagged_lately(&self) -> bool {
        let lagged_at = self.lagged_at.load(Ordering::Relaxed);
        lagged_at != 0 && now_ms().saturating_sub(lagged_at) < LAG_MEMORY_MS
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    /// Leaves something for the connection; a closed one gets nothing.
    pub(crate) fn put(&self, mail: ConnectionMail) {
        {
            let mut state = self.state.lock();
            if state.closed {
                return;
            }
            if self.has_overflowed(mail.bytes()) {
                state.items.clear();
                self.waiting_bytes.store(0, Ordering::Relaxed);
                state.closed = true;
                state.is_closing = true;
                let reason = Cow::Borrowed("the client does not read");
                state.items.push_back(ConnectionMail::Close { frames: Bytes::new(), code: 1013, reason });
            } else {
                state.is_closing |= matches!(mail, ConnectionMail::Close { .. });
                state.items.push_back(mail);
            }
        }
        self.full.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Leaves whole frames for the client.
    pub(crate) fn send(&self, frames: Bytes) {
        self.put(ConnectionMail::Frames(frames));
    }

    /// Leaves the answer to a command, which is in flight no more; `attaches` is what it was begun with.
    pub(crate) fn send_answer(&self, frames: Bytes, attaches: bool) {
        self.end_command(attaches);
        self.send(frames);
    }

    /// Closes the connection after these last frames.
    pub(crate) fn send_close(&self, frames: Bytes, code: u16, reason: &'static str) {
        self.put(ConnectionMail::Close { frames, code, reason: Cow::Borrowed(reason) });
    }

    /// Leaves frames that may be lost; false, and they are, when more than `backlog_max` bytes wait already. Who notes
    /// that wakes the mailbox after it: the handler's `drained` is called when enough is taken.
    pub(crate) fn put_unless_full(&self, frames: Bytes, backlog_max: usize) -> bool {
        if self.held_bytes() > backlog_max {
            return false;
        }
        self.send(frames);
        true
    }

    /// Counts more bytes in. True when that is too much.
    fn has_overflowed(&self, bytes: usize) -> bool {
        let before = self.held_bytes();
        if before == 0 {
            self.taken_at.store(now_ms(), Ordering::Relaxed);
        }
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let held = before + bytes;
        if held <= self.bounds.held_bytes_max {
            return false;
        }
        let stall = u64::try_from(now_ms().saturating_sub(self.taken_at.load(Ordering::Relaxed)));
        let is_stalled = stall.is_ok_and(|stall| Duration::from_millis(stall) >= self.bounds.stall_max);
        is_stalled || held > self.bounds.held_bytes_max.saturating_mul(HELD_FACTOR_MAX)
    }

    /// Bytes that wait for the client, here and in its connection.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed) + self.send_queue_bytes.load(Ordering::Relaxed)
    }

    /// What the connection has not written yet, and whether the client has taken something.
    pub(crate) fn note_send_queue(&self, bytes: usize, has_taken: bool) {
        self.send_queue_bytes.store(bytes, Ordering::Relaxed);
        if has_taken {
            self.taken_at.store(now_ms(), Ordering::Relaxed);
        }
    }

    /// What has come, as long as it fits into `room`; the item that is greater than the rest of it is the last.
    pub(crate) fn take(&self, room: usize) -> VecDeque<ConnectionMail> {
        if !self.full.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut state = self.state.lock();
        if state.is_closing {
            self.waiting_bytes.store(0, Ordering::Relaxed);
            return std::mem::take(&mut state.items);
        }
        let mut bytes = 0;
        let mut count = 0;
        while let Some(mail) = state.items.get(count).filter(|_| bytes < room) {
            bytes += mail.bytes();
            count += 1;
        }
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if count == state.items.len() {
            return std::mem::take(&mut state.items);
        }
        self.full.store(true, Ordering::Release);
        state.items.drain(..count).collect()
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.items = VecDeque::new();
    }

    /// Counts a command in; false when there are too many.
    pub(crate) fn try_begin_command(&self, in_flight_max: usize, attaches: bool) -> bool {
        // Only the connection's own task counts up, so there is no race to lose here.
        if self.in_flight.load(Ordering::Acquire) >= in_flight_max {
            return false;
        }
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        self.attaching.fetch_add(usize::from(attaches), Ordering::AcqRel);
        true
    }

    /// A command has its answer, or none will come; `attaches` is what it was begun with.
    pub(crate) fn end_command(&self, attaches: bool) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        self.attaching.fetch_sub(usize::from(attaches), Ordering::AcqRel);
    }

    /// Whether commands of the connection wait for their answers.
    pub(crate) fn has_commands(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    /// Sessions the connection will follow when commands in flight succeed.
    pub(crate) fn attaching(&self) -> usize {
        self.attaching.load(Ordering::Acquire)
    }

    /// The connection is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// A mailbox for what the hub asks on its own account; nobody reads it.
    pub(crate) fn nobody() -> Arc<Self> {
        let bounds = MailboxBounds { held_bytes_max: 0, stall_max: Duration::ZERO };
        let mailbox = Self::new("hub".to_owned(), &Principal::owner(), bounds);
        mailbox.close();
        mailbox
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        let bounds = MailboxBounds { held_bytes_max: 1 << 20, stall_max: Duration::from_secs(1) };
        Self::new("c0".to_owned(), &Principal::owner(), bounds)
    }
}

impl AttachFrame {
    fn bytes(&self) -> usize {
        match self {
            AttachFrame::Ready(frame) => frame.len(),
            AttachFrame::WithMessages { before, after } => before.len() + after.len(),
        }
    }
}

impl ConnectionMail {
    fn bytes(&self) -> usize {
        match self {
            ConnectionMail::Frames(frames) | ConnectionMail::Close { frames, .. } => frames.len(),
            ConnectionMail::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            ConnectionMail::Attached(attached) => attached.frame.bytes(),
            ConnectionMail::Terminal(opened) => opened.frames.len(),
            ConnectionMail::StoreReadDone(done) => match &**done {
                StoreReadDone::Frames(frames) | StoreReadDone::Replayed { frames, .. } => frames.len(),
                StoreReadDone::Attached(attached) => attached.frame.bytes(),
                StoreReadDone::Failed { .. } | StoreReadDone::ReadFailed { .. } => 0,
            },
            ConnectionMail::Run(_)
            | ConnectionMail::ResyncFailed { .. }
            | ConnectionMail::ResyncNow { .. } => 0,
        }
    }
}
