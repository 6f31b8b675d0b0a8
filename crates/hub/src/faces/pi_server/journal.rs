//! What outlives the process: commands that are about to be done, and outcomes.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures_util::future::join_all;
use qd_core::view::pi_server::admission::{Outcome, Restored, Token};
use qd_store::{StoreError, SubmissionRow};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::PiServer;
use super::desk::After;
use super::execute::failure;
use crate::clock::now_ms;
use crate::registry::Hub;

/// Outcomes of reads that wait to be stored. A read that is lost is read again, so more are not kept: the store has
/// better things to do.
const BEHIND_ROWS_MAX: usize = 256;
const BEHIND_BYTES_MAX: usize = 4 << 20;
/// Between two writes of such outcomes others get their turn.
const BEHIND_PAUSE: Duration = Duration::from_millis(50);

/// What was found in the store at the start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Recovery {
    pub(super) scanned: u64,
    pub(super) outcomes: u64,
    pub(super) in_doubt: u64,
}

/// An outcome as it is stored, beside its data.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredOutcome {
    pub(super) success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) session_version: Option<u64>,
    #[serde(default)]
    pub(super) timed_out: bool,
    #[serde(default)]
    pub(super) indeterminate: bool,
}

#[derive(Default)]
pub(super) struct Journal {
    state: Mutex<State>,
    filled: Notify,
    /// No more outcomes of reads are taken until some are written.
    is_full: AtomicBool,
    /// Held by who writes behind.
    writing: tokio::sync::Mutex<()>,
    pub(super) entries_written: AtomicU64,
    pub(super) write_errors: AtomicU64,
    /// Outcomes of reads that were not stored because the store lagged.
    pub(super) dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    behind: Vec<SubmissionRow>,
    behind_bytes: usize,
    /// Rows that are in the store, or on their way there.
    written: HashSet<Arc<str>>,
    /// Rows to delete.
    forgotten: Vec<Arc<str>>,
}

impl Journal {
    /// Whether outcomes that nobody waits for are taken; one that is not is counted.
    pub(super) fn has_room(&self) -> bool {
        let has_room = !self.is_full.load(Ordering::Relaxed);
        if !has_room {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    /// Keeps an outcome that nobody waits for, unless too many wait already.
    pub(super) fn write_behind(&self, row: SubmissionRow) {
        let bytes = row.data_json.as_ref().map_or(0, Bytes::len);
        let mut state = self.lock();
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
    pub(super) fn forget(&self, uids: Vec<Arc<str>>) {
        let mut state = self.lock();
        // Most of many reads were never stored.
        let stored: Vec<_> = uids.into_iter().filter(|uid| state.written.remove(uid)).collect();
        let is_news = !stored.is_empty();
        state.forgotten.extend(stored);
        drop(state);
        if is_news {
            self.filled.notify_one();
        }
    }

    /// Writes what waits, for ever.
    pub(super) async fn keep_writing(&self, hub: &Hub) {
        loop {
            self.filled.notified().await;
            self.write(hub).await;
            sleep(BEHIND_PAUSE).await;
        }
    }

    /// Writes what waits now.
    pub(super) async fn write(&self, hub: &Hub) {
        let _alone = self.writing.lock().await;
        let (behind, forgotten) = {
            let mut state = self.lock();
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PiServer {
    /// A command is about to be done: it is, when that is stored.
    pub(super) fn put_row(&self, hub: &Arc<Hub>, token: Token, row: SubmissionRow) {
        self.journal.lock().written.insert(Arc::clone(&row.uid));
        let task_hub = Arc::clone(hub);
        hub.tasks.spawn(async move {
            let hub = task_hub;
            let server = &hub.pi_server;
            match hub.store.put_submission(row).await {
                Ok(()) => {
                    server.journal.note(Ok(()));
                    let now = now_ms();
                    let todo = server
                        .desk()
                        .step(now, |admission, effects| admission.journaled(now, token, effects));
                    server.run(&hub, todo);
                }
                Err(error) => {
                    let text =
                        format!("The command cannot be stored and was not done: {error}. Send it again");
                    server.journal.note(Err(error));
                    server.finish(&hub, token, failure(&text), After::Nothing);
                }
            }
        });
    }

    /// A command is done: it is announced when that is stored.
    pub(super) fn finish_row(&self, hub: &Arc<Hub>, token: Token, row: SubmissionRow) {
        self.journal.lock().written.insert(Arc::clone(&row.uid));
        let task_hub = Arc::clone(hub);
        hub.tasks.spawn(async move {
            let hub = task_hub;
            let server = &hub.pi_server;
            // The command took effect whether or not the store can keep that: its client gets to know.
            server.journal.note(hub.store.finish_submission(row).await);
            let now = now_ms();
            let todo = server.desk().step(now, |admission, effects| admission.stored(now, token, effects));
            server.run(&hub, todo);
        });
    }
}

/// The row with what came of the command.
pub(super) fn finished_row(row: SubmissionRow, outcome: &Outcome, now: i64) -> SubmissionRow {
    let stored = StoredOutcome {
        success: outcome.success,
        error: outcome.error.as_deref().map(str::to_owned),
        session_version: outcome.session_version,
        timed_out: outcome.timed_out,
        indeterminate: outcome.indeterminate,
    };
    SubmissionRow {
        finished_at: Some(now),
        success: Some(outcome.success),
        outcome_json: Some(Bytes::from(super::lifecycle::json(&stored))),
        data_json: outcome.data.as_ref().map(|data| Bytes::copy_from_slice(data.as_bytes())),
        ..row
    }
}

/// What is stored of an outcome; `None` for a command that was cut off.
pub(super) fn stored_outcome(row: &SubmissionRow) -> Option<StoredOutcome> {
    let text = row.outcome_json.as_ref()?;
    serde_json::from_slice(text).inspect_err(|error| tracing::warn!(%error, "a stored outcome is odd")).ok()
}

/// Gives the machine what the store knows.
pub(super) async fn restore(server: &PiServer, hub: &Hub) -> Result<Recovery, StoreError> {
    let rows_max = server.config.outcomes_max.saturating_add(server.config.in_flight_max);
    hub.store.keep_submissions(rows_max).await?;
    let rows = hub.store.submissions(rows_max).await?;
    let mut recovery = Recovery::default();
    let mut desk = server.desk();
    let mut journal = server.journal.lock();
    for row in rows {
        recovery.scanned += 1;
        let outcome = stored_outcome(&row).map(|stored| Outcome {
            success: stored.success,
            data: row.data_json.as_deref().and_then(|data| std::str::from_utf8(data).ok()).map(Arc::from),
            error: stored.error.map(Arc::from),
            session_version: stored.session_version,
            timed_out: stored.timed_out,
            indeterminate: stored.indeterminate,
        });
        match outcome {
            Some(_) => recovery.outcomes += 1,
            None => recovery.in_doubt += 1,
        }
        journal.written.insert(Arc::clone(&row.uid));
        let token = desk.next_token();
        desk.admission.restore(Restored {
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
        });
    }
    let evicted = desk.admission.evicted();
    drop((journal, desk));
    server.journal.forget(evicted);
    Ok(recovery)
}
