//! The writer's connection, and short commits that a caller makes on it while the writing thread has nothing to do.
//!
//! Waking a thread and being woken by it takes longer than the commit itself. So a store that is quiet lets its
//! callers commit in place. Under load they queue as ever: one transaction for many requests is worth more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::sqlite::clock;
use crate::sqlite::engine::group::{Job, run_group};
use crate::sqlite::error::SqlResult;
use crate::sqlite::lock::lock;

/// What a caller may commit in place.
pub(crate) const SHORT_BYTES_MAX: usize = 16 << 10;
/// Pages in the write-ahead log before they are moved to the database: 16 MiB. The thread does it, because it waits
/// for the disk.
const LOG_PAGES_MAX: u32 = 4096;
/// Commits in place that a store which was quiet allows in a row, and how soon it allows the next.
const CREDITS_MAX: u32 = 8;
const CREDIT_EVERY: Duration = Duration::from_micros(500);
/// A commit in place that took this long has met a slow disk, and a worker of the runtime has waited for it.
const SLOW: Duration = Duration::from_millis(10);
/// For so long only the thread waits for it then.
const SLOW_PAUSE: Duration = Duration::from_secs(10);

/// The one connection that writes.
pub(crate) struct WriterConnection {
    state: Mutex<ConnectionState>,
    log_pages: Arc<AtomicU32>,
}

struct ConnectionState {
    /// Empty when the store is closed.
    connection: Option<Connection>,
    credits: CommitCredits,
}

impl WriterConnection {
    pub(crate) fn new(mut connection: Connection) -> SqlResult<Self> {
        let log_pages = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&log_pages);
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            seen.store(pages.cast_unsigned(), Ordering::Relaxed);
            Ok(())
        }))?;
        let state =
            ConnectionState { connection: Some(connection), credits: CommitCredits::new(clock::now()) };
        Ok(Self { state: Mutex::new(state), log_pages })
    }

    /// Does the thread's work; `None` when the store is closed.
    pub(crate) fn with<T>(&self, work: impl FnOnce(&Connection) -> T) -> Option<T> {
        lock(&self.state).connection.as_ref().map(work)
    }

    /// The connection for one commit in place, if the store is quiet and nobody uses it.
    pub(crate) fn try_take(&self) -> Option<TakenConnection<'_>> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (state.connection.is_some() && state.credits.take(clock::now())).then_some(TakenConnection { state })
    }

    /// Takes the connection away for good.
    pub(crate) fn take(&self) -> Option<Connection> {
        lock(&self.state).connection.take()
    }

    /// Whether the log wants to be moved to the database.
    pub(crate) fn is_log_long(&self) -> bool {
        self.log_pages.load(Ordering::Relaxed) >= LOG_PAGES_MAX
    }

    /// It was moved, as far as readers let it be; the next commit says how long it is.
    pub(crate) fn log_was_moved(&self) {
        self.log_pages.store(0, Ordering::Relaxed);
    }
}

/// The connection, for one commit.
pub(crate) struct TakenConnection<'shared> {
    state: MutexGuard<'shared, ConnectionState>,
}

impl TakenConnection<'_> {
    pub(crate) fn commit(mut self, job: Box<dyn Job>) {
        let started = clock::now();
        let Some(connection) = &self.state.connection else { return };
        // A full disk is the thread's to complain of and to make room on; the caller hears of it as ever.
        run_group(connection, vec![job]);
        let ended = clock::now();
        self.state.credits.spent(started, ended);
    }
}

/// Whether a store is quiet: a bucket of commits that fills slowly.
struct CommitCredits {
    left: u32,
    /// When the last one was given; in the future after a slow commit.
    given: Instant,
}

impl CommitCredits {
    fn new(now: Instant) -> Self {
        Self { left: CREDITS_MAX, given: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.given).as_micros() / CREDIT_EVERY.as_micros();
        let due = u32::try_from(due).unwrap_or(u32::MAX);
        if due > 0 {
            self.left = self.left.saturating_add(due).min(CREDITS_MAX);
            self.given = now;
        }
        let has_one = self.left > 0;
        self.left = self.left.saturating_sub(1);
        has_one
    }

    fn spent(&mut self, started: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(started);
        if took >= SLOW {
            tracing::debug!(?took, "the disk is slow; commits are left to the writing thread for a while");
            self.left = 0;
            self.given = ended + SLOW_PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(credits: &mut CommitCredits, now: Instant, wanted: u32) -> u32 {
        (0..wanted).map(|_| u32::from(credits.take(now))).sum()
    }

    #[test]
    fn a_quiet_store_allows_some_and_a_busy_one_few() {
        let start = clock::now();
        let mut credits = CommitCredits::new(start);
        assert_eq!(taken(&mut credits, start, 20), CREDITS_MAX);
        assert_eq!(taken(&mut credits, start + CREDIT_EVERY / 2, 20), 0);
        assert_eq!(taken(&mut credits, start + CREDIT_EVERY, 20), 1);
        assert_eq!(taken(&mut credits, start + 3 * CREDIT_EVERY, 20), 2);
        assert_eq!(taken(&mut credits, start + Duration::from_secs(60), 20), CREDITS_MAX);
    }

    #[test]
    fn after_a_slow_commit_the_thread_does_them_for_a_while() {
        let start = clock::now();
        let mut credits = CommitCredits::new(start);
        credits.spent(start, start + SLOW / 2);
        assert!(credits.take(start + SLOW / 2));
        let ended = start + SLOW;
        credits.spent(start, ended);
        assert_eq!(taken(&mut credits, ended, 20), 0);
        assert_eq!(taken(&mut credits, ended + SLOW_PAUSE / 2, 20), 0);
        assert_eq!(taken(&mut credits, ended + SLOW_PAUSE + CREDIT_EVERY, 20), 1);
    }
}
