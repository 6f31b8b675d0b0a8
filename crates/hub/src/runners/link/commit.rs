//! Stores records, then announces them. What comes after a record of the same session waits here behind it.
//!
//! Many records share one transaction. While the store fails the batch is tried again until it works or the link
//! ends: nothing is acknowledged before that, and the runner keeps what is not acknowledged. Answers that need no
//! store pass meanwhile.

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

/// One piece of a session's stream. It keeps its place behind the commits before it.
pub(super) struct SessionStep {
    pub(super) entry: Arc<SessionEntry>,
    pub(super) content: StepContent,
}

pub(super) enum StepContent {
    /// Frames to publish, after their records are stored.
    Frames {
        frames: Bytes,
        records: Vec<NewRecord>,
        heads: Vec<RecordHead>,
        notes: Vec<SessionNote>,
    },
    /// Events in the words of the session's own harness.
    Natives(NativeEvents),
    /// The runner has sent what the hub has: tell it how far that goes.
    Ack(u64),
    Answer(RunnerAnswer),
    /// The session is gone from its runner. What comes later under its name is another session.
    Forget(Option<RunnerAnswer>),
    /// Its session is deleted. Should that fail, the runner sends it again.
    Dropped,
}

impl SessionStep {
    /// The bytes that wait with it.
    pub(super) fn bytes(&self) -> usize {
        match &self.content {
            StepContent::Frames { frames, .. } => frames.len(),
            StepContent::Natives(events) => events.bytes(),
            StepContent::Answer(answer) | StepContent::Forget(Some(answer)) => answer.tail.len(),
            StepContent::Ack(_) | StepContent::Forget(None) | StepContent::Dropped => 0,
        }
    }

    /// Moves its records to those that are stored next.
    fn take_records(&mut self, batch: &mut Vec<NewRecord>) {
        let is_gone = self.entry.is_being_deleted() || self.entry.is_over();
        match &mut self.content {
            // Records of a session that is deleted would bring it back, and an ack would count for the next of its name.
            StepContent::Frames { .. } | StepContent::Ack(_) if is_gone => {
                self.content = StepContent::Dropped
            }
            StepContent::Frames { records, .. } => batch.append(records),
            StepContent::Natives(_)
            | StepContent::Ack(_)
            | StepContent::Answer(_)
            | StepContent::Forget(_)
            | StepContent::Dropped => {}
        }
    }

    /// It cannot be committed before its link ends.
    pub(super) fn give_up(self, hub: &Arc<Hub>) {
        let SessionStep { entry, content } = self;
        match content {
            StepContent::Answer(answer) => answer.give_up(hub),
            StepContent::Forget(answer) => {
                // Its copy is still stored, so it can be deleted again.
                hub.remember_session(Arc::clone(&entry));
                if let Some(answer) = answer {
                    answer.give_up(hub);
                }
            }
            StepContent::Frames { .. }
            | StepContent::Natives(_)
            | StepContent::Ack(_)
            | StepContent::Dropped => {}
        }
        // Who waits for what was read waits no longer for this.
        entry.finish_commit();
    }
}

/// A step and its share of the room for what waits; giving the step up or finishing it frees the share.
pub(super) struct QueuedStep {
    pub(super) step: SessionStep,
    pub(super) room: OwnedSemaphorePermit,
}

/// The link is to end while the store fails; the runner still has the records.
struct CommitterStopped;

/// The one who commits for a link.
pub(super) struct Committer {
    pub(super) hub: Arc<Hub>,
    pub(super) send_queue: Arc<RunnerSendQueue>,
    pub(super) queue: mpsc::Receiver<QueuedStep>,
    pub(super) link: Arc<LinkShared>,
    pub(super) stop: CancellationToken,
    /// Taken from the queue while the store failed.
    backlog: VecDeque<QueuedStep>,
}

impl Committer {
    pub(super) fn new(
        hub: Arc<Hub>,
        send_queue: Arc<RunnerSendQueue>,
        queue: mpsc::Receiver<QueuedStep>,
        link: Arc<LinkShared>,
        stop: CancellationToken,
    ) -> Self {
        Self { hub, send_queue, queue, link, stop, backlog: VecDeque::new() }
    }

    /// Commits until the reader of the link is done, or the link is to end while the store fails.
    pub(super) async fn run(mut self) {
        while let Some(first) = self.next().await {
            let mut records = Vec::new();
            let mut steps = Vec::new();
            let mut bytes = 0;
            let mut next = Some(first);
            while let Some(mut queued) = next {
                // Records of the session's next life must not go with the old one.
                let is_last = matches!(queued.step.content, StepContent::Forget(_));
                bytes += queued.step.bytes();
                queued.step.take_records(&mut records);
                steps.push(queued);
                let is_full = records.len() >= BATCH_RECORDS_MAX || bytes >= BATCH_BYTES_MAX;
                next = if is_full || is_last { None } else { self.try_next() };
            }
            if !records.is_empty() && self.store(records, &mut steps).await.is_err() {
                return self.give_up(steps);
            }
            let mut steps = steps.into_iter();
            while let Some(queued) = steps.next() {
                if self.announce(queued).await.is_err() {
                    return self.give_up(steps.collect());
                }
            }
        }
        self.fails_no_more();
    }

    /// The link is to end and the store fails: the runner still has the records, and those who wait for an answer
    /// are told that it does not come.
    fn give_up(mut self, mut steps: Vec<QueuedStep>) {
        self.queue.close();
        self.fails_no_more();
        steps.extend(self.backlog.drain(..));
        while let Ok(queued) = self.queue.try_recv() {
            steps.push(queued);
        }
        steps.into_iter().for_each(|queued| queued.step.give_up(&self.hub));
    }

    async fn next(&mut self) -> Option<QueuedStep> {
        match self.backlog.pop_front() {
            Some(commit) => Some(commit),
            None => self.queue.recv().await,
        }
    }

    fn try_next(&mut self) -> Option<QueuedStep> {
        self.backlog.pop_front().or_else(|| self.queue.try_recv().ok())
    }

    /// Stores a batch, however long that takes.
    async fn store(
        &mut self,
        records: Vec<NewRecord>,
        steps: &mut Vec<QueuedStep>,
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
                self.pause(&error, steps, &mut wait).await?;
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
        steps: &mut Vec<QueuedStep>,
        wait: &mut Duration,
    ) -> Result<(), CommitterStopped> {
        if !self.link.is_failing.swap(true, Ordering::AcqRel) {
            self.hub.note_store_failure(error);
        }
        self.answer_early(steps);
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

    fn answer_early(&mut self, steps: &mut Vec<QueuedStep>) {
        while self.backlog.len() < BACKLOG_MAX
            && let Ok(queued) = self.queue.try_recv()
        {
            self.backlog.push_back(queued);
        }
        *steps = pass_early(&self.hub, std::mem::take(steps));
        self.backlog = pass_early(&self.hub, std::mem::take(&mut self.backlog));
    }

    async fn announce(&mut self, queued: QueuedStep) -> Result<(), CommitterStopped> {
        let QueuedStep { step: SessionStep { entry, content }, room } = queued;
        match content {
            StepContent::Frames { frames, heads, mut notes, .. } => {
                entry.ring.make_room(frames.len(), &self.link.stall_timeout).await;
                // The ack first: of the tasks that are woken here the last one runs first, and people wait for the frames.
                if let Some(last) = heads.last() {
                    self.send_queue.ack(&entry.id, last.seq);
                }
                entry.publish(&frames, &heads);
                effects::apply_notes(&self.hub, &entry, &mut notes);
                self.hub.faces.published(&self.hub, PublishedEvents::new(&entry, &frames, &heads, &notes));
            }
            StepContent::Natives(events) => self.hub.faces.native_events(&self.hub, &entry, &events),
            StepContent::Ack(seq) => self.send_queue.ack(&entry.id, seq),
            StepContent::Answer(answer) => answer.deliver(&self.hub, Some(&entry)),
            StepContent::Forget(answer) => {
                let Ok(result) = self.delete(&entry).await else {
                    SessionStep { entry, content: StepContent::Forget(answer) }.give_up(&self.hub);
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
            }
            StepContent::Dropped => {}
        }
        entry.finish_commit();
        drop(room);
        Ok(())
    }
}

/// Delivers the answers that need no store; gives the other steps.
fn pass_early<C: IntoIterator<Item = QueuedStep> + FromIterator<QueuedStep>>(hub: &Arc<Hub>, steps: C) -> C {
    let late = steps.into_iter().filter_map(|queued| match queued.step {
        SessionStep { entry, content: StepContent::Answer(answer) } if !answer.needs_store() => {
            answer.deliver(hub, Some(&entry));
            entry.finish_commit();
            None
        }
        step => Some(QueuedStep { step, room: queued.room }),
    });
    late.collect()
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
