//! How a database file is opened: its settings, its limits and who may read it. Only `open_writer` migrates.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::error::{Result, StoreError};
use crate::sqlite::engine::execution::StoreExecution;
use crate::sqlite::error::SqlResult;
use crate::sqlite::migrate::{Migrations, migrate};

/// Page cache of one connection. Small: an idle `qd up` has four of them and stays under 20 MB.
pub const CACHE_KIB_DEFAULT: u32 = 512;
/// A simulated world has many databases of a few pages each.
const CACHE_KIB_INLINE_MAX: u32 = 64;
/// How long a connection waits for another process (a backup, a curious `sqlite3`) before it gives up.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The log file shrinks back to this after a burst.
const WAL_BYTES_KEPT: u32 = 16 << 20;
/// More than the statements of either store, so that none is prepared twice.
const STATEMENTS_MAX: usize = 64;

/// How to open a store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub cache_kib: u32,
    /// The database may not grow beyond this many pages. For tests of a full disk.
    pub pages_max: Option<u32>,
    /// Threads, unless the store is part of a simulated world.
    pub execution: StoreExecution,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { cache_kib: CACHE_KIB_DEFAULT, pages_max: None, execution: StoreExecution::Threads }
    }
}

/// One database file: where it is and how its connections are opened.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    path: PathBuf,
    options: StoreOptions,
}

impl Database {
    pub(crate) fn new(path: &Path, options: StoreOptions) -> Self {
        Self { path: path.to_owned(), options }
    }

    pub(crate) fn execution(&self) -> &StoreExecution {
        &self.options.execution
    }

    /// The one connection that writes; creates and migrates the file.
    pub(crate) fn open_writer(&self, migrations: Migrations) -> Result<Connection> {
        create_private(&self.path).map_err(|error| self.cannot_open(&error))?;
        let mut connection = self.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.set_up_writer(&connection).map_err(|error| self.cannot_open(&error))?;
        migrate(&mut connection, &self.path, migrations)?;
        if let Some(pages) = self.options.pages_max {
            limit_pages(&connection, pages)?;
        }
        Ok(connection)
    }

    /// A connection that cannot write.
    pub(crate) fn open_reader(&self) -> Result<Connection> {
        self.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn connect(&self, access: OpenFlags) -> Result<Connection> {
        let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.cannot_open(&error))?;
        self.set_up(&connection).map_err(|error| self.cannot_open(&error))?;
        Ok(connection)
    }

    fn set_up(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.busy_timeout(if self.is_inline() { Duration::ZERO } else { BUSY_TIMEOUT })?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.pragma_update(None, "cache_size", -i64::from(self.cache_kib()))?;
        connection.pragma_update(None, "foreign_keys", true)
    }

    fn is_inline(&self) -> bool {
        self.options.execution.is_inline()
    }

    fn cache_kib(&self) -> u32 {
        if self.is_inline() {
            self.options.cache_kib.min(CACHE_KIB_INLINE_MAX)
        } else {
            self.options.cache_kib
        }
    }

    fn set_up_writer(&self, connection: &Connection) -> rusqlite::Result<()> {
        if self.is_inline() { set_up_inline(connection) } else { set_up_threaded(connection) }
    }

    fn cannot_open(&self, error: &dyn std::error::Error) -> StoreError {
        let reason = format!("{error}; check that the directory exists and is writable");
        StoreError::Open { database: self.path.display().to_string(), reason }
    }
}

/// NORMAL does not wait for the disk at each commit: a commit survives the death of the process, and a power cut
/// may take the last ones but never tears the file.
fn set_up_threaded(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    // What is deleted is overwritten where its page is written anyway: a secret that is to go does.
    connection.query_row("PRAGMA secure_delete = FAST", [], |_| Ok(()))?;
    // The writing thread does that between commits.
    connection.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    connection.query_row(&format!("PRAGMA journal_size_limit = {WAL_BYTES_KEPT}"), [], |_| Ok(()))
}

/// There is one connection and no real crash, so the journal is needed for rolling back only, and the file can stay
/// locked: that saves most of the system calls of a small commit. Who opens it a second time is told at once.
fn set_up_inline(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA locking_mode = EXCLUSIVE", [], |_| Ok(()))?;
    connection.query_row("PRAGMA journal_mode = MEMORY", [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.execute_batch("BEGIN EXCLUSIVE; COMMIT")
}

pub(crate) fn limit_pages(connection: &Connection, pages: u32) -> SqlResult<()> {
    connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
    Ok(())
}

/// Creates the file readable by its owner only; SQLite gives the log files beside it the same mode.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}
