//! The one writer of a database. SQLite allows one writing connection at a time anyway; a queue in front of it makes
//! waiting fair, bounded and free of `SQLITE_BUSY`.
//!
//! A request is a closure over the connection. Those that wait are run one after the other in one transaction
//! (`group`), and their callers hear of it when that is committed. So the cost of a commit is shared under load, and
//! a quiet store answers at once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::{Result, StoreError};
use crate::sqlite::clock;
use crate::sqlite::engine::direct::{SHORT_BYTES_MAX, WriterConnection};
use crate::sqlite::engine::group::{Job, run_group};
use crate::sqlite::engine::inline::InlineDatabase;
use crate::sqlite::error::SqlResult;
use crate::store_future::StoreFuture;

/// The queue is counted in units: a request takes one, and one more for each further 32 KiB it carries.
const UNIT_BYTES: usize = 32 << 10;
const QUEUE_UNITS_MAX: usize = 1024;
/// Bytes that may wait for the writer; who comes later waits for room. A single request greater than all
/// this is admitted alone.
pub const WRITE_QUEUE_BYTES_MAX: usize = UNIT_BYTES * QUEUE_UNITS_MAX;
/// Units drained into one transaction: at most 256 requests, about 8 MiB.
pub const GROUP_UNITS_MAX: usize = 256;
/// Room beside the counted requests for the two messages that need no permit.
const QUEUE_SPARE: usize = 8;
/// A quarter of Rust's default: a store has up to three threads, and requests do not recurse.
const STACK_BYTES: usize = 512 << 10;

/// Work the writer does on the side, when it is due, in a transaction of its own.
pub(crate) trait BackgroundWork: Send + Sync + 'static {
    fn is_pending(&self) -> bool;
    fn run(&self, connection: &Connection);
    /// How long it may wait: `is_awake` while the writer has requests to do anyway.
    fn interval(&self, is_awake: bool) -> Duration;
    /// How long an idle writer sleeps before it looks again; `None` until it is woken. Called before each sleep.
    fn watch(&self) -> Option<Duration>;
}

pub(crate) enum WriterMessage {
    Write { job: Box<dyn Job>, permit: OwnedSemaphorePermit },
    Wake,
    Close,
}

/// Requests that become one transaction.
#[derive(Default)]
pub(crate) struct JobGroup {
    pub(crate) jobs: Vec<Box<dyn Job>>,
    /// Held until the requests are done, so that all permits free means nothing is queued or under way.
    pub(crate) permits: Vec<OwnedSemaphorePermit>,
    /// Close was asked for: nothing comes after these.
    pub(crate) is_last: bool,
}

/// The handle of one database's writer, a thread or a task.
pub(crate) struct Writer {
    queue: WriterQueue,
    units: Arc<Semaphore>,
    /// The thread's connection, where callers may use it while the thread has nothing to do.
    shared: Option<Arc<WriterConnection>>,
}

enum WriterQueue {
    Thread(SyncSender<WriterMessage>),
    Task(mpsc::Sender<WriterMessage>),
}

/// Why a message was not queued.
enum QueueRefusal {
    Full,
    Closed,
}

impl Writer {
    /// `alive` is dropped when the thread has closed its connection.
    pub(crate) fn start_thread(
        name: &str,
        connection: Connection,
        background: Option<Arc<dyn BackgroundWork>>,
        alive: mpsc::Sender<()>,
    ) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_UNITS_MAX + QUEUE_SPARE);
        let shared = Arc::new(WriterConnection::new(connection).map_err(std::io::Error::other)?);
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name(format!("{name}-write")).stack_size(STACK_BYTES).spawn(move || {
            run(&of_thread, &messages, background.as_deref());
            drop(alive);
        })?;
        Ok(Self { shared: Some(shared), ..Self::new(WriterQueue::Thread(queue)) })
    }

    /// Like `start_thread`, with a task in the current runtime; fails where there is none.
    pub(crate) fn start_task(
        inline: &InlineDatabase,
        background: Option<Arc<dyn BackgroundWork>>,
        alive: mpsc::Sender<()>,
    ) -> std::io::Result<Self> {
        let (queue, messages) = mpsc::channel(QUEUE_UNITS_MAX + QUEUE_SPARE);
        inline.start_writer(messages, background, alive)?;
        Ok(Self::new(WriterQueue::Task(queue)))
    }

    fn new(queue: WriterQueue) -> Self {
        Self { queue, units: Arc::new(Semaphore::new(QUEUE_UNITS_MAX)), shared: None }
    }

    /// Waits for room, then queues the request. From here on it is done even if the caller goes away;
    /// requests are applied in the order in which they were queued.
    pub(crate) async fn enqueue<T, A, C>(
        &self,
        bytes: usize,
        apply: A,
        committed: C,
    ) -> Result<StoreFuture<T>>
    where
        T: Send + 'static,
        A: FnMut(&Connection) -> SqlResult<T> + Send + 'static,
        C: FnOnce(&T) + Send + 'static,
    {
        let (job, pending) = typed_job(apply, committed);
        self.queue_job(bytes, job).await?;
        Ok(pending)
    }

    /// Like `enqueue`, for what is always short. A quiet store does it here and now: waking the thread and being woken
    /// by it takes several times as long as the commit.
    pub(crate) async fn enqueue_short<T, A, C>(
        &self,
        bytes: usize,
        apply: A,
        committed: C,
    ) -> Result<StoreFuture<T>>
    where
        T: Send + 'static,
        A: FnMut(&Connection) -> SqlResult<T> + Send + 'static,
        C: FnOnce(&T) + Send + 'static,
    {
        let (job, pending) = typed_job(apply, committed);
        if let Some(job) = self.commit_in_place(bytes, job) {
            self.queue_job(bytes, job).await?;
        }
        Ok(pending)
    }

    async fn queue_job(&self, bytes: usize, job: Box<dyn Job>) -> Result<()> {
        let units = (1 + bytes / UNIT_BYTES).min(QUEUE_UNITS_MAX) as u32;
        let permit =
            Arc::clone(&self.units).acquire_many_owned(units).await.map_err(|_| StoreError::Closed)?;
        self.queue.try_send(WriterMessage::Write { job, permit }).map_err(|_| StoreError::Closed)
    }

    /// Does a short request now, or gives it back.
    fn commit_in_place(&self, bytes: usize, job: Box<dyn Job>) -> Option<Box<dyn Job>> {
        let Some(shared) = self.shared.as_ref().filter(|_| bytes <= SHORT_BYTES_MAX) else {
            return Some(job);
        };
        // All permits: nothing is queued or under way, and nothing comes between.
        let Ok(_permits) = self.units.try_acquire_many(QUEUE_UNITS_MAX as u32) else { return Some(job) };
        let Some(taken) = shared.try_take() else { return Some(job) };
        taken.commit(job);
        if shared.is_log_long() {
            self.wake();
        }
        None
    }

    /// Makes an idle writer look at its background work.
    pub(crate) fn wake(&self) {
        match self.queue.try_send(WriterMessage::Wake) {
            // A full queue means the writer is busy and looks at its background work between groups anyway.
            Ok(()) | Err(QueueRefusal::Full) => {}
            Err(QueueRefusal::Closed) => tracing::debug!("background work after close is dropped"),
        }
    }

    /// Refuses new requests; those already queued are still done, then the writer ends.
    pub(crate) fn close(&self) {
        self.units.close();
        match self.queue.try_send(WriterMessage::Close) {
            Ok(()) | Err(QueueRefusal::Closed) => {}
            // The spare slots make this unreachable; dropping the last handle ends the writer just as well.
            Err(QueueRefusal::Full) => tracing::warn!("the write queue is full at close"),
        }
    }
}

impl WriterQueue {
    fn try_send(&self, message: WriterMessage) -> Result<(), QueueRefusal> {
        match self {
            Self::Thread(queue) => queue.try_send(message).map_err(|error| match error {
                TrySendError::Full(_) => QueueRefusal::Full,
                TrySendError::Disconnected(_) => QueueRefusal::Closed,
            }),
            Self::Task(queue) => queue.try_send(message).map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => QueueRefusal::Full,
                mpsc::error::TrySendError::Closed(_) => QueueRefusal::Closed,
            }),
        }
    }
}

impl JobGroup {
    /// Takes what waits, from the first to as much as one transaction should hold.
    pub(crate) fn collect(first: WriterMessage, mut next: impl FnMut() -> Option<WriterMessage>) -> Self {
        let mut group = Self::default();
        let mut units = 0;
        let mut message = Some(first);
        while let Some(current) = message {
            match current {
                WriterMessage::Write { job, permit } => {
                    units += permit.num_permits();
                    group.jobs.push(job);
                    group.permits.push(permit);
                }
                WriterMessage::Wake => {}
                WriterMessage::Close => return Self { is_last: true, ..group },
            }
            message = if units < GROUP_UNITS_MAX { next() } else { None };
        }
        group
    }
}

/// A request as the writer takes it, and what its caller waits for.
fn typed_job<T, A, C>(apply: A, committed: C) -> (Box<dyn Job>, StoreFuture<T>)
where
    T: Send + 'static,
    A: FnMut(&Connection) -> SqlResult<T> + Send + 'static,
    C: FnOnce(&T) + Send + 'static,
{
    let (reply, pending) = StoreFuture::new();
    (Box::new(TypedJob { apply, committed, value: None, reply }), pending)
}

struct TypedJob<T, A, C> {
    apply: A,
    committed: C,
    value: Option<T>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, A, C> Job for TypedJob<T, A, C>
where
    T: Send,
    A: FnMut(&Connection) -> SqlResult<T> + Send,
    C: FnOnce(&T) + Send,
{
    fn apply(&mut self, connection: &Connection) -> Result<()> {
        self.value = Some((self.apply)(connection)?);
        Ok(())
    }

    fn finish(self: Box<Self>, result: Result<()>) {
        let Self { committed, value, reply, .. } = *self;
        let result = result.and_then(|()| value.ok_or(StoreError::Closed));
        if let Ok(value) = &result {
            committed(value);
        }
        // The caller may have gone away; the request is done all the same.
        let _ = reply.send(result);
    }
}

fn run(
    shared: &WriterConnection,
    messages: &Receiver<WriterMessage>,
    background: Option<&dyn BackgroundWork>,
) {
    let mut last_background = clock::now();
    let mut is_warned = false;
    loop {
        let idle_limit = background.and_then(BackgroundWork::watch);
        let Some(JobGroup { jobs, permits, is_last }) = next_group(messages, idle_limit) else { break };
        if idle_limit.is_none() {
            // What came with the wake-up has just begun to wait.
            last_background = clock::now();
        }
        let is_awake = !jobs.is_empty();
        if is_awake {
            is_warned = shared.with(|connection| commit(connection, jobs, is_warned)).unwrap_or(is_warned);
        }
        drop(permits);
        if let Some(work) = background.filter(|work| work.is_pending())
            && (is_last || clock::now().duration_since(last_background) >= work.interval(is_awake))
        {
            shared.with(|connection| work.run(connection));
            last_background = clock::now();
        }
        if shared.is_log_long() {
            shared.with(|connection| checkpoint(connection, "PASSIVE", is_warned));
            shared.log_was_moved();
        }
        if is_last {
            break;
        }
    }
    if let Some(connection) = shared.take() {
        close(connection);
    }
}

/// Blocks for the first request and takes what else is waiting. `None` when all handles are gone.
fn next_group(messages: &Receiver<WriterMessage>, idle_limit: Option<Duration>) -> Option<JobGroup> {
    let first = match idle_limit {
        None => messages.recv().ok()?,
        Some(limit) => match messages.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Some(JobGroup::default()),
            Err(RecvTimeoutError::Disconnected) => return None,
        },
    };
    Some(JobGroup::collect(first, || messages.try_recv().ok()))
}

/// Runs a group and finishes its requests. Takes and returns whether a full disk was complained of already.
pub(crate) fn commit(connection: &Connection, jobs: Vec<Box<dyn Job>>, is_warned: bool) -> bool {
    match run_group(connection, jobs) {
        Some(StoreError::Full) => !make_room(connection, is_warned),
        _ => false,
    }
}

/// Checkpoints, so that one file is left, and closes.
pub(crate) fn close(connection: Connection) {
    checkpoint(&connection, "TRUNCATE", false);
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "closing the database failed; the next start recovers it");
    }
}

/// After a full disk: what the log holds goes to the database, so the log can be written from its start again.
/// False when there was none to make.
fn make_room(connection: &Connection, is_warned: bool) -> bool {
    checkpoint(connection, "PASSIVE", is_warned)
}

/// A failure is said once, not at every attempt on a disk that stays full.
fn checkpoint(connection: &Connection, mode: &str, is_warned: bool) -> bool {
    let sql = format!("PRAGMA wal_checkpoint({mode})");
    let result = connection.query_row(&sql, [], |_| Ok(()));
    if let Err(error) = &result
        && !is_warned
    {
        tracing::warn!(%error, "checkpoint failed; the log is kept and will be read at the next start");
    }
    result.is_ok()
}
