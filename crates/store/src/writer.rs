use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::clock;
use crate::error::{Result, StoreError};
use crate::group::{Job, run_group};

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
const STACK_BYTES: usize = 512 << 10;

/// Work the writer does on the side, when it is due, in a transaction of its own.
pub(crate) trait Background: Send + Sync + 'static {
    fn is_pending(&self) -> bool;
    fn run(&self, connection: &Connection);
    fn interval(&self) -> Duration;
}

enum Message {
    Write { job: Box<dyn Job>, permit: OwnedSemaphorePermit },
    Wake,
    Close,
}

/// The handle of one database's writer thread.
pub(crate) struct Writer {
    queue: SyncSender<Message>,
    units: Arc<Semaphore>,
}

impl Writer {
    /// `alive` is dropped when the thread has closed its connection.
    pub(crate) fn start(
        name: &str,
        connection: Connection,
        background: Option<Arc<dyn Background>>,
        alive: mpsc::Sender<()>,
    ) -> std::io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_UNITS_MAX + QUEUE_SPARE);
        thread::Builder::new().name(format!("{name}-write")).stack_size(STACK_BYTES).spawn(move || {
            run(connection, &messages, background.as_deref());
            drop(alive);
        })?;
        Ok(Self { queue, units: Arc::new(Semaphore::new(QUEUE_UNITS_MAX)) })
    }

    /// Waits for room, then queues the request. From here on it is done even if the caller goes away;
    /// requests are applied in the order in which they were queued.
    pub(crate) async fn enqueue<T, A, C>(&self, bytes: usize, apply: A, committed: C) -> Result<Pending<T>>
    where
        T: Send + 'static,
        A: FnMut(&Connection) -> Result<T> + Send + 'static,
        C: FnOnce(&T) + Send + 'static,
    {
        let units = (1 + bytes / UNIT_BYTES).min(QUEUE_UNITS_MAX) as u32;
        let permit =
            Arc::clone(&self.units).acquire_many_owned(units).await.map_err(|_| StoreError::Closed)?;
        let (reply, receiver) = oneshot::channel();
        let job = Box::new(TypedJob { apply, committed, value: None, reply });
        self.queue.try_send(Message::Write { job, permit }).map_err(|_| StoreError::Closed)?;
        Ok(Pending { receiver })
    }

    /// Makes an idle thread look at its background work.
    pub(crate) fn wake(&self) {
        match self.queue.try_send(Message::Wake) {
            // A full queue means the thread is busy and looks at its background work between groups anyway.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => tracing::debug!("background work after close is dropped"),
        }
    }

    /// Refuses new requests; those already queued are still done, then the thread ends.
    pub(crate) fn close(&self) {
        self.units.close();
        match self.queue.try_send(Message::Close) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // The spare slots make this unreachable; dropping the last handle ends the thread just as well.
            Err(TrySendError::Full(_)) => tracing::warn!("the write queue is full at close"),
        }
    }
}

/// A queued request; resolves after its commit. Dropping it does not take the request back.
#[must_use = "the request is durable only when this has resolved"]
pub struct Pending<T> {
    receiver: oneshot::Receiver<Result<T>>,
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.receiver).poll(context).map(|reply| reply.unwrap_or(Err(StoreError::Closed)))
    }
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
    A: FnMut(&Connection) -> Result<T> + Send,
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

fn run(connection: Connection, messages: &Receiver<Message>, background: Option<&dyn Background>) {
    let mut last_background = clock::now();
    let mut is_warned = false;
    loop {
        let idle_limit = background.filter(|work| work.is_pending()).map(Background::interval);
        let Some((jobs, last)) = next_group(messages, idle_limit) else { break };
        if !jobs.is_empty() {
            match run_group(&connection, jobs) {
                Some(StoreError::Full) => is_warned = !make_room(&connection, is_warned),
                _ => is_warned = false,
            }
        }
        if let Some(work) = background.filter(|work| work.is_pending())
            && (last || clock::now().duration_since(last_background) >= work.interval())
        {
            work.run(&connection);
            last_background = clock::now();
        }
        if last {
            break;
        }
    }
    checkpoint(&connection, "TRUNCATE", false);
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "closing the database failed; the next start recovers it");
    }
}

/// Blocks for the first request and takes what else is waiting. `None` when all handles are gone; the flag
/// says that these are the last.
fn next_group(
    messages: &Receiver<Message>,
    idle_limit: Option<Duration>,
) -> Option<(Vec<Box<dyn Job>>, bool)> {
    let first = match idle_limit {
        None => messages.recv().ok()?,
        Some(limit) => match messages.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => return Some((Vec::new(), false)),
            Err(RecvTimeoutError::Disconnected) => return None,
        },
    };
    let mut jobs = Vec::new();
    let mut units = 0;
    let mut next = Some(first);
    while let Some(message) = next {
        match message {
            Message::Write { job, permit } => {
                units += permit.num_permits();
                jobs.push(job);
            }
            Message::Wake => {}
            Message::Close => return Some((jobs, true)),
        }
        next = if units < GROUP_UNITS_MAX { messages.try_recv().ok() } else { None };
    }
    Some((jobs, false))
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
