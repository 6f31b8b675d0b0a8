//! Stores records, then announces them. What comes after a record of the same session waits here behind it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use qd_store::{RecordIn, StoreError};
use qd_wire::mux::SessionChange;
use qd_wire::mux::SystemEvent;
use tokio::sync::mpsc;
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::answers::Answer;
use super::{LinkState, Outbox};
use crate::effects::{self, Note};
use crate::registry::{Hub, SessionEntry};
use crate::reply;

/// Records and bytes in one transaction.
const BATCH_RECORDS_MAX: usize = 4096;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// Pieces looked through for answers while the store fails, beside those in the queue.
const BACKLOG_MAX: usize = 256;
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// One piece of the stream that has to keep its place behind a commit.
pub(super) enum Commit {
    Frames {
        entry: Arc<SessionEntry>,
        frames: Bytes,
        records: Vec<RecordIn>,
        notes: Vec<Note>,
    },
    Ack {
        entry: Arc<SessionEntry>,
        seq: u64,
    },
    Answer {
        entry: Arc<SessionEntry>,
        answer: Answer,
    },
    /// The session is gone from its runner. What comes later under its name is another session.
    Forget {
        entry: Arc<SessionEntry>,
        answer: Option<Answer>,
    },
}

/// A piece whose records are in the store.
enum Stored {
    Frames { entry: Arc<SessionEntry>, frames: Bytes, seq: Option<u64>, notes: Vec<Note> },
    Ack { entry: Arc<SessionEntry>, seq: u64 },
    Answer { entry: Arc<SessionEntry>, answer: Answer },
    Forget { entry: Arc<SessionEntry>, answer: Option<Answer> },
}

/// The link is to end while the store fails; the runner still has the records.
struct Stopped;

/// The one who commits for a link.
pub(super) struct Committer {
    pub(super) hub: Arc<Hub>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) queue: mpsc::Receiver<Commit>,
    pub(super) link: Arc<LinkState>,
    pub(super) stop: CancellationToken,
    /// Taken from the queue while the store failed.
    backlog: VecDeque<Commit>,
}

impl Committer {
    pub(super) fn new(
        hub: Arc<Hub>,
        outbox: Arc<Outbox>,
        queue: mpsc::Receiver<Commit>,
        link: Arc<LinkState>,
        stop: CancellationToken,
    ) -> Self {
        Self { hub, outbox, queue, link, stop, backlog: VecDeque::new() }
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
                let is_last = matches!(commit, Commit::Forget { .. });
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
    }

    /// The link is to end and the store fails: the runner still has the records, and those who wait for an answer
    /// are told that it does not come.
    fn give_up(mut self, pieces: Vec<Stored>) {
        self.queue.close();
        for piece in pieces {
            match piece {
                Stored::Answer { answer, .. } => answer.give_up(&self.hub),
                Stored::Forget { entry, answer } => give_up(&self.hub, Commit::Forget { entry, answer }),
                Stored::Frames { .. } | Stored::Ack { .. } => {}
            }
        }
        let mut left = std::mem::take(&mut self.backlog);
        while let Ok(commit) = self.queue.try_recv() {
            left.push_back(commit);
        }
        left.into_iter().for_each(|commit| give_up(&self.hub, commit));
    }

    async fn next(&mut self) -> Option<Commit> {
        match self.backlog.pop_front() {
            Some(commit) => Some(commit),
            None => self.queue.recv().await,
        }
    }

    fn try_next(&mut self) -> Option<Commit> {
        self.backlog.pop_front().or_else(|| self.queue.try_recv().ok())
    }

    /// Stores a batch, however long that takes.
    async fn store(&mut self, records: Vec<RecordIn>, pieces: &mut Vec<Stored>) -> Result<(), Stopped> {
        // Effects are made again from the bodies if a batch has to be repeated; copying them would cost every
        // batch.
        let copies: Vec<RecordIn> = records.iter().map(shallow).collect();
        let mut wait = RETRY_FIRST;
        let mut result = self.hub.store.append(records).await.map(drop);
        while let Err(error) = result {
            if is_refusal(&error) {
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
    async fn delete(&mut self, entry: &SessionEntry) -> Result<Result<(), StoreError>, Stopped> {
        let mut wait = RETRY_FIRST;
        loop {
            match self.hub.store.delete_session(&entry.id).await {
                Ok(_) => {
                    self.recovered();
                    return Ok(Ok(()));
                }
                Err(error) if is_refusal(&error) => return Ok(Err(error)),
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
        pieces: &mut Vec<Stored>,
        wait: &mut Duration,
    ) -> Result<(), Stopped> {
        if !self.link.is_failing.swap(true, Ordering::AcqRel) {
            let text = format!("The hub cannot store events and holds them back: {error}");
            self.hub.broadcast(&reply::system_error(None, &text));
        }
        self.answer_early(pieces);
        if self.stop.is_cancelled() || matches!(error, StoreError::Closed) {
            return Err(Stopped);
        }
        tokio::select! {
            () = sleep(*wait) => {}
            () = self.stop.cancelled() => {}
        }
        *wait = (*wait * 2).min(RETRY_MAX);
        Ok(())
    }

    fn recovered(&self) {
        if self.link.is_failing.swap(false, Ordering::AcqRel) {
            let message = "The hub stores events again".to_owned();
            self.hub.broadcast(&reply::system(SystemEvent::Notice { message }));
        }
    }

    fn answer_early(&mut self, pieces: &mut Vec<Stored>) {
        for piece in std::mem::take(pieces) {
            match piece {
                Stored::Answer { entry, answer } if !answer.needs_store() => {
                    pass_early(&self.hub, &entry, answer);
                }
                piece => pieces.push(piece),
            }
        }
        while self.backlog.len() < BACKLOG_MAX
            && let Ok(commit) = self.queue.try_recv()
        {
            self.backlog.push_back(commit);
        }
        for commit in std::mem::take(&mut self.backlog) {
            match commit {
                Commit::Answer { entry, answer } if !answer.needs_store() => {
                    pass_early(&self.hub, &entry, answer);
                }
                commit => self.backlog.push_back(commit),
            }
        }
    }

    async fn announce(&mut self, piece: Stored) -> Result<(), Stopped> {
        let entry = match piece {
            Stored::Frames { entry, frames, seq, notes } => {
                entry.ring.make_room(frames.len(), &self.link.patience).await;
                entry.ring.publish(frames, seq);
                effects::apply_notes(&self.hub, &entry, &notes);
                if let Some(seq) = seq {
                    self.outbox.ack(&entry.id, seq);
                }
                entry
            }
            Stored::Ack { entry, seq } => {
                self.outbox.ack(&entry.id, seq);
                entry
            }
            Stored::Answer { entry, answer } => {
                answer.deliver(&self.hub, Some(&entry));
                entry
            }
            Stored::Forget { entry, answer } => {
                let Ok(result) = self.delete(&entry).await else {
                    give_up(&self.hub, Commit::Forget { entry, answer });
                    return Err(Stopped);
                };
                entry.end();
                self.hub.tell_session(&entry, SessionChange::Deleted);
                if let Some(answer) = answer {
                    answer.deliver_deleted(result);
                } else if let Err(error) = result {
                    tracing::error!(%error, session = %entry.id, "a session of an earlier life stays stored");
                }
                entry
            }
        };
        entry.settle_one();
        Ok(())
    }
}

/// A piece that cannot be committed before its link ends.
pub(super) fn give_up(hub: &Hub, commit: Commit) {
    match commit {
        Commit::Frames { .. } | Commit::Ack { .. } => {}
        Commit::Answer { answer, .. } => answer.give_up(hub),
        Commit::Forget { entry, answer } => {
            // Its copy is still stored, so it can be deleted again.
            hub.remember_session(entry);
            if let Some(answer) = answer {
                answer.give_up(hub);
            }
        }
    }
}

fn pass_early(hub: &Hub, entry: &Arc<SessionEntry>, answer: Answer) {
    answer.deliver(hub, Some(entry));
    entry.settle_one();
}

/// Splits a piece into what is stored and what is announced afterwards.
fn collect(commit: Commit, batch: &mut Vec<RecordIn>, pieces: &mut Vec<Stored>) -> usize {
    let (piece, bytes) = match commit {
        Commit::Frames { entry, frames, mut records, notes } => {
            let seq = records.last().map(|record| record.seq);
            let bytes = frames.len();
            // Records of a session that was deleted meanwhile would bring it back.
            if !entry.is_over() {
                batch.append(&mut records);
            }
            (Stored::Frames { entry, frames, seq, notes }, bytes)
        }
        Commit::Ack { entry, seq } => (Stored::Ack { entry, seq }, 0),
        Commit::Answer { entry, answer } => (Stored::Answer { entry, answer }, 0),
        Commit::Forget { entry, answer } => (Stored::Forget { entry, answer }, 0),
    };
    pieces.push(piece);
    bytes
}

/// Whether the request is at fault, so that repeating it is no use.
fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::Invalid(_) | StoreError::Sqlite(_))
}

/// Stores records one at a time, so that one the tables refuse spoils no other. Those already stored are
/// passed over by the store.
async fn append_each(hub: &Hub, records: &[RecordIn]) -> Result<(), StoreError> {
    for record in records {
        let mut whole = shallow(record);
        let runner_id = hub.session(&record.session_id).map(|entry| Arc::clone(&entry.runner_id));
        effects::restore(&mut whole, runner_id.as_deref().unwrap_or_default());
        let Err(error) = hub.store.append(vec![whole]).await else { continue };
        if !is_refusal(&error) {
            return Err(error);
        }
        let (session, seq) = (&record.session_id, record.seq);
        tracing::error!(%error, %session, seq, "the tables refuse what a record says; it is stored without");
        match hub.store.append(vec![shallow(record)]).await {
            Err(error) if is_refusal(&error) => {
                tracing::error!(%error, %session, seq, "a record cannot be stored at all and is left out");
            }
            result => drop(result?),
        }
    }
    Ok(())
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
