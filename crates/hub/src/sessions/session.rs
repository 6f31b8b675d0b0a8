//! A session as the hub knows it: read by many tasks, changed mostly by the reader and the committer of its runner's
//! link. How far its stream is read and committed is in atomics, because every delta looks at it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use qd_core::projection::Projection;
use qd_core::record::SessionKind;
use qd_link::mutex::Mutex;
use qd_store::HubSession;
use tokio::sync::Notify;

use crate::channels::show_terminal;
use crate::runners::line_head::json_string;
use crate::sessions::published::{PublishedEvents, RecordHead};
use crate::sessions::ring::Ring;
use crate::sessions::session_lines::of_row;

/// One session: where it lives, its live events, and what lists show of it.
pub(crate) struct SessionEntry {
    pub(crate) id: Arc<str>,
    /// A session belongs to its first runner for ever.
    pub(crate) runner_id: Arc<str>,
    /// Both names as JSON strings, as they stand in its records.
    pub(crate) id_json: Box<str>,
    pub(crate) runner_json: Box<str>,
    pub(crate) ring: Arc<Ring>,
    /// The last record read from the link; what is committed of them is `committed_seq`. Written by the link's
    /// reader only.
    pub(crate) last_seq: AtomicU64,
    /// The record that was missing when a link of its runner was ended for it; 0 for none.
    pub(crate) missing_seq: AtomicU64,
    /// Pieces of the stream that wait for a commit; while there are any, later ones queue behind them.
    uncommitted: AtomicUsize,
    /// None of them waits any more.
    settled: Notify,
    /// Its runner did not name it when it came. Written by the link's reader only.
    pub(crate) is_orphan: AtomicBool,
    /// It was deleted: who still follows it may stop.
    is_over: AtomicBool,
    /// It is being deleted: nothing more of it is stored.
    is_being_deleted: AtomicBool,
    /// Held by who deletes it.
    pub(crate) deleting: tokio::sync::Mutex<()>,
    /// Of a program in a terminal; known from its first record on.
    is_terminal: AtomicBool,
    /// Whether it is known what runs in it.
    has_harness: AtomicBool,
    /// What its runner last said of it is as of this record: records up to it are history for lists.
    described_seq: AtomicU64,
    /// The time of its last record.
    last_activity: AtomicI64,
    pub(crate) projection: Mutex<Projection>,
}

impl SessionEntry {
    pub(crate) fn new(session_id: &str, runner_id: &Arc<str>, ring_bytes_max: usize, last_seq: u64) -> Self {
        Self {
            id: Arc::from(session_id),
            runner_id: Arc::clone(runner_id),
            id_json: json_string(session_id).into(),
            runner_json: json_string(runner_id).into(),
            ring: Arc::new(Ring::new(ring_bytes_max, last_seq)),
            last_seq: AtomicU64::new(last_seq),
            missing_seq: AtomicU64::new(0),
            uncommitted: AtomicUsize::new(0),
            settled: Notify::new(),
            is_orphan: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_being_deleted: AtomicBool::new(false),
            deleting: tokio::sync::Mutex::default(),
            is_terminal: AtomicBool::new(false),
            has_harness: AtomicBool::new(false),
            described_seq: AtomicU64::new(0),
            last_activity: AtomicI64::new(0),
            projection: Mutex::default(),
        }
    }

    /// After a start the agent of a stored session does not run.
    pub(crate) fn stored(row: &HubSession, ring_bytes_max: usize) -> Self {
        let entry = Self::new(&row.session_id, &Arc::from(&*row.runner_id), ring_bytes_max, row.last_seq);
        entry.set_harness(&row.harness);
        entry.note_activity(row.updated_at);
        *entry.projection() = Projection::stored(of_row(row.clone()), row.closed);
        entry
    }

    /// A record of this time was read.
    pub(crate) fn note_activity(&self, ts: i64) {
        self.last_activity.fetch_max(ts, Ordering::Relaxed);
    }

    pub(crate) fn last_activity(&self) -> i64 {
        self.last_activity.load(Ordering::Relaxed)
    }

    /// What runs in it, as its first record says.
    pub(crate) fn set_harness(&self, harness: &str) {
        self.is_terminal.store(SessionKind::of(harness) == SessionKind::Terminal, Ordering::Relaxed);
        // After the other, which who sees this one sees too.
        self.has_harness.store(true, Ordering::Release);
    }

    /// Whether what is typed into it may be run as commands. Until its first record is read it may be anything.
    pub(crate) fn may_be_shell(&self) -> bool {
        !self.has_harness.load(Ordering::Acquire) || self.kind() == SessionKind::Terminal
    }

    /// How its records are read.
    pub(crate) fn kind(&self) -> SessionKind {
        if self.is_terminal.load(Ordering::Relaxed) { SessionKind::Terminal } else { SessionKind::Agent }
    }

    /// Gives frames, of which those with a head are records, to all who follow it.
    pub(crate) fn publish(self: &Arc<Self>, frames: &Bytes, heads: &[RecordHead]) {
        let seq = heads.last().map(|head| head.seq);
        let published = PublishedEvents::new(self, frames, heads, &[]);
        self.ring.publish_with(frames.clone(), seq, || show_terminal(published));
    }

    /// The last record that is stored and published; a runner may forget it and what came before.
    pub(crate) fn committed_seq(&self) -> u64 {
        self.ring.seq()
    }

    /// What a link read and could not commit comes again on the next one. Called when the old link is done and the
    /// new one has read nothing yet.
    pub(crate) fn start_over(&self) {
        self.last_seq.store(self.committed_seq(), Ordering::Relaxed);
        self.uncommitted.store(0, Ordering::SeqCst);
        self.settled.notify_waiters();
    }

    /// One more piece of the stream waits for a commit.
    pub(crate) fn begin_commit(&self) {
        // In one order with `is_being_deleted`: who deletes the session waits for this piece, or the piece is not stored.
        self.uncommitted.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing that was read still waits for a commit.
    pub(crate) fn is_settled(&self) -> bool {
        self.uncommitted.load(Ordering::SeqCst) == 0
    }

    /// Such a piece has been dealt with.
    pub(crate) fn finish_commit(&self) {
        if self.uncommitted.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.settled.notify_waiters();
        }
    }

    /// Waits until nothing that a link has read is still on its way to those who follow the session.
    pub(crate) async fn when_settled(&self) {
        loop {
            let settled = self.settled.notified();
            if self.is_settled() {
                return;
            }
            settled.await;
        }
    }

    /// Whether the session is being deleted, so that nothing more of it is to be stored.
    pub(crate) fn set_being_deleted(&self, is_being_deleted: bool) {
        self.is_being_deleted.store(is_being_deleted, Ordering::SeqCst);
    }

    pub(crate) fn is_being_deleted(&self) -> bool {
        self.is_being_deleted.load(Ordering::SeqCst)
    }

    /// Nothing more will be published: those who follow it leave when they have taken all.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring.wake_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// The runner has said how the session stands as of record `seq`.
    pub(crate) fn note_described(&self, seq: u64) {
        self.described_seq.store(seq, Ordering::Relaxed);
    }

    /// Whether a record was known when the runner last said how the session stands.
    pub(crate) fn is_described(&self, seq: u64) -> bool {
        seq <= self.described_seq.load(Ordering::Relaxed)
    }
}
