//! Stores records, then announces them. What comes after a record of the same session waits here behind it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use qd_store::{RecordIn, StoreError};
use tokio::sync::mpsc;
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::Outbox;
use super::answers::Answer;
use crate::effects::{self, Note};
use crate::registry::{Hub, SessionEntry};
use crate::reply;

/// Records and bytes in one transaction.
const BATCH_RECORDS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// One piece of the stream that has to keep its place behind a commit.
pub(super) enum Commit {
    Frames { entry: Arc<SessionEntry>, frames: Bytes, records: Vec<RecordIn>, notes: Vec<Note> },
    Ack { entry: Arc<SessionEntry>, seq: u64 },
    Answer { entry: Arc<SessionEntry>, answer: Answer },
}

/// A piece whose records are in the store.
enum Stored {
    Frames { entry: Arc<SessionEntry>, frames: Bytes, seq: Option<u64>, notes: Vec<Note> },
    Ack { entry: Arc<SessionEntry>, seq: u64 },
    Answer { entry: Arc<SessionEntry>, answer: Answer },
}

pub(super) async fn run(
    hub: Arc<Hub>,
    outbox: Arc<Outbox>,
    mut queue: mpsc::Receiver<Commit>,
    stop: CancellationToken,
) {
    while let Some(first) = queue.recv().await {
        let mut records = Vec::new();
        let mut pieces = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        while let Some(commit) = next {
            bytes += collect(commit, &mut records, &mut pieces);
            let is_full = records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX;
            next = if is_full { None } else { queue.try_recv().ok() };
        }
        if !records.is_empty() && !store(&hub, records, &stop).await {
            return;
        }
        for piece in pieces {
            announce(&hub, &outbox, piece).await;
        }
    }
}

/// Splits a piece into what is stored and what is announced afterwards.
fn collect(commit: Commit, batch: &mut Vec<RecordIn>, pieces: &mut Vec<Stored>) -> usize {
    let (piece, bytes) = match commit {
        Commit::Frames { entry, frames, mut records, notes } => {
            let seq = records.last().map(|record| record.seq);
            let bytes = frames.len();
            batch.append(&mut records);
            (Stored::Frames { entry, frames, seq, notes }, bytes)
        }
        Commit::Ack { entry, seq } => (Stored::Ack { entry, seq }, 0),
        Commit::Answer { entry, answer } => (Stored::Answer { entry, answer }, 0),
    };
    pieces.push(piece);
    bytes
}

/// Stores a batch, however long that takes. False when the hub stops first: the runner still has the records.
async fn store(hub: &Hub, records: Vec<RecordIn>, stop: &CancellationToken) -> bool {
    // Effects are made again from the bodies if a batch has to be repeated; copying them would cost every batch.
    let copies: Vec<RecordIn> = records.iter().map(shallow).collect();
    let mut attempt = records;
    let mut wait = RETRY_FIRST;
    let mut is_told = false;
    loop {
        let error = match hub.store.append(attempt).await {
            Ok(_) => return true,
            Err(error) => error,
        };
        attempt = copies.iter().map(shallow).collect();
        match error {
            StoreError::Invalid(_) | StoreError::Sqlite(_) => {
                // The tables refuse what a record says; the log still takes the record itself.
                tracing::error!(%error, "records are stored without their effects");
            }
            _ => attempt.iter_mut().for_each(effects::restore),
        }
        if !is_told {
            is_told = true;
            let text = format!("The hub cannot store events and holds them back: {error}");
            hub.broadcast(&reply::system_error(None, &text));
        }
        tracing::error!(%error, records = copies.len(), "the store failed; trying again");
        if stop.is_cancelled() || matches!(error, StoreError::Closed) {
            return false;
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = stop.cancelled() => {}
        }
        wait = (wait * 2).min(RETRY_MAX);
    }
}

/// A record without its effect; the body is shared.
fn shallow(record: &RecordIn) -> RecordIn {
    RecordIn {
        session_id: Arc::clone(&record.session_id),
        seq: record.seq,
        ts: record.ts,
        event: record.event.clone(),
        body: record.body.clone(),
        effect: None,
    }
}

async fn announce(hub: &Hub, outbox: &Outbox, piece: Stored) {
    let entry = match piece {
        Stored::Frames { entry, frames, seq, notes } => {
            entry.ring.make_room(frames.len()).await;
            entry.ring.publish(frames, seq);
            effects::apply_notes(hub, &entry, &notes);
            if let Some(seq) = seq {
                outbox.ack(&entry.id, seq);
            }
            entry
        }
        Stored::Ack { entry, seq } => {
            outbox.ack(&entry.id, seq);
            entry
        }
        Stored::Answer { entry, answer } => {
            answer.deliver_stored(hub, &entry).await;
            entry
        }
    };
    entry.uncommitted.fetch_sub(1, Ordering::AcqRel);
}
