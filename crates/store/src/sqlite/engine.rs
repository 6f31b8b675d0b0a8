use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc};

use crate::error::{Result, StoreError};
use crate::pending::Pending;
use crate::sqlite::database::{Database, StoreOptions, limit_pages};
use crate::sqlite::error::SqlResult;
use crate::sqlite::execution::Execution;
use crate::sqlite::inline::{Inline, InlineReaders};
use crate::sqlite::migrate::Migrations;
use crate::sqlite::reader::Readers;
use crate::sqlite::writer::{Background, Writer};

/// What both stores stand on: one database with its writer and its readers.
pub(crate) struct Engine {
    writer: Writer,
    readers: Reading,
    /// Each yields `None` when whoever works on its other end has closed its connection.
    readers_gone: Mutex<mpsc::Receiver<()>>,
    writer_gone: Mutex<mpsc::Receiver<()>>,
}

/// Who reads.
enum Reading {
    Threads(Readers),
    Inline(InlineReaders),
}

/// A database that is open and migrated but has no threads yet, so start-up reads need none.
pub(crate) struct Opened {
    pub(crate) connection: Connection,
    database: Database,
}

impl Engine {
    pub(crate) fn open(path: &Path, options: StoreOptions, migrations: Migrations) -> Result<Opened> {
        let database = Database::new(path, options);
        Ok(Opened { connection: database.open_writer(migrations)?, database })
    }

    pub(crate) fn start(name: &str, opened: Opened, background: Option<Arc<dyn Background>>) -> Result<Self> {
        let Opened { connection, database } = opened;
        let (readers_alive, readers_gone) = mpsc::channel(1);
        let (writer_alive, writer_gone) = mpsc::channel(1);
        let (writer, readers) = match database.execution().clone() {
            Execution::Threads => {
                let writer = Writer::start_thread(name, connection, background, writer_alive)
                    .map_err(|error| cannot_start("the writing thread", &error))?;
                (writer, Reading::Threads(Readers::new(name, database, readers_alive)))
            }
            Execution::Inline(disk) => {
                let inline = Inline::new(connection, disk);
                let writer = Writer::start_task(&inline, background, writer_alive)
                    .map_err(|error| cannot_start("the writing task", &error))?;
                (writer, Reading::Inline(InlineReaders::new(inline, readers_alive)))
            }
        };
        Ok(Self {
            writer,
            readers,
            readers_gone: Mutex::new(readers_gone),
            writer_gone: Mutex::new(writer_gone),
        })
    }

    /// Queues a write; `bytes` is roughly what it carries and bounds what may wait.
    pub(crate) async fn enqueue<T: Send + 'static>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Connection) -> SqlResult<T> + Send + 'static,
        committed: impl FnOnce(&T) + Send + 'static,
    ) -> Result<Pending<T>> {
        self.writer.enqueue(bytes, apply, committed).await
    }

    /// The same for what is short whatever it meets in the tables.
    pub(crate) async fn enqueue_short<T: Send + 'static>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Connection) -> SqlResult<T> + Send + 'static,
        committed: impl FnOnce(&T) + Send + 'static,
    ) -> Result<Pending<T>> {
        self.writer.enqueue_short(bytes, apply, committed).await
    }

    pub(crate) async fn write<T: Send + 'static>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.enqueue(bytes, apply, |_| {}).await?.await
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        match &self.readers {
            Reading::Threads(readers) => readers.read(work).await,
            Reading::Inline(readers) => readers.read(work).await,
        }
    }

    pub(crate) fn wake(&self) {
        self.writer.wake();
    }

    pub(crate) async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.write(0, move |connection| limit_pages(connection, pages)).await
    }

    /// Finishes what is queued, checkpoints and closes. Readers go first, so the log can be truncated.
    /// Returns when both connections are closed; a second call waits for the first.
    pub(crate) async fn close(&self) {
        match &self.readers {
            Reading::Threads(readers) => readers.close(),
            Reading::Inline(readers) => readers.close(),
        }
        while self.readers_gone.lock().await.recv().await.is_some() {}
        self.writer.close();
        while self.writer_gone.lock().await.recv().await.is_some() {}
    }
}

fn cannot_start(what: &str, error: &std::io::Error) -> StoreError {
    StoreError::Invalid(format!("cannot start {what}: {error}"))
}
