use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use qd_core::record::SessionKind;
use qd_store::HubSession;
use qd_wire::data::SessionStatus;
use tokio::sync::Notify;

use super::line::{Question, SessionLine};
use crate::head::json_string;
use crate::ring::Ring;

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
    is_doomed: AtomicBool,
    /// Held by who deletes it.
    pub(crate) burying: tokio::sync::Mutex<()>,
    /// Its row in the store, with the last record that was committed when it was read: nothing but records changes
    /// it, so many who ask while its runner is away cost one read.
    row: Mutex<Option<(u64, Arc<HubSession>)>>,
    /// Of a program in a terminal; known from its first record on.
    is_terminal: AtomicBool,
    /// Whether it is known what runs in it.
    has_harness: AtomicBool,
    status: AtomicU8,
    pending_inputs: AtomicU32,
    /// What its runner last said of it is as of this record: records up to it are history for lists.
    described_seq: AtomicU64,
    /// The time of its last record.
    last_activity: AtomicI64,
    pub(super) line: Mutex<SessionLine>,
}

impl SessionEntry {
    pub(super) fn new(session_id: &str, runner_id: &Arc<str>, ring_bytes_max: usize, last_seq: u64) -> Self {
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
            is_doomed: AtomicBool::new(false),
            burying: tokio::sync::Mutex::default(),
            row: Mutex::default(),
            is_terminal: AtomicBool::new(false),
            has_harness: AtomicBool::new(false),
            status: AtomicU8::new(SessionStatus::Starting as u8),
            pending_inputs: AtomicU32::new(0),
            described_seq: AtomicU64::new(0),
            last_activity: AtomicI64::new(0),
            line: Mutex::default(),
        }
    }

    /// After a start the agent of a stored session does not run.
    pub(super) fn stored(row: &HubSession, ring_bytes_max: usize) -> Self {
        let entry = Self::new(&row.session_id, &Arc::from(&*row.runner_id), ring_bytes_max, row.last_seq);
        let status = if row.closed { SessionStatus::Closed } else { SessionStatus::Dormant };
        entry.status.store(status as u8, Ordering::Relaxed);
        entry.learn_harness(&row.harness);
        entry.note_activity(row.updated_at);
        entry.line().learn(row);
        entry
    }

    /// A record of this time was read.
    pub(crate) fn note_activity(&self, ts: i64) {
        self.last_activity.fetch_max(ts, Ordering::Relaxed);
    }

    pub(super) fn last_activity(&self) -> i64 {
        self.last_activity.load(Ordering::Relaxed)
    }

    /// What runs in it, as its first record says.
    pub(crate) fn learn_harness(&self, harness: &str) {
        self.is_terminal.store(SessionKind::of(harness) == SessionKind::Terminal, Ordering::Relaxed);
        // After the other, which who sees this one sees too.
        self.has_harness.store(true, Ordering::Release);
    }

    /// Whether what is typed into it may be run as commands. Until its first record is read it may be anything.
    pub(crate) fn may_be_shell(&self) -> bool {
        !self.has_harness.load(Ordering::Acquire) || self.kind() == SessionKind::Terminal
    }

    /// How its records are read by the run face.
    pub(crate) fn kind(&self) -> SessionKind {
        if self.is_terminal.load(Ordering::Relaxed) { SessionKind::Terminal } else { SessionKind::Agent }
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
        *self.row.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// One more piece of the stream waits for a commit.
    pub(crate) fn begin_one(&self) {
        // In one order with `is_doomed`: who deletes the session waits for this piece, or the piece is not stored.
        self.uncommitted.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing that was read still waits for a commit.
    pub(crate) fn is_settled(&self) -> bool {
        self.uncommitted.load(Ordering::SeqCst) == 0
    }

    /// Such a piece has been dealt with.
    pub(crate) fn settle_one(&self) {
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
    pub(crate) fn set_doomed(&self, is_doomed: bool) {
        self.is_doomed.store(is_doomed, Ordering::SeqCst);
    }

    pub(crate) fn is_doomed(&self) -> bool {
        self.is_doomed.load(Ordering::SeqCst)
    }

    /// What was read of its row, if nothing was committed since.
    pub(crate) fn known_row(&self) -> Option<Arc<HubSession>> {
        let row = self.row.lock().unwrap_or_else(PoisonError::into_inner);
        let (seq, row) = row.as_ref()?;
        (*seq == self.committed_seq()).then(|| Arc::clone(row))
    }

    /// Keeps the row, which was read when everything up to `seq` was committed.
    pub(crate) fn learn_row(&self, seq: u64, row: &Arc<HubSession>) {
        *self.row.lock().unwrap_or_else(PoisonError::into_inner) = Some((seq, Arc::clone(row)));
    }

    /// Nothing more will be published: those who follow it leave when they have taken all.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring.wake_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(crate) fn status(&self) -> SessionStatus {
        const ALL: [SessionStatus; 7] = [
            SessionStatus::Starting,
            SessionStatus::Idle,
            SessionStatus::Working,
            SessionStatus::Dormant,
            SessionStatus::Failed,
            SessionStatus::Closed,
            SessionStatus::Offline,
        ];
        let code = self.status.load(Ordering::Relaxed);
        ALL.into_iter().find(|status| *status as u8 == code).unwrap_or(SessionStatus::Dormant)
    }

    /// True if that is news.
    pub(crate) fn set_status(&self, status: SessionStatus) -> bool {
        self.status.swap(status as u8, Ordering::Relaxed) != status as u8
    }

    /// The runner has said how the session stands as of record `seq`. True if the status is news.
    pub(crate) fn describe(&self, status: SessionStatus, questions: Vec<Question>, seq: u64) -> bool {
        self.described_seq.store(seq, Ordering::Relaxed);
        self.set_questions(questions);
        self.set_status(status)
    }

    /// Whether a record was known when the runner last said how the session stands.
    pub(crate) fn is_described(&self, seq: u64) -> bool {
        seq <= self.described_seq.load(Ordering::Relaxed)
    }

    pub(crate) fn pending_inputs(&self) -> u32 {
        self.pending_inputs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pending_inputs(&self, count: usize) {
        self.pending_inputs.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// One step, because the reader of the link and the one who commits for it both call this.
    pub(crate) fn change_pending_inputs(&self, has_one_more: bool) {
        let change =
            |count: u32| Some(if has_one_more { count.saturating_add(1) } else { count.saturating_sub(1) });
        // The closure always gives a value, so the update cannot fail.
        let _ = self.pending_inputs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}
