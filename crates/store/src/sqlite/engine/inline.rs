//! The way without threads: one connection that a writing task owns and that reads borrow between its commits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::Connection;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, sleep, timeout};

use crate::error::{Result, StoreError};
use crate::sqlite::engine::execution::SimulatedDisk;
use crate::sqlite::engine::group::Job;
use crate::sqlite::engine::reader::READS_WAITING_MAX;
use crate::sqlite::engine::writer::{BackgroundWork, JobGroup, WriterMessage, close, commit};
use crate::sqlite::error::SqlResult;
use crate::sqlite::lock::lock;

/// The one connection. It is empty from the moment in which the writing task is gone, however that came about,
/// so nobody can use the file behind the back of whoever opens it next.
type ConnectionSlot = Arc<Mutex<Option<Connection>>>;

/// A database whose work is done by tasks. Nothing holds its connection across an await, so no transaction is
/// open when a runtime is dropped.
pub(crate) struct InlineDatabase {
    slot: ConnectionSlot,
    disk: Arc<dyn SimulatedDisk>,
}

impl InlineDatabase {
    pub(crate) fn new(connection: Connection, disk: Arc<dyn SimulatedDisk>) -> Self {
        Self { slot: Arc::new(Mutex::new(Some(connection))), disk }
    }

    /// Starts the writing task in the current runtime; `alive` is dropped when it has closed the connection.
    pub(crate) fn start_writer(
        &self,
        messages: mpsc::Receiver<WriterMessage>,
        background: Option<Arc<dyn BackgroundWork>>,
        alive: mpsc::Sender<()>,
    ) -> std::io::Result<()> {
        let runtime = Handle::try_current().map_err(std::io::Error::other)?;
        let owner = WriterGuard { slot: Arc::clone(&self.slot), _alive: alive };
        runtime.spawn(run(owner, messages, background, Arc::clone(&self.disk)));
        Ok(())
    }

    async fn read<T>(&self, work: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        pause(&*self.disk).await;
        lock(&self.slot).as_ref().map_or(Err(StoreError::Closed), |open| Ok(work(open)?))
    }
}

/// Reads of an inline store.
pub(crate) struct InlineReaders {
    inline: InlineDatabase,
    permits: Semaphore,
    /// Cloned into each read; all clones gone means no read is under way.
    alive: Mutex<Option<mpsc::Sender<()>>>,
}

impl InlineReaders {
    pub(crate) fn new(inline: InlineDatabase, alive: mpsc::Sender<()>) -> Self {
        Self { inline, permits: Semaphore::new(READS_WAITING_MAX), alive: Mutex::new(Some(alive)) }
    }

    pub(crate) async fn read<T>(&self, work: impl FnOnce(&Connection) -> SqlResult<T>) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Closed)?;
        let _alive = lock(&self.alive).clone().ok_or(StoreError::Closed)?;
        self.inline.read(work).await
    }

    /// No new reads; those under way still end well.
    pub(crate) fn close(&self) {
        self.permits.close();
        *lock(&self.alive) = None;
    }
}

/// The writing task's hold on the connection. Dropped with the task, also when its runtime is dropped.
struct WriterGuard {
    slot: ConnectionSlot,
    _alive: mpsc::Sender<()>,
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        drop(lock(&self.slot).take());
    }
}

async fn run(
    owner: WriterGuard,
    mut messages: mpsc::Receiver<WriterMessage>,
    background: Option<Arc<dyn BackgroundWork>>,
    disk: Arc<dyn SimulatedDisk>,
) {
    let background = background.as_deref();
    let mut last_background = Instant::now();
    let mut is_warned = false;
    loop {
        let idle_limit = background.and_then(BackgroundWork::watch);
        let Some(JobGroup { jobs, permits, is_last }) = next_group(&mut messages, idle_limit).await else {
            break;
        };
        if idle_limit.is_none() {
            // What came with the wake-up has just begun to wait.
            last_background = Instant::now();
        }
        let is_awake = !jobs.is_empty();
        if is_awake {
            write(&owner.slot, jobs, &*disk, &mut is_warned).await;
        }
        drop(permits);
        if let Some(work) = background.filter(|work| work.is_pending())
            && (is_last || last_background.elapsed() >= work.interval(is_awake))
        {
            pause(&*disk).await;
            if let Some(connection) = &*lock(&owner.slot) {
                work.run(connection);
            }
            last_background = Instant::now();
        }
        if is_last {
            break;
        }
    }
    if let Some(connection) = lock(&owner.slot).take() {
        close(connection);
    }
}

async fn write(
    slot: &ConnectionSlot,
    jobs: Vec<Box<dyn Job>>,
    disk: &dyn SimulatedDisk,
    is_warned: &mut bool,
) {
    pause(disk).await;
    // The slot is emptied by this task only; jobs dropped here would tell their callers `Closed`.
    if let Some(connection) = &*lock(slot) {
        *is_warned = commit(connection, jobs, *is_warned);
    }
}

async fn next_group(
    messages: &mut mpsc::Receiver<WriterMessage>,
    idle_limit: Option<Duration>,
) -> Option<JobGroup> {
    let first = match idle_limit {
        None => messages.recv().await?,
        Some(limit) => match timeout(limit, messages.recv()).await {
            Ok(message) => message?,
            Err(_) => return Some(JobGroup::default()),
        },
    };
    Some(JobGroup::collect(first, || messages.try_recv().ok()))
}

/// Even a sleep of nothing would wait for the next tick of the timer.
async fn pause(disk: &dyn SimulatedDisk) {
    let delay = disk.delay();
    if !delay.is_zero() {
        sleep(delay).await;
    }
}
