//! Stores records, then announces them. What comes after a record of the same session waits here behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use qd_store::{NewRecord, StoreError};
use qd_wire::mux::SessionChange;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::answers::RunnerAnswer;
use super::{LinkShared, RunnerSendQueue};
use crate::hub::Hub;
use crate::sessions::effects::{self, SessionNote};
use crate::sessions::published::{NativeEvents, PublishedEvents, RecordHead};
use crate::sessions::session::SessionEntry;

/// Records and bytes in one transaction.
const BATCH_RECORDS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Pieces looked through for answers while the store fails, beside those in the queue.
const BACKLOG_MAX: usize = 256;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// One piece of the stream that has to keep its place behind a commit.
pub(super) enum CommitStep {
    Frames {
        entry: Arc<SessionEntry>,
        frames: Bytes,
        records: Vec<NewRecord>,
        heads: Vec<RecordHead>,
        notes: Vec<SessionNote>,
    },
    Natives {
        entry: Arc<SessionEntry>,
        events: NativeEvents,
    },
    Ack {
        entry: Arc<SessionEntry>,
        seq: u64,
    },
    Answer {
        entry: Arc<SessionEntry>,
        answer: RunnerAnswer,
    },
    /// The session is gone from its runner. What comes later under its name is another session.
    Forget {
        entry: Arc<SessionEntry>,
        answer: Option<RunnerAnswer>,
    },
}

impl CommitStep {
    /// The bytes that wait with it.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CommitStep::Frames { frames, .. } => frames.len(),
            CommitStep::Natives { events, .. } => events.bytes(),
            CommitStep::Answer { answer, .. } | CommitStep::Forget { answer: Some(answer), .. } => {
                answer.tail.len()
            }
            CommitStep::Ack { .. } | CommitStep::Forget { answer: None, .. } => 0,
        }
    }
}

/// A piece and its share of the room for what waits; giving the piece up or finishing it frees the share.
pub(super) struct QueuedStep<T> {
    pub(super) it: T,
    pub(super) room: OwnedSemaphorePermit,
}

/// A piece whose records are in the store.
enum StoredStep {
    Frames {
        entry: Arc<SessionEntry>,
        frames: Bytes,
        seq: Option<u64>,
        heads: Vec<RecordHead>,
        notes: Vec<SessionNote>,
    },
    Natives {
        entry: Arc<SessionEntry>,
        events: NativeEvents,
    },
    Ack {
        entry: Arc<SessionEntry>,
        seq: u64,
    },
    Answer {
        entry: Arc<SessionEntry>,
        answer: RunnerAnswer,
    },
    Forget {
        entry: Arc<SessionEntry>,
        answer: Option<RunnerAnswer>,
    },
    /// Its session is deleted. Should that fail, the runner sends it again.
    Dropped {
        entry: Arc<SessionEntry>,
    },
}

/// The link is to end while the store fails; the runner still has the records.
struct CommitterStopped;

/// The one who commits for a link.
pub(super) struct Committer {
    pub(super) hub: Arc<Hub>,
    pub(super) send_queue: Arc<RunnerSendQueue>,
    pub(super) queue: mpsc::Receiver<QueuedStep<CommitStep>>,
    pub(super) link: Arc<LinkShared>,
    pub(super) stop: CancellationToken,
    /// Taken from the queue while the store failed.
    backlog: VecDeque<QueuedStep<CommitStep>>,
}

impl Committer {
    pub(super) fn new(
        hub: Arc<Hub>,
        send_queue: Arc<RunnerSendQueue>,
        queue: mpsc::Receiver<QueuedStep<CommitStep>>,
        link: Arc<LinkShared>,
        stop: CancellationToken,
    ) -> Self {
        Self { hub, send_queue, queue, link, stop, backlog: VecDeque::new() }
    }

    /// Commits until the reader of the link is done, or the link is to end while the store fails.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.next().await {
            let mut records = Vec::new();
            let mut pieces = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(commit) = next {
                // Records of the session's next life must not go with the old one.
                let is_last = matches!(commit.it, CommitStep::Forget { .. });
                bytes += collect(commit, &mut records, &mut pieces);
                let is_full = records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX;
                next = if is_full || is_last { None } else { self.try_next() };
            }
            if !records.is_empty() && self.store(records, &mut pieces).await.is_err() {
                return self.give_up(pieces);
            }
            let mut pieces = pieces.into_iter();
            while let Some(piece) = pieces.next() {
                if self.announce(piece).await.is_err() {
                    return self.give_up(pieces.collect());
                }
            }
        }
        self.fails_no_more();
    }

    /// The link is to end and the store fails: the runner still has the records, and those who wait for an answer
    /// are told that it does not come.
    fn give_up(mut self, pieces: Vec<QueuedStep<StoredStep>>) {
        self.queue.close();
        self.fails_no_more();
        for piece in pieces {
            let commit = match piece.it {
                StoredStep::Answer { entry, answer } => CommitStep::Answer { entry, answer },
                StoredStep::Forget { entry, answer } => CommitStep::Forget { entry, answer },
                StoredStep::Frames { entry, .. }
                | StoredStep::Natives { entry, .. }
                | StoredStep::Ack { entry, .. }
                | StoredStep::Dropped { entry } => {
                    entry.finish_commit();
                    continue;
                }
            };
            give_up(&self.hub, commit);
        }
        let mut left = std::mem::take(&mut self.backlog);
        while let Ok(commit) = self.queue.try_recv() {
            left.push_back(commit);
        }
        left.into_iter().for_each(|commit| give_up(&self.hub, commit.it));
    }

    async fn next(&mut self) -> Option<QueuedStep<CommitStep>> {
        match self.backlog.pop_front() {
            Some(commit) => Some(commit),
            None => self.queue.recv().await,
        }
    }

    fn try_next(&mut self) -> Option<QueuedStep<CommitStep>> {
        self.backlog.pop_front().or_else(|| self.queue.try_recv().ok())
    }

    /// Stores a batch, however long that takes.
    async fn store(
        &mut self,
        records: Vec<NewRecord>,
        pieces: &mut Vec<QueuedStep<StoredStep>>,
    ) -> Result<(), CommitterStopped> {
        // Effects are made again from the bodies if a batch has to be repeated; copying them would cost every
        // batch.
        let copies: Vec<NewRecord> = records.iter().map(shallow).collect();
        let mut wait = RETRY_FIRST;
        let mut result = append(&self.hub, records).await;
        while let Err(error) = result {
            if error.is_refusal() {
                tracing::error!(%error, "a batch of records is refused; storing them one by one");
            } else {
                tracing::error!(%error, records = copies.len(), "the store failed; trying again");
                self.pause(&error, pieces, &mut wait).await?;
            }
            result = append_each(&self.hub, &copies).await;
        }
        self.recovered();
        Ok(())
    }

    /// Removes a session from the store, however long that takes; an error is one that will not pass.
    async fn delete(&mut self, entry: &SessionEntry) -> Result<Result<(), StoreError>, CommitterStopped> {
        let mut wait = RETRY_FIRST;
        loop {
            match self.hub.store.delete_session(&entry.id).await {
                Ok(_) => {
                    self.recovered();
                    return Ok(Ok(()));
                }
                Err(error) if error.is_refusal() => {
                    self.recovered();
                    return Ok(Err(error));
                }
                Err(error) => {
                    tracing::error!(%error, session = %entry.id, "a session cannot be deleted yet");
                    self.pause(&error, &mut Vec::new(), &mut wait).await?;
                }
            }
        }
    }

    /// After a failure: says so once, lets answers pass that need no store, and waits.
    async fn pause(
        &mut self,
        error: &StoreError,
        pieces: &mut Vec<QueuedStep<StoredStep>>,
        wait: &mut Duration,
    ) -> Result<(), CommitterStopped> {
        if !self.link.is_failing.swap(true, Ordering::AcqRel) {
            self.hub.note_store_failure(error);
        }
        self.answer_early(pieces);
        if self.stop.is_cancelled() || matches!(error, StoreError::Closed) {
            return Err(CommitterStopped);
        }
        tokio::select! {
            () = sleep(*wait) => {}
            () = self.stop.cancelled() => {}
        }
        *wait = (*wait * 2).min(RETRY_MAX);
        Ok(())
    }

    fn recovered(&self) {
        self.fails_no_more();
        self.hub.note_store_success();
    }

    /// The store works for this link, or the link needs it no more.
    fn fails_no_more(&self) {
        if self.link.is_failing.swap(false, Ordering::AcqRel) {
            self.hub.note_failing_link_gone();
        }
    }

    fn answer_early(&mut self, pieces: &mut Vec<QueuedStep<StoredStep>>) {
        for piece in std::mem::take(pieces) {
            match piece.it {
                StoredStep::Answer { entry, answer } if !answer.needs_store() => {
                    pass_early(&self.hub, &entry, answer);
                }
                it @ (StoredStep::Frames { .. }
                | StoredStep::Natives { .. }
                | StoredStep::Ack { .. }
                | StoredStep::Answer { .. }
                | StoredStep::Forget { .. }
                | StoredStep::Dropped { .. }) => pieces.push(QueuedStep { it, room: piece.room }),
            }
        }
        while self.backlog.len() < BACKLOG_MAX
            && let Ok(commit) = self.queue.try_recv()
        {
            self.backlog.push_back(commit);
        }
        for commit in std::mem::take(&mut self.backlog) {
            match commit.it {
                CommitStep::Answer { entry, answer } if !answer.needs_store() => {
                    pass_early(&self.hub, &entry, answer);
                }
                it @ (CommitStep::Frames { .. }
                | CommitStep::Natives { .. }
                | CommitStep::Ack { .. }
                | CommitStep::Answer { .. }
                | CommitStep::Forget { .. }) => self.backlog.push_back(QueuedStep { it, room: commit.room }),
            }
        }
    }

    async fn announce(&mut self, piece: QueuedStep<StoredStep>) -> Result<(), CommitterStopped> {
        let QueuedStep { it: piece, room } = piece;
        let entry = match piece {
            StoredStep::Frames { entry, frames, seq, heads, mut notes } => {
                entry.ring.make_room(frames.len(), &self.link.stall_timeout).await;
                // The ack first: of the tasks that are woken here the last one runs first, and people wait for the frames.
                if let Some(seq) = seq {
                    self.send_queue.ack(&entry.id, seq);
                }
                entry.publish(&frames, &heads);
                effects::apply_notes(&self.hub, &entry, &mut notes);
                self.hub.faces.published(&self.hub, PublishedEvents::new(&entry, &frames, &heads, &notes));
                entry
            }
            StoredStep::Natives { entry, events } => {
                self.hub.faces.native_events(&self.hub, &entry, &events);
                entry
            }
            StoredStep::Ack { entry, seq } => {
                self.send_queue.ack(&entry.id, seq);
                entry
            }
            StoredStep::Answer { entry, answer } => {
                answer.deliver(&self.hub, Some(&entry));
                entry
            }
            StoredStep::Forget { entry, answer } => {
                let Ok(result) = self.delete(&entry).await else {
                    give_up(&self.hub, CommitStep::Forget { entry, answer });
                    return Err(CommitterStopped);
                };
                entry.end();
                self.hub.faces.forget(&entry.id);
                self.hub.announce_session(&entry, SessionChange::Deleted);
                if let Some(answer) = answer {
                    answer.deliver_deleted(&self.hub, result);
                } else if let Err(error) = result {
                    tracing::error!(%error, session = %entry.id, "a session of an earlier life stays stored");
                }
                entry
            }
            StoredStep::Dropped { entry } => entry,
        };
        entry.finish_commit();
        drop(room);
        Ok(())
    }
}

/// A piece that cannot be committed before its link ends.
pub(super) fn give_up(hub: &Arc<Hub>, commit: CommitStep) {
    let entry = match commit {
        CommitStep::Frames { entry, .. }
        | CommitStep::Natives { entry, .. }
        | CommitStep::Ack { entry, .. } => entry,
        CommitStep::Answer { entry, answer } => {
            answer.give_up(hub);
            entry
        }
        CommitStep::Forget { entry, answer } => {
            // Its copy is still stored, so it can be deleted again.
            hub.remember_session(Arc::clone(&entry));
            if let Some(answer) = answer {
                answer.give_up(hub);
            }
            entry
        }
    };
    // Who waits for what was read waits no longer for this.
    entry.finish_commit();
}

fn pass_early(hub: &Arc<Hub>, entry: &Arc<SessionEntry>, answer: RunnerAnswer) {
    answer.deliver(hub, Some(entry));
    entry.finish_commit();
}

/// Splits a piece into what is stored and what is announced afterwards.
fn collect(
    commit: QueuedStep<CommitStep>,
    batch: &mut Vec<NewRecord>,
    pieces: &mut Vec<QueuedStep<StoredStep>>,
) -> usize {
    let bytes = commit.it.bytes();
    let it = match commit.it {
        // Records of a session that is deleted would bring it back, and an ack would count for the next of its name.
        CommitStep::Frames { entry, .. } | CommitStep::Ack { entry, .. }
            if entry.is_being_deleted() || entry.is_over() =>
        {
            StoredStep::Dropped { entry }
        }
        CommitStep::Frames { entry, frames, mut records, heads, notes } => {
            let seq = records.last().map(|record| record.seq);
            batch.append(&mut records);
            StoredStep::Frames { entry, frames, seq, heads, notes }
        }
        CommitStep::Natives { entry, events } => StoredStep::Natives { entry, events },
        CommitStep::Ack { entry, seq } => StoredStep::Ack { entry, seq },
        CommitStep::Answer { entry, answer } => StoredStep::Answer { entry, answer },
        CommitStep::Forget { entry, answer } => StoredStep::Forget { entry, answer },
    };
    pieces.push(QueuedStep { it, room: commit.room });
    bytes
}

/// Stores records, and learns what the messages of their sessions have cost by now.
async fn append(hub: &Hub, records: Vec<NewRecord>) -> Result<(), StoreError> {
    for (session_id, totals) in hub.store.append(records).await?.totals {
        if let Some(entry) = hub.session(&session_id) {
            entry.set_totals(totals);
        }
    }
    Ok(())
}

/// Stores records one at a time, so that one the tables refuse spoils no other. Those already stored are
/// passed over by the store.
async fn append_each(hub: &Hub, records: &[NewRecord]) -> Result<(), StoreError> {
    for record in records {
        let mut whole = shallow(record);
        effects::restore(&mut whole);
        let Err(error) = append(hub, vec![whole]).await else { continue };
        if !error.is_refusal() {
            return Err(error);
        }
        let (session, seq) = (&record.session_id, record.seq);
        tracing::error!(%error, %session, seq, "the tables refuse what a record says; it is stored without");
        match hub.store.append(vec![shallow(record)]).await {
            Err(error) if error.is_refusal() => {
                tracing::error!(%error, %session, seq, "a record cannot be stored at all and is left out");
            }
            result => drop(result?),
        }
    }
    Ok(())
}

/// A record without its effect and its row of the audit; the body is shared.
fn shallow(record: &NewRecord) -> NewRecord {
    NewRecord {
        session_id: Arc::clone(&record.session_id),
        runner_id: Arc::clone(&record.runner_id),
        seq: record.seq,
        ts: record.ts,
        event: record.event.clone(),
        body: record.body.clone(),
        audit: None,
        effect: None,
    }
}
