//! `runner.db`: what a runner must not forget. Its sessions, the spool of records the hub has not acked,
//! a tail of those it has, outcomes, the index of message ids, open approvals, and which inputs were taken.
//!
//! What a runner has acknowledged to anybody is in here first. It survives a kill at any moment; after a power cut it
//! is as old as the last sync, and never torn.

mod ack;
mod inputs;
mod outcomes;
mod sessions;
mod spool;
mod tail;
mod types;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use bytes::Bytes;
use rusqlite::Connection;

pub use ack::ACK_FLUSH_INTERVAL;
pub use spool::SPOOL_READ_BYTES_MAX;
pub use tail::{TAIL_BYTES_MAX, TAIL_LINES_MAX};
pub use types::{
    ApprovalRow, InputClaim, OutcomeLimits, OutcomeRow, OutcomeStatus, RunnerBatch, RunnerSession,
    SessionCounters,
};

use crate::error::Result;
use crate::sqlite::database::StoreOptions;
use crate::sqlite::engine::Engine;
use crate::sqlite::error::SqlResult;
use crate::sqlite::migrate::Migrations;
use crate::store_future::StoreFuture;
use ack::PendingAcks;
use spool::{AddedLines, SpoolPositions};

const MIGRATIONS: Migrations = &[
    include_str!("migrations/runner/0001_init.sql"),
    include_str!("migrations/runner/0002_tail.sql"),
    include_str!("migrations/runner/0003_run_inputs.sql"),
    include_str!("migrations/runner/0004_input_images.sql"),
    include_str!("migrations/runner/0005_settled_inputs.sql"),
];

/// The runner's memory. Clones share one database.
#[derive(Clone)]
pub struct RunnerStore {
    engine: Arc<Engine>,
    acks: Arc<PendingAcks>,
    places: Arc<SpoolPositions>,
    spool_bytes: Arc<AtomicU64>,
}

impl RunnerStore {
    /// Opens or creates the database. Blocks for a few milliseconds: call it at start. With `StoreExecution::Inline` it
    /// must be called inside a tokio runtime, which the store then lives and dies with.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        let opened = Engine::open(path, options, MIGRATIONS)?;
        let places = Arc::new(SpoolPositions::load(&opened.connection)?);
        let spool_bytes = Arc::new(AtomicU64::new(places.total_bytes()));
        let acks = Arc::new(PendingAcks::new(Arc::clone(&places), Arc::clone(&spool_bytes)));
        let engine = Engine::start("runner-db", opened, Some(Arc::clone(&acks) as _))?;
        Ok(Self { engine: Arc::new(engine), acks, places, spool_bytes })
    }

    /// Stores one unit, all or nothing; resolves after the commit.
    pub async fn commit(&self, batch: RunnerBatch) -> Result<()> {
        self.enqueue_commit(batch).await?.await.map(drop)
    }

    /// Like `commit`, in two steps: the first await waits for room in the queue, the second for the commit,
    /// which yields the bytes it added to the spool. So a caller can have several units under way in order.
    pub async fn enqueue_commit(&self, batch: RunnerBatch) -> Result<StoreFuture<u64>> {
        let bytes = batch_bytes(&batch);
        // Truncating an index takes as long as it is.
        let is_short = batch.index_truncate_from.is_none();
        // Every future on the way would keep room for it.
        let batch = Arc::new(batch);
        let session_key = Arc::new(AtomicI64::new(0));
        let committed = {
            let (places, spool_bytes) = (Arc::clone(&self.places), Arc::clone(&self.spool_bytes));
            let (batch, session_key) = (Arc::clone(&batch), Arc::clone(&session_key));
            move |added: &u64| {
                spool_bytes.fetch_add(*added, Ordering::AcqRel);
                if !batch.spool.is_empty() {
                    places.add(&batch.session_id, session_key.load(Ordering::Relaxed), *added);
                }
            }
        };
        let places = Arc::clone(&self.places);
        let apply = move |connection: &Connection| {
            let added = apply(connection, &places, &batch)?;
            session_key.store(added.session_key, Ordering::Relaxed);
            Ok(added.bytes)
        };
        if is_short {
            return self.engine.enqueue_short(bytes, apply, committed).await;
        }
        self.engine.enqueue(bytes, apply, committed).await
    }

    /// The hub has stored everything up to `seq`. Noted lazily, within `ACK_FLUSH_INTERVAL`; an ack lost in a crash
    /// costs a repeated send, which the hub ignores. Acked lines go, except for a tail of `TAIL_LINES_MAX`.
    pub fn ack(&self, session_id: &str, seq: u64) {
        if self.acks.note(session_id, seq) {
            self.engine.wake();
        }
    }

    /// Lines after a cursor, in order, until `limit` or `SPOOL_READ_BYTES_MAX`; at least one if there is one, so only
    /// an empty answer is the end. A cursor before the last ack also finds what is left of the acked lines.
    pub async fn spool_after(&self, session_id: &str, seq: u64, limit: usize) -> Result<Vec<(u64, Bytes)>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| spool::after(connection, &session_id, seq, limit)).await
    }

    /// How far each session with records is acked, as far as that has been noted.
    pub async fn acked_seqs(&self) -> Result<Vec<(String, u64)>> {
        self.engine.read(spool::acked).await
    }

    /// The newest lines of a session, acked or not, oldest first. There are at least the unacked ones, up to `limit`
    /// and `SPOOL_READ_BYTES_MAX`.
    pub async fn tail(&self, session_id: &str, limit: usize) -> Result<Vec<(u64, Bytes)>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| spool::newest(connection, &session_id, limit)).await
    }

    /// Bytes of all lines that wait for their ack; costs one atomic load.
    pub fn spool_bytes(&self) -> u64 {
        self.spool_bytes.load(Ordering::Acquire)
    }

    pub async fn put_session(&self, session: RunnerSession) -> Result<()> {
        self.engine.write(move |connection| sessions::put(connection, &session)).await
    }

    pub async fn session(&self, session_id: &str) -> Result<Option<RunnerSession>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| sessions::get(connection, &session_id)).await
    }

    /// All sessions, oldest first.
    pub async fn sessions(&self) -> Result<Vec<RunnerSession>> {
        self.engine.read(sessions::list).await
    }

    /// Forgets a session with its index, approvals, inputs and spool; false if there was none. Lines not yet acked are
    /// lost with it, so wait for the last ack first. Outcomes stay.
    pub async fn delete_session(&self, session_id: &str) -> Result<bool> {
        let session_id = session_id.to_owned();
        let (acks, deleted_id) = (Arc::clone(&self.acks), session_id.clone());
        let (places, spool_bytes) = (Arc::clone(&self.places), Arc::clone(&self.spool_bytes));
        let deleted_from = Arc::clone(&self.places);
        let delete = move |connection: &Connection| {
            let freed = spool::delete_session(connection, &deleted_from, &session_id)?;
            inputs::delete_session(connection, &session_id)?;
            Ok((sessions::delete(connection, &session_id)?, freed))
        };
        let committed = move |(_, freed): &(bool, u64)| {
            spool_bytes.fetch_sub(*freed, Ordering::AcqRel);
            // An ack still waiting would otherwise hit a new session of the same name.
            acks.forget(&deleted_id);
            places.forget(&deleted_id);
        };
        let (existed, _) = self.engine.enqueue(0, delete, committed).await?.await?;
        Ok(existed)
    }

    /// All outcomes, oldest first.
    pub async fn load_outcomes(&self) -> Result<Vec<OutcomeRow>> {
        self.engine.read(outcomes::load).await
    }

    /// After a restart: nobody can know how these ended. Returns how many there were.
    pub async fn mark_in_flight_indeterminate(&self) -> Result<u64> {
        self.engine.write(outcomes::mark_in_flight_indeterminate).await
    }

    /// Removes the oldest outcomes beyond the limits; returns how many.
    pub async fn prune_outcomes(&self, limits: OutcomeLimits) -> Result<u64> {
        self.engine.write(move |connection| outcomes::prune(connection, limits)).await
    }

    /// The message ids of a session, by `idx`.
    pub async fn message_index(&self, session_id: &str) -> Result<Vec<(u64, String)>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| sessions::load_index(connection, &session_id)).await
    }

    /// The open approvals of all sessions.
    pub async fn approvals(&self) -> Result<Vec<ApprovalRow>> {
        self.engine.read(sessions::approvals).await
    }

    /// Notes that a session takes an input of this name, unless it did so before. Resolves after the commit, so what
    /// follows happens at most once, for ever. `RunnerBatch::inputs_settle` notes that it has.
    pub async fn take_input(&self, session_id: &str, input_id: &str) -> Result<InputClaim> {
        let (session_id, input_id) = (session_id.to_owned(), input_id.to_owned());
        let put = move |connection: &Connection| inputs::put(connection, &session_id, &input_id);
        self.engine.enqueue_short(0, put, |_| {}).await?.await
    }

    /// The images of inputs that no conversation shows yet, by their names.
    pub async fn input_images(&self, session_id: &str) -> Result<Vec<(String, Bytes)>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| inputs::images(connection, &session_id)).await
    }

    /// Finishes what is queued, acks included, checkpoints and closes; later requests get `Closed`.
    pub async fn close(&self) {
        self.engine.close().await;
    }
}

/// Returns what was added to the spool.
fn apply(connection: &Connection, places: &SpoolPositions, batch: &RunnerBatch) -> SqlResult<AddedLines> {
    if let Some(session) = &batch.session_row {
        sessions::put(connection, session)?;
    }
    if let Some(counters) = &batch.counters {
        sessions::put_counters(connection, &batch.session_id, counters)?;
    }
    let added = spool::put(connection, places, &batch.session_id, &batch.spool)?;
    spool::rewrite(connection, places, &batch.session_id, &batch.rewrites)?;
    outcomes::put(connection, &batch.outcomes)?;
    sessions::change_index(connection, &batch.session_id, batch.index_truncate_from, &batch.index_put)?;
    sessions::change_approvals(connection, &batch.session_id, &batch.approvals_put, &batch.approvals_delete)?;
    inputs::settle(connection, &batch.session_id, &batch.inputs_settle)?;
    inputs::delete(connection, &batch.session_id, &batch.inputs_delete)?;
    inputs::change_images(connection, &batch.session_id, &batch.images_put, &batch.images_delete)?;
    Ok(added)
}

fn batch_bytes(batch: &RunnerBatch) -> usize {
    let spool: usize = batch.spool.iter().map(|(_, line)| spool::LINE_OVERHEAD_BYTES + line.len()).sum();
    let outcomes: usize = batch.outcomes.iter().map(outcomes::row_bytes).sum();
    let approvals: usize = batch.approvals_put.iter().map(|approval| approval.body_json.len()).sum();
    let images: usize = batch.images_put.iter().map(|(_, body)| body.len()).sum();
    spool + outcomes + approvals + images
}
