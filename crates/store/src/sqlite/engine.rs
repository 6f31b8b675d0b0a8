//! The part that the stores of hub and runner share. It knows connections, queues and their end, and no table.

mod direct;
pub(crate) mod execution;
pub(crate) mod group;
mod inline;
pub(crate) mod reader;
pub(crate) mod writer;

use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use tokio::sync::{Mutex, mpsc};

use crate::error::{Result, StoreError};
use crate::sqlite::database::{Database, StoreOptions, limit_pages};
use crate::sqlite::engine::execution::StoreExecution;
use crate::sqlite::engine::inline::{InlineDatabase, InlineReaders};
use crate::sqlite::engine::reader::Readers;
use crate::sqlite::engine::writer::{BackgroundWork, Writer};
use crate::sqlite::error::SqlResult;
use crate::sqlite::migrate::Migrations;
use crate::store_future::StoreFuture;

/// What both stores stand on: one database with its writer and its readers.
pub(crate) struct Engine {
    writer: Writer,
    readers: EngineReaders,
    /// Each yields `None` when whoever works on its other end has closed its connection.
    readers_gone: Mutex<mpsc::Receiver<()>>,
    writer_gone: Mutex<mpsc::Receiver<()>>,
}

/// Who reads.
enum EngineReaders {
    Threads(Readers),
    Inline(InlineReaders),
}

/// A database that is open and migrated but has no threads yet, so start-up reads need none.
pub(crate) struct OpenedDatabase {
    pub(crate) connection: Connection,
    database: Database,
}

impl Engine {
    pub(crate) fn open(path: &Path, options: StoreOptions, migrations: Migrations) -> Result<OpenedDatabase> {
        let database = Database::new(path, options);
        Ok(OpenedDatabase { connection: database.open_writer(migrations)?, database })
    }

    pub(crate) fn start(
        name: &str,
        opened: OpenedDatabase,
        background: Option<Arc<dyn BackgroundWork>>,
    ) -> Result<Self> {
        let OpenedDatabase { connection, database } = opened;
        let (readers_alive, readers_gone) = mpsc::channel(1);
        let (writer_alive, writer_gone) = mpsc::channel(1);
        let (writer, readers) = match database.execution().clone() {
            StoreExecution::Threads => {
                let writer = Writer::start_thread(name, connection, background, writer_alive)
                    .map_err(|error| cannot_start("the writing thread", &error))?;
                (writer, EngineReaders::Threads(Readers::new(name, database, readers_alive)))
            }
            StoreExecution::Inline(disk) => {
                let inline = InlineDatabase::new(connection, disk);
                let writer = Writer::start_task(&inline, background, writer_alive)
                    .map_err(|error| cannot_start("the writing task", &error))?;
                (writer, EngineReaders::Inline(InlineReaders::new(inline, readers_alive)))
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
    ) -> Result<StoreFuture<T>> {
        self.writer.enqueue(bytes, apply, committed).await
    }

    /// The same for what is short whatever it meets in the tables.
    pub(crate) async fn enqueue_short<T: Send + 'static>(
        &self,
        bytes: usize,
        apply: impl FnMut(&Connection) -> SqlResult<T> + Send + 'static,
        committed: impl FnOnce(&T) + Send + 'static,
    ) -> Result<StoreFuture<T>> {
        self.writer.enqueue_short(bytes, apply, committed).await
    }

    /// A write that carries next to nothing.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        apply: impl FnMut(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        self.write_bytes(0, apply).await
    }

    /// Like `write`, for requests whose size must count against `WRITE_QUEUE_BYTES_MAX`.
    pub(crate) async fn write_bytes<T: Send + 'static>(
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
            EngineReaders::Threads(readers) => readers.read(work).await,
            EngineReaders::Inline(readers) => readers.read(work).await,
        }
    }

    /// Lets an idle writer look after its background work, which no request announces.
    pub(crate) fn wake(&self) {
        self.writer.wake();
    }

    pub(crate) async fn limit_pages(&self, pages: u32) -> Result<()> {
        self.write(move |connection| limit_pages(connection, pages)).await
    }

    /// Finishes what is queued, checkpoints and closes. Readers go first, so the log can be truncated.
    /// Returns when both connections are closed; a second call waits for the first.
    pub(crate) async fn close(&self) {
        match &self.readers {
            EngineReaders::Threads(readers) => readers.close(),
            EngineReaders::Inline(readers) => readers.close(),
        }
        // Nothing is ever sent on these channels: `recv` returns when the last sender is dropped, after the connection.
        while self.readers_gone.lock().await.recv().await.is_some() {}
        self.writer.close();
        while self.writer_gone.lock().await.recv().await.is_some() {}
    }
}

fn cannot_start(what: &str, error: &std::io::Error) -> StoreError {
    StoreError::Invalid(format!("cannot start {what}: {error}"))
}
