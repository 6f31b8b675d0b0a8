//! What outlives the process: commands that are about to be done, and outcomes.
//!
//! A command that changes something is written before it is done, so that after a crash the hub knows what it had
//! begun and can ask the runner what became of it. Outcomes of reads are kept as well, for clients that repeat them,
//! but nobody waits for those to be written.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use qd_core::view::pi_server::admission::{PiServerOutcome, RestoredSubmission, SubmissionToken};
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::{StoreError, SubmissionRow};
use qd_wire::ErrorCode;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, sleep};

use crate::faces::pi_server::PiServer;
use crate::faces::pi_server::commands::pending_commands::DeferredStep;
use crate::faces::pi_server::commands::send_order::CommandLane;
use crate::hub::Hub;

/// Outcomes of reads that wait to be stored. A read that is lost is read again, so more are not kept: the store has
/// better things to do.
const BEHIND_ROWS_MAX: usize = 256;
const BEHIND_BYTES_MAX: usize = 4 << 20;
/// The data of a read that is greater is not stored at all: it is cheaper to read it again.
pub(crate) const BEHIND_DATA_BYTES_MAX: usize = 64 << 10;
/// What one commit has, so that those who wait for it do not wait for long.
const BATCH_ROWS_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Between two writes of such outcomes others get their turn.
const BEHIND_PAUSE: Duration = Duration::from_millis(50);

/// What was found in the store at the start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JournalRecovery {
    pub(crate) scanned: u64,
    pub(crate) outcomes: u64,
    pub(crate) in_doubt: u64,
}

/// An outcome as it is stored, beside its data.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredOutcome {
    pub(crate) success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    /// Absent in rows of versions before codes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_version: Option<u64>,
    #[serde(default)]
    pub(crate) timed_out: bool,
    #[serde(default)]
    pub(crate) indeterminate: bool,
}

#[derive(Default)]
pub(crate) struct CommandJournal {
    state: Mutex<JournalState>,
    /// Something is there that somebody waits for.
    queued: Notify,
    /// Something is there that nobody waits for.
    filled: Notify,
    /// No more outcomes of reads are taken until some are written.
    is_full: AtomicBool,
    /// Held by who writes behind.
    writing: tokio::sync::Mutex<()>,
    pub(crate) entries_written: AtomicU64,
    pub(crate) write_errors: AtomicU64,
    /// Outcomes of reads that were not stored because the store lagged.
    pub(crate) dropped: AtomicU64,
}

/// What is to be stored before something happens, in the order in which it happens.
pub(crate) enum JournalEntry {
    /// A command is about to be done.
    Begin { token: SubmissionToken, row: SubmissionRow, lane: Option<CommandLane> },
    /// A command is done; without a row when nothing is kept of it.
    End { token: SubmissionToken, row: Option<SubmissionRow> },
    /// Everything of a principal goes.
    Purge { principal: Arc<str>, done: oneshot::Sender<Result<(), StoreError>> },
}

impl JournalEntry {
    fn row(&self) -> Option<&SubmissionRow> {
        match self {
            JournalEntry::Begin { row, .. } => Some(row),
            JournalEntry::End { row, .. } => row.as_ref(),
            JournalEntry::Purge { .. } => None,
        }
    }

    fn bytes(&self) -> usize {
        self.row().and_then(|row| row.data_json.as_ref()).map_or(0, Bytes::len)
    }
}

#[derive(Default)]
struct JournalState {
    queue: VecDeque<JournalEntry>,
    behind: Vec<SubmissionRow>,
    behind_bytes: usize,
    /// Rows that are in the store, or on their way there.
    written: HashSet<Arc<str>>,
    /// Rows to delete.
    forgotten: Vec<Arc<str>>,
}

impl CommandJournal {
    /// Puts an entry behind all others. Called with the pending commands locked, so that the order is that of the commands.
    pub(crate) fn push(&self, entry: JournalEntry) {
        let mut state = self.state.lock();
        if let Some(row) = entry.row() {
            let uid = Arc::clone(&row.uid);
            state.written.insert(uid);
        }
        state.queue.push_back(entry);
        drop(state);
        self.queued.notify_one();
    }

    /// What waits, as much as one commit should have; a purge is by itself.
    fn take_batch(&self) -> Vec<JournalEntry> {
        let mut state = self.state.lock();
        let mut batch: Vec<JournalEntry> = Vec::new();
        let mut bytes = 0;
        while let Some(entry) = state.queue.front() {
            bytes += entry.bytes();
            let is_purge = |entry: &JournalEntry| matches!(entry, JournalEntry::Purge { .. });
            let is_enough = batch.len() >= BATCH_ROWS_MAX || bytes > BATCH_BYTES_MAX;
            if !batch.is_empty() && (is_enough || is_purge(entry) || batch.iter().any(is_purge)) {
                break;
            }
            batch.extend(state.queue.pop_front());
        }
        batch
    }

    /// Deletes all of a principal, what waits to be written included.
    async fn purge(&self, hub: &Hub, principal: &str) -> Result<(), StoreError> {
        let _alone = self.writing.lock().await;
        self.state.lock().behind.retain(|row| *row.principal != *principal);
        hub.store.delete_submissions_of(principal).await
    }

    /// Whether outcomes that nobody waits for are taken; one that is not is counted.
    pub(crate) fn has_room(&self) -> bool {
        let has_room = !self.is_full.load(Ordering::Relaxed);
        if !has_room {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Keeps an outcome that nobody waits for, unless too many wait already.
    pub(crate) fn write_behind(&self, row: SubmissionRow) {
        let bytes = row.data_json.as_ref().map_or(0, Bytes::len);
        let mut state = self.state.lock();
        if state.behind.len() >= BEHIND_ROWS_MAX || state.behind_bytes + bytes > BEHIND_BYTES_MAX {
            drop(state);
            self.is_full.store(true, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.written.insert(Arc::clone(&row.uid));
        state.behind_bytes += bytes;
        state.behind.push(row);
        drop(state);
        self.filled.notify_one();
    }

    /// These are replayed no more.
    pub(crate) fn forget(&self, uids: Vec<Arc<str>>) {
        let mut state = self.state.lock();
        // Most of many reads were never stored.
        let stored: Vec<_> = uids.into_iter().filter(|uid| state.written.remove(uid)).collect();
        let needs_announcement = !stored.is_empty();
        state.forgotten.extend(stored);
        drop(state);
        if needs_announcement {
            self.filled.notify_one();
        }
    }

    /// Writes what waits, for ever.
    pub(crate) async fn run_behind_writer(&self, hub: &Hub) {
        loop {
            self.filled.notified().await;
            self.write(hub).await;
            sleep(BEHIND_PAUSE).await;
        }
    }

    /// Writes what waits now.
    pub(crate) async fn write(&self, hub: &Hub) {
        let _alone = self.writing.lock().await;
        let (behind, forgotten) = {
            let mut state = self.state.lock();
            state.behind_bytes = 0;
            self.is_full.store(false, Ordering::Relaxed);
            (std::mem::take(&mut state.behind), std::mem::take(&mut state.forgotten))
        };
        let writes = behind.into_iter().map(|row| hub.store.finish_submission(row));
        join_all(writes).await.into_iter().for_each(|result| self.note(result));
        if !forgotten.is_empty() {
            self.note(hub.store.delete_submissions(forgotten).await);
        }
    }

    fn note(&self, result: Result<(), StoreError>) {
        match result {
            Ok(()) => _ = self.entries_written.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                self.write_errors.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "the outcome of a command cannot be stored; after a restart it is not replayed");
            }
        }
    }
}

impl PiServer {
    /// Stores what is to be stored before something happens, and lets it happen, for ever.
    pub(crate) async fn run_journal(&self, hub: &Arc<Hub>) {
        loop {
            self.journal.queued.notified().await;
            loop {
                let batch = self.journal.take_batch();
                if batch.is_empty() {
                    break;
                }
                self.write_batch(hub, batch).await;
                // Others get their turn however much there is.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn write_batch(&self, hub: &Arc<Hub>, batch: Vec<JournalEntry>) {
        let rows: Arc<[SubmissionRow]> = batch.iter().filter_map(JournalEntry::row).cloned().collect();
        let mut results = store_rows(hub, &rows).await.into_iter();
        for entry in batch {
            match entry {
                JournalEntry::Begin { token, lane, .. } => {
                    self.begun(hub, token, results.next().unwrap_or(Ok(())));
                    while let Some(behind) =
                        lane.as_ref().and_then(|lane| self.pending.lock().release(lane, token))
                    {
                        self.run(hub, behind.into_iter().map(DeferredStep::Execute).collect());
                    }
                }
                JournalEntry::End { token, row } => {
                    // The command took effect whether or not the store can keep that: its client gets to know.
                    if let Some(result) = row.and_then(|_| results.next()) {
                        self.journal.note(result);
                    }
                    let now = now_ms();
                    let todo = self
                        .pending
                        .lock()
                        .step(now, |admission, effects| admission.stored(now, token, effects));
                    self.run(hub, todo);
                }
                JournalEntry::Purge { principal, done } => {
                    let result = self.journal.purge(hub, &principal).await;
                    // Who asked may have gone.
                    let _ = done.send(result);
                }
            }
        }
    }

    /// The row of a command that is about to be done is stored, or cannot be.
    fn begun(&self, hub: &Arc<Hub>, token: SubmissionToken, result: Result<(), StoreError>) {
        let refusal = result
            .as_ref()
            .err()
            .map(|error| format!("The command cannot be stored and was not done: {error}. Send it again"));
        self.journal.note(result);
        let now = now_ms();
        let todo = self.pending.lock().step(now, |admission, effects| match &refusal {
            None => admission.journaled(now, token, effects),
            Some(error) => admission.refuse(now, token, error, effects),
        });
        self.run(hub, todo);
    }
}

/// Stores rows with one commit; when that fails each by itself, so that one that is at fault is alone.
async fn store_rows(hub: &Hub, rows: &Arc<[SubmissionRow]>) -> Vec<Result<(), StoreError>> {
    if rows.is_empty() {
        return Vec::new();
    }
    match hub.store.write_submissions(Arc::clone(rows)).await {
        Ok(()) => vec![Ok(()); rows.len()],
        Err(error) if rows.len() == 1 => vec![Err(error)],
        Err(_) => join_all(rows.iter().map(|row| hub.store.put_submission(row.clone()))).await,
    }
}

/// The row with what came of the command.
pub(crate) fn finished_row(row: SubmissionRow, outcome: &PiServerOutcome, now: i64) -> SubmissionRow {
    let stored = StoredOutcome {
        success: outcome.success,
        error: outcome.error.as_deref().map(str::to_owned),
        code: outcome.code,
        session_version: outcome.session_version,
        timed_out: outcome.timed_out,
        indeterminate: outcome.indeterminate,
    };
    SubmissionRow {
        finished_at: Some(now),
        success: Some(outcome.success),
        outcome_json: Some(Bytes::from(crate::faces::pi_server::commands::lifecycle::json(&stored))),
        data_json: outcome.data.as_ref().map(crate::faces::pi_server::commands::lifecycle::shared),
        ..row
    }
}

/// What is stored of an outcome; `None` for a command that was cut off.
pub(crate) fn stored_outcome(row: &SubmissionRow) -> Option<StoredOutcome> {
    let text = row.outcome_json.as_ref()?;
    serde_json::from_slice(text).inspect_err(|error| tracing::warn!(%error, "a stored outcome is odd")).ok()
}

/// Gives the machine what the store knows.
pub(crate) async fn restore(server: &PiServer, hub: &Hub) -> Result<JournalRecovery, StoreError> {
    let rows_max = server.config.outcomes_max.saturating_add(server.config.in_flight_max);
    hub.store.keep_submissions(rows_max).await?;
    let rows = hub.store.submissions(rows_max).await?;
    let mut recovery = JournalRecovery::default();
    let mut pending = server.pending.lock();
    let mut journal = server.journal.state.lock();
    for row in rows {
        recovery.scanned += 1;
        let outcome = stored_outcome(&row).map(|stored| PiServerOutcome {
            success: stored.success,
            data: row.data_json.as_deref().and_then(|data| std::str::from_utf8(data).ok()).map(Arc::from),
            error: stored.error.map(Arc::from),
            code: stored.code,
            session_version: stored.session_version,
            timed_out: stored.timed_out,
            indeterminate: stored.indeterminate,
            settled: true,
        });
        match outcome {
            Some(_) => recovery.outcomes += 1,
            None => recovery.in_doubt += 1,
        }
        journal.written.insert(Arc::clone(&row.uid));
        let token = pending.next_token();
        pending.admission.restore(RestoredSubmission {
            token,
            principal: row.principal,
            id: row.command_id,
            key: row.idempotency_key,
            scope: row.scope,
            command: row.command,
            fingerprint: row.fingerprint,
            uid: row.uid,
            finished_at: row.finished_at,
            outcome,
            session_id: row.session_id,
            accepted_at: row.accepted_at,
        });
    }
    let evicted = pending.admission.evicted();
    drop((journal, pending));
    server.journal.forget(evicted);
    Ok(recovery)
}
