//! One connection as the rest of the face sees it: where its frames go, what it has asked for, and what it missed.
//! Answers are never dropped; broadcasts and events are, for a client that does not read, and it is told how many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use crate::access::principals::Principal;
use crate::command::ask::CommandSender;
use crate::connection::{ConnectionMail, Mailbox};
use crate::faces::pi_server::commands::lifecycle;
use crate::faces::pi_server::commands::lifecycle::PiFrame;

/// A client that fell behind has caught up when no more than this part of the bound waits for it.
const CAUGHT_UP_PART: usize = 4;
/// Bytes of commands of one connection that wait for their answer: a hundred of the greatest messages would be a
/// gigabyte.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// What may wait for a client that has caught up.
pub(crate) fn caught_up_bytes_max(backlog_bytes_max: usize) -> usize {
    backlog_bytes_max / CAUGHT_UP_PART
}

/// One connection of this face, as the face knows it.
pub(crate) struct PiClient {
    pub(crate) asker: CommandSender,
    mailbox: Arc<Mailbox>,
    /// `connection`, or `transport` for the one that is the standard input and output of the process.
    pub(crate) place: &'static str,
    backlog_bytes_max: usize,
    /// Whose commands and outcomes the client's are: its principal, or who has that name now.
    identity: Arc<str>,
    /// Cancelled when the access of its principal is taken back.
    revoked: CancellationToken,
    /// Commands that wait for their answer, and their bytes.
    pending: AtomicUsize,
    pending_bytes: AtomicUsize,
    /// Broadcasts that were dropped; while there are some, all are.
    missed: AtomicU64,
    /// Something was dropped and the client has to be told when it has read what waits for it.
    is_behind: AtomicBool,
}

impl PiClient {
    pub(crate) fn new(
        principal: &Principal,
        mailbox: Arc<Mailbox>,
        place: &'static str,
        backlog_bytes_max: usize,
    ) -> Arc<Self> {
        let connection_id = Arc::clone(&mailbox.asker.connection_id);
        Arc::new(Self {
            asker: CommandSender::new(principal, connection_id),
            mailbox,
            place,
            backlog_bytes_max,
            identity: match principal.life {
                0 => Arc::clone(&principal.name),
                // No name has such a character.
                life => format!("{}\n{life}", principal.name).into(),
            },
            revoked: principal.revoked.clone(),
            pending: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
            is_behind: AtomicBool::new(false),
        })
    }

    pub(crate) fn principal(&self) -> &Arc<str> {
        &self.asker.principal
    }

    /// Under which name the machine of admission knows the principal: one that was revoked and its successor of the
    /// same name have nothing in common.
    pub(crate) fn identity(&self) -> &Arc<str> {
        &self.identity
    }

    /// What must not be lost.
    pub(crate) fn put(&self, frames: Bytes) {
        self.mailbox.send(frames);
    }

    /// The same for a frame that may be great.
    pub(crate) fn put_frame(&self, frame: PiFrame) {
        self.mailbox.put(match frame {
            PiFrame::Whole(frames) => ConnectionMail::Frames(frames),
            PiFrame::Pieces(pieces) => ConnectionMail::Pieces(pieces),
        });
    }

    /// Its principal may do nothing any more.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revoked.is_cancelled()
    }

    /// An event; false when the client is too far behind to get it.
    pub(crate) fn put_unless_full(&self, frames: &Bytes) -> bool {
        let is_taken = self.mailbox.put_unless_full(frames.clone(), self.backlog_bytes_max);
        // It may have read all of it just now: one more turn, so that it is told in any case.
        if !is_taken && !self.is_behind.swap(true, Ordering::AcqRel) {
            self.mailbox.wake();
        }
        is_taken
    }

    /// A broadcast of `count` messages. Called with the pending commands locked, so that all clients see one order.
    pub(crate) fn send_events(&self, frames: &Bytes, count: u64) {
        // One that is always busy may never have read everything.
        if self.missed.load(Ordering::Relaxed) > 0
            && self.mailbox.held_bytes() <= caught_up_bytes_max(self.backlog_bytes_max)
        {
            self.send_missed();
        }
        if self.missed.load(Ordering::Relaxed) > 0 || !self.put_unless_full(frames) {
            self.missed.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Tells how many broadcasts were dropped, if some were. Called with the pending commands locked.
    pub(crate) fn send_missed(&self) {
        let missed = self.missed.swap(0, Ordering::Relaxed);
        if missed > 0 {
            self.put(lifecycle::lifecycle_gap(missed));
        }
    }

    /// Whether the client has to be told that something was dropped; asked once for each time.
    pub(crate) fn take_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire) && self.is_behind.swap(false, Ordering::AcqRel)
    }

    /// Whether what waits for the client has to be read before it can be told more.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.mailbox.is_closed()
    }

    /// Counts a command in; false when there are too many. Only the connection's own task counts up.
    pub(crate) fn try_begin_command(&self, pending_max: usize, bytes: usize) -> bool {
        let pending = self.pending.load(Ordering::Acquire);
        let pending_bytes = self.pending_bytes.load(Ordering::Acquire);
        if pending >= pending_max || (pending > 0 && pending_bytes + bytes > PENDING_BYTES_MAX) {
            return false;
        }
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.pending_bytes.fetch_add(bytes, Ordering::AcqRel);
        true
    }

    /// A command has its answer.
    pub(crate) fn end(&self, bytes: usize) {
        self.pending.fetch_sub(1, Ordering::AcqRel);
        self.pending_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }
}
