use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use bytes::Bytes;
use futures_util::task::AtomicWaker;

use crate::clock::now_ms;
use crate::reads::HubCommand;
use crate::registry::SessionEntry;
use crate::ring::Subscription;

/// Frames that may wait in a mailbox. Answers are bounded by the commands in flight, so only a client that
/// does not read can have this many.
pub(crate) const MAILBOX_BYTES_MAX: usize = 64 << 20;

/// How long a client that fell behind counts as slow.
const LAG_MEMORY_MS: i64 = 30_000;

/// What the rest of the hub knows of a connection: where to put things for it.
pub(crate) struct Mailbox {
    /// `c1`, `c2`…
    pub(crate) connection_id: Box<str>,
    waker: AtomicWaker,
    full: AtomicBool,
    state: Mutex<MailState>,
    /// Commands that wait for their answer.
    in_flight: AtomicUsize,
    /// When one of its subscriptions last fell behind, in unix milliseconds.
    lagged_at: AtomicI64,
}

#[derive(Default)]
struct MailState {
    items: VecDeque<Mail>,
    bytes: usize,
    closed: bool,
}

pub(crate) enum Mail {
    /// Whole frames.
    Frames(Bytes),
    /// An answered attach: send the frame, replay, then follow the session.
    Attached(Box<Attached>),
    /// A read of the store is done.
    JobDone(Box<JobDone>),
    /// A read the hub does itself, whose dependencies are met.
    Run(Box<HubCommand>),
    /// A resync could not be done.
    ResyncFailed { generation: u64, is_session_gone: bool },
    /// It is time to try a failed resync again.
    ResyncNow { generation: u64 },
    /// Last frames, then a close.
    Close { frames: Bytes, code: u16, reason: &'static str },
}

/// A new place in a session's events, and what its client gets first.
pub(crate) struct Attached {
    pub(crate) session: Arc<SessionEntry>,
    pub(crate) subscription: Subscription,
    pub(crate) frame: AttachFrame,
    /// Records after the first and up to the second number come before live events.
    pub(crate) replay: Option<(u64, u64)>,
    /// Set when this replaces a place that fell behind: the generation of that one.
    pub(crate) resync_of: Option<u64>,
}

pub(crate) enum AttachFrame {
    Ready(Bytes),
    /// The newest messages go between the two halves of the text.
    WithMessages {
        before: Vec<u8>,
        after: Vec<u8>,
    },
}

pub(crate) enum JobDone {
    Frames(Bytes),
    Snapshot(Box<Attached>),
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
    pub(crate) fn new(connection_id: String) -> Arc<Self> {
        Arc::new(Self {
            connection_id: connection_id.into_boxed_str(),
            waker: AtomicWaker::new(),
            full: AtomicBool::new(false),
            state: Mutex::default(),
            in_flight: AtomicUsize::new(0),
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
    pub(crate) fn put(&self, mail: Mail) {
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.bytes += mail.bytes();
            if state.bytes > MAILBOX_BYTES_MAX {
                state.items.clear();
                state.bytes = 0;
                state.closed = true;
                let reason = "the client does not read";
                state.items.push_back(Mail::Close { frames: Bytes::new(), code: 1013, reason });
            } else {
                state.items.push_back(mail);
            }
        }
        self.full.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// The answer of one of this connection's commands.
    pub(crate) fn answer(&self, mail: Mail) {
        self.answered();
        self.put(mail);
    }

    /// What has come since the last call.
    pub(crate) fn take(&self) -> VecDeque<Mail> {
        if !self.full.swap(false, Ordering::Acquire) {
            return VecDeque::new();
        }
        let mut state = self.lock();
        state.bytes = 0;
        std::mem::take(&mut state.items)
    }

    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.items = VecDeque::new();
    }

    /// Counts a command in; false when there are too many.
    pub(crate) fn try_begin(&self, in_flight_max: usize) -> bool {
        // Only the connection's own task counts up, so there is no race to lose here.
        if self.in_flight.load(Ordering::Acquire) >= in_flight_max {
            return false;
        }
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        true
    }

    pub(crate) fn answered(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, MailState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Arc<Self> {
        Self::new("c0".to_owned())
    }
}

impl Mail {
    fn bytes(&self) -> usize {
        match self {
            Mail::Frames(frames) | Mail::Close { frames, .. } => frames.len(),
            Mail::Attached(attached) => match &attached.frame {
                AttachFrame::Ready(frame) => frame.len(),
                AttachFrame::WithMessages { before, after } => before.len() + after.len(),
            },
            Mail::JobDone(done) => match &**done {
                JobDone::Frames(frames) | JobDone::Replayed { frames, .. } => frames.len(),
                JobDone::Snapshot(_) | JobDone::Failed { .. } => 0,
            },
            Mail::Run(_) | Mail::ResyncFailed { .. } | Mail::ResyncNow { .. } => 0,
        }
    }
}
