//! Reads on threads of their own, so that a long one neither blocks the runtime nor waits for the writer: in WAL mode
//! readers see the last commit while the next is being written.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::{Result, StoreError};
use crate::sqlite::database::Database;
use crate::sqlite::error::SqlResult;
use crate::sqlite::lock::lock;

/// Reading threads of one database; each is started when all others are busy.
pub const READERS_MAX: usize = 2;
/// Reads that may wait; who comes later waits for room.
pub const READS_WAITING_MAX: usize = 256;
/// As for the writer.
const STACK_BYTES: usize = 512 << 10;

type ReadJob = Box<dyn FnOnce(Result<&Connection>) + Send>;

struct ReadRequest {
    read: ReadJob,
    _permit: OwnedSemaphorePermit,
}

/// A pool of read-only connections, opened when first needed.
pub(crate) struct Readers {
    name: String,
    database: Database,
    /// As many as the queue has places, so that whoever holds one can queue without blocking the runtime.
    permits: Arc<Semaphore>,
    /// One queue for all threads: a long read holds up no read that another thread could do.
    waiting: Arc<Mutex<Receiver<ReadRequest>>>,
    /// Reads that are queued or running. A thread is started when they are more than there are threads.
    busy: Arc<AtomicUsize>,
    state: Mutex<ReaderState>,
}

struct ReaderState {
    queue: Option<SyncSender<ReadRequest>>,
    /// Cloned into each thread; all clones gone means all connections closed.
    alive: Option<mpsc::Sender<()>>,
    threads: usize,
}

impl Readers {
    pub(crate) fn new(name: &str, database: Database, alive: mpsc::Sender<()>) -> Self {
        let (queue, waiting) = sync_channel(READS_WAITING_MAX);
        Self {
            name: name.to_owned(),
            database,
            permits: Arc::new(Semaphore::new(READS_WAITING_MAX)),
            waiting: Arc::new(Mutex::new(waiting)),
            busy: Arc::new(AtomicUsize::new(0)),
            state: Mutex::new(ReaderState { queue: Some(queue), alive: Some(alive), threads: 0 }),
        }
    }

    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> SqlResult<T> + Send + 'static,
    ) -> Result<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (reply, receiver) = oneshot::channel();
        let busy = Arc::clone(&self.busy);
        let read = Box::new(move |connection: Result<&Connection>| {
            let result = connection.and_then(|open| Ok(work(open)?));
            // Before the answer, or a caller that reads again at once would start a second thread.
            busy.fetch_sub(1, Ordering::AcqRel);
            // The caller may have gone away; then nobody misses the answer.
            let _ = reply.send(result);
        });
        // A thread that ends before it answers drops the sender, which is how the caller learns that the store is
        // closed.
        self.submit(ReadRequest { read, _permit: permit })?;
        receiver.await.unwrap_or(Err(StoreError::Closed))
    }

    /// No new reads; the threads end after those that wait.
    pub(crate) fn close(&self) {
        self.permits.close();
        let mut state = lock(&self.state);
        state.queue = None;
        state.alive = None;
    }

    fn submit(&self, request: ReadRequest) -> Result<()> {
        let mut state = lock(&self.state);
        let (Some(queue), Some(alive)) = (state.queue.clone(), state.alive.clone()) else {
            return Err(StoreError::Closed);
        };
        let busy = self.busy.fetch_add(1, Ordering::AcqRel) + 1;
        if busy > state.threads && state.threads < READERS_MAX {
            match self.start_thread(state.threads, alive) {
                Ok(()) => state.threads += 1,
                // With at least one thread the read is only slower; without any it would wait for ever.
                Err(error) if state.threads == 0 => {
                    self.busy.fetch_sub(1, Ordering::AcqRel);
                    return Err(StoreError::Invalid(format!("cannot start a reading thread: {error}")));
                }
                Err(error) => tracing::warn!(%error, "cannot start another reading thread"),
            }
        }
        drop(state);
        // It cannot be full: the permit that the request carries is a place in it.
        queue.try_send(request).map_err(|_| StoreError::Closed)
    }

    fn start_thread(&self, number: usize, alive: mpsc::Sender<()>) -> std::io::Result<()> {
        let (database, waiting) = (self.database.clone(), Arc::clone(&self.waiting));
        let builder = thread::Builder::new().name(format!("{}-read{number}", self.name));
        builder.stack_size(STACK_BYTES).spawn(move || {
            run(&database, &waiting);
            drop(alive);
        })?;
        Ok(())
    }
}

fn run(database: &Database, waiting: &Mutex<Receiver<ReadRequest>>) {
    let mut connection = None;
    loop {
        // Whoever holds the lock is the one that waits; the others queue for the lock.
        let Ok(request) = lock(waiting).recv() else { break };
        let opened = match connection.take() {
            Some(open) => Ok(open),
            None => database.open_reader(),
        };
        match opened {
            Ok(open) => {
                (request.read)(Ok(&open));
                connection = Some(open);
            }
            // The connection stays unopened, so the next read tries again: the cause may pass, as with too many open
            // files.
            Err(error) => (request.read)(Err(error)),
        }
    }
}
