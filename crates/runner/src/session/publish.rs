//! Persist, then announce.
//!
//! A round of the session ends here: its records, the outcomes of commands, and what changed of its row go to the
//! store in one commit, and only then are they sent to the hub and to local clients. So nobody sees a record that a
//! crash could take back. While the store fails the session stands still, but every command is answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use qd_core::event_writer::{EventWriter, ResponseLine, ResponseSpan};
use qd_core::ledger::{CommandOutcome, SubmissionToken};
use qd_core::redact::redact_question;
use qd_core::session::{MessageIndexChange, SessionMemory, StoredQuestion};
use qd_store::{ApprovalRow, OutcomeRow, RecordRewrite, RunnerBatch, StoreError};
use qd_wire::{ErrorCode, Event};

use super::actor::{SessionActor, plain_response};
use super::{SessionInput, session_row};
use crate::clock::now_ms;
use crate::driver::AgentResult;

/// The status text that says whether the session can be stored.
const STORE_STATUS: &str = "qd.store";

/// A session that only writes lines stores the time of its last sign of life this often.
const ROW_EVERY_MS: i64 = 1000;

/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What is stored of a session, and what goes into its next commit.
#[derive(Default)]
pub(super) struct CommitState {
    pub(super) outcomes: Vec<OutcomeRow>,
    /// Commands whose outcome goes out with this round; whoever waits for them is told after the commit.
    pub(super) settled: Vec<(SubmissionToken, CommandOutcome)>,
    /// Inputs whose names are stored and whose outcomes are not yet.
    pub(super) begun_inputs: BTreeSet<String>,
    /// Inputs that were written; stored in the same commit as the record that shows them.
    pub(super) settled_inputs: Vec<String>,
    /// Inputs whose names may come again: they were taken and then refused.
    pub(super) refused_inputs: Vec<String>,
    /// What the store has of the session, besides its counters.
    pub(super) stored: Option<SessionMemory>,
    /// When the counters were last stored, and with which state.
    pub(super) row_stored: Option<(i64, &'static str)>,
    /// The questions the store knows of.
    pub(super) stored_questions: BTreeSet<String>,
    /// The names of images the store has.
    pub(super) stored_images: BTreeSet<String>,
    /// What has no record is saved again at this time at the earliest, after a failure.
    pub(super) save_after: i64,
}

impl CommitState {
    /// Whether there is something to commit besides records.
    fn has_rows(&self) -> bool {
        !self.outcomes.is_empty() || !self.settled_inputs.is_empty() || !self.refused_inputs.is_empty()
    }

    /// An input that was begun has an outcome.
    pub(super) fn end_input(&mut self, input_id: &str, result: &AgentResult<Option<Arc<str>>>) {
        self.begun_inputs.remove(input_id);
        match result {
            Ok(_) => self.settled_inputs.push(input_id.to_owned()),
            // Nothing was written: it may be sent again under the same name.
            Err(failure) if !failure.lost => self.refused_inputs.push(input_id.to_owned()),
            // Nobody can know. Its name stays begun, so whoever sends it again is told that.
            Err(_) => {}
        }
    }

    /// Whether this round settles the name of an input, which the store learns with the round's commit.
    pub(super) fn is_input_settled(&self, input_id: &str) -> bool {
        self.settled_inputs.iter().any(|settled| settled == input_id)
    }

    /// Takes the name of an input that was refused in this round: the store still has it as begun.
    pub(super) fn take_refused_input(&mut self, input_id: &str) -> bool {
        let Some(place) = self.refused_inputs.iter().position(|refused| refused == input_id) else {
            return false;
        };
        self.refused_inputs.remove(place);
        self.begun_inputs.insert(input_id.to_owned())
    }
}

/// How a commit went.
enum CommitResult {
    AtOnce,
    /// The commands of the round have been answered meanwhile.
    Late,
    /// The store is closed.
    Never,
}

impl SessionActor {
    /// Commits everything durable of this round, then sends all of it.
    pub(super) async fn publish(&mut self) {
        let mut round = self.out.take();
        let block = Bytes::from(std::mem::take(&mut round.bytes));
        let stored_version = self.publishing.stored.as_ref().map_or(0, |stored| stored.version);
        // A mutation without a record changes the version too, and a client may ask for it after a crash.
        let has_new_version = self.exists && self.session.memory().version != stored_version;
        let mut is_answered = false;
        if !round.records.is_empty() || self.publishing.has_rows() || has_new_version {
            let spool =
                round.records.iter().map(|record| (record.seq, block.slice(record.range.clone()))).collect();
            let batch = self.batch(spool);
            match self.commit(&batch, &round.responses).await {
                CommitResult::AtOnce => {}
                CommitResult::Late => is_answered = true,
                CommitResult::Never => {
                    // What is not stored was never said; the next start goes on from what is.
                    self.finished = true;
                    self.publishing.settled.clear();
                    return;
                }
            }
        }
        if is_answered {
            round.bytes = block.to_vec();
            round = round.without_responses();
        } else {
            round.bytes = Vec::new();
        }
        let block = if is_answered { Bytes::from(std::mem::take(&mut round.bytes)) } else { block };
        self.shared.hub_delivery.publish(&self.session.identity().session_id, block, &round).await;
        for (token, outcome) in self.publishing.settled.drain(..) {
            self.shared.submissions.finish(now_ms(), token, &outcome);
        }
        // After the commit, like everything else: a call must not run on an approval that a crash could forget.
        self.deliver_gate_answers();
    }

    fn batch(&mut self, spool: Vec<(u64, Bytes)>) -> RunnerBatch {
        let mut batch = RunnerBatch {
            session_id: self.session.identity().session_id.clone(),
            spool,
            outcomes: std::mem::take(&mut self.publishing.outcomes),
            inputs_settle: std::mem::take(&mut self.publishing.settled_inputs),
            inputs_delete: std::mem::take(&mut self.publishing.refused_inputs),
            ..RunnerBatch::default()
        };
        if !self.exists {
            return batch;
        }
        self.row_changes(&mut batch);
        for change in self.session.take_index_changes() {
            match change {
                MessageIndexChange::Clear => {
                    batch.index_truncate_from = Some(0);
                    batch.index_put.clear();
                }
                MessageIndexChange::Add { idx, message_id } => batch.index_put.push((idx, message_id)),
            }
        }
        self.question_changes(&mut batch);
        self.image_changes(&mut batch);
        batch
    }

    /// Images go in with the answer that accepts them, and out with the record that shows them.
    fn image_changes(&mut self, batch: &mut RunnerBatch) {
        let unshown = self.session.unshown_images();
        if unshown.is_empty() && self.publishing.stored_images.is_empty() {
            return;
        }
        let stored = &mut self.publishing.stored_images;
        batch.images_delete =
            stored.iter().filter(|key| !unshown.contains_key(key.as_str())).cloned().collect();
        for key in &batch.images_delete {
            stored.remove(key);
        }
        for (key, images) in unshown {
            if stored.insert(key.to_owned()) {
                let body = serde_json::to_vec(&**images).unwrap_or_default();
                batch.images_put.push((key.to_owned(), body.into()));
            }
        }
    }

    /// What of the session's row is to be written: all of it, its counters, or nothing, for a moment, when only lines
    /// were added. The number of the last line is known from the lines.
    fn row_changes(&mut self, batch: &mut RunnerBatch) {
        let (now, state) = (now_ms(), session_row::stored_status(self));
        let memory = self.session.memory();
        let is_fresh = |(at, word): (i64, &str)| word == state && (0..ROW_EVERY_MS).contains(&(now - at));
        let mut has_lines_only = self.publishing.row_stored.is_some_and(is_fresh);
        let mut has_counters_only = false;
        if let Some(stored) = &mut self.publishing.stored {
            has_lines_only &= stored.version == memory.version && stored.next_idx == memory.next_idx;
            // The counters are written in any case; with them out of the way, all else is compared at once.
            (stored.last_seq, stored.next_idx, stored.version) =
                (memory.last_seq, memory.next_idx, memory.version);
            has_counters_only = stored == memory;
        }
        if !has_counters_only {
            self.publishing.stored = Some(memory.clone());
            batch.session_row = Some(session_row::session_row(self, now));
        } else if has_lines_only {
            return;
        } else {
            batch.counters = Some(session_row::counters(self, now));
        }
        self.publishing.row_stored = Some((now, state));
    }

    fn question_changes(&mut self, batch: &mut RunnerBatch) {
        // Whoever decided has seen everything; from here on nobody needs the secrets.
        let settled = self.session.take_settled_records();
        let stored = &mut self.publishing.stored_questions;
        let open: Vec<&qd_core::session::OpenQuestion> = self.session.open_questions().collect();
        let gone = |id: &String| !open.iter().any(|question| question.request.request_id() == id);
        batch.rewrites = settled.into_iter().map(|seq| (seq, redact_question as RecordRewrite)).collect();
        batch.approvals_delete = stored.iter().filter(|id| gone(id)).cloned().collect();
        for id in &batch.approvals_delete {
            stored.remove(id);
        }
        for question in open {
            let request_id = question.request.request_id();
            if stored.insert(request_id.to_owned()) {
                batch.approvals_put.push(ApprovalRow {
                    session_id: batch.session_id.clone(),
                    request_id: request_id.to_owned(),
                    body_json: serde_json::to_vec(&StoredQuestion::from(question)).unwrap_or_default().into(),
                });
            }
        }
    }

    /// Tries until it is stored: nothing durable is dropped. Commands are told at once: those of this round that
    /// nobody can know their outcome yet, those that come meanwhile why they are refused.
    async fn commit(&mut self, batch: &RunnerBatch, responses: &[ResponseSpan]) -> CommitResult {
        let mut reported = false;
        let mut deferred = Vec::new();
        loop {
            let error = match self.shared.store.commit(batch.clone()).await {
                Ok(()) if !reported => return CommitResult::AtOnce,
                Ok(()) => {
                    self.announce_store_status(None).await;
                    self.requeue_inputs(deferred);
                    return CommitResult::Late;
                }
                Err(StoreError::Closed) => {
                    tracing::warn!("the store closed before a session's last records");
                    return CommitResult::Never;
                }
                Err(error) => error,
            };
            if !reported {
                reported = true;
                let session_id = &batch.session_id;
                tracing::error!(%error, session_id, "records cannot be stored; the session waits");
                self.announce_store_status(Some(format!(
                    "The session waits until it can be stored: {error}"
                )))
                .await;
                self.answer_unstored(&error, responses).await;
            }
            for input in std::mem::take(&mut deferred) {
                match input {
                    SessionInput::Command(incoming) => {
                        let error = ErrorCode::StoreUnavailable
                            .with(format!("The runner cannot store anything: {error}"));
                        self.refuse(&incoming, &error);
                    }
                    // Everything else is news from ourselves, to be handled once the disk works again.
                    news => deferred.push(news),
                }
            }
            let refusals = std::mem::take(&mut self.out);
            self.send(refusals).await;
            self.wait_before_retry(&mut deferred).await;
        }
    }

    /// Answers commands whose outcome cannot be stored now. When it is, repeating the key gives the true one.
    async fn answer_unstored(&self, error: &StoreError, responses: &[ResponseSpan]) {
        let error = ErrorCode::Indeterminate.with(format!(
            "The command's outcome cannot be stored, so it may or may not have taken effect: {error}"
        ));
        let mut out = EventWriter::default();
        for ResponseSpan { origin, id, cmd, .. } in responses {
            let response =
                ResponseLine { indeterminate: true, ..plain_response(*origin, id, cmd, Err(&error)) };
            out.response(self.session.front(), now_ms(), &response);
        }
        self.send(out).await;
    }

    /// Sends without storing.
    pub(super) async fn send(&self, mut out: EventWriter) {
        let mut round = out.take();
        let block = Bytes::from(std::mem::take(&mut round.bytes));
        self.shared.hub_delivery.publish(&self.session.identity().session_id, block, &round).await;
    }

    /// Tells everybody who looks, at once and live: a record could not be stored now.
    async fn announce_store_status(&self, text: Option<String>) {
        let event = Event::Status { key: STORE_STATUS.to_owned(), text };
        let mut out = EventWriter::default();
        out.known(self.session.front(), now_ms(), None, &event);
        self.send(out).await;
    }

    /// Waits a while before the next try. A command makes it come at once: there may be room again.
    async fn wait_before_retry(&mut self, deferred: &mut Vec<SessionInput>) {
        let pause = tokio::time::sleep(RETRY);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return,
                input = self.mailbox.recv() => {
                    let Some(input) = input else { return };
                    let is_command = matches!(input, SessionInput::Command(_));
                    self.defer_input(input, deferred);
                    if is_command {
                        return;
                    }
                }
            }
        }
    }

    /// Keeps an input for later. Every new link brings the same questions and news, so of those at most one is kept,
    /// however long the disk is full.
    fn defer_input(&self, input: SessionInput, deferred: &mut Vec<SessionInput>) {
        match input {
            SessionInput::Describe(answer) => {
                if self.exists {
                    // Nobody may be waiting any more.
                    let _ = answer.send(Box::new(self.session.state()));
                }
                return;
            }
            // Once is enough, and the later the better.
            SessionInput::Snapshot => deferred.retain(|kept| !matches!(kept, SessionInput::Snapshot)),
            SessionInput::Watch { number, .. } => {
                let is_newer = |kept: &SessionInput| match kept {
                    SessionInput::Watch { number: known, .. } => *known > number,
                    _ => false,
                };
                if deferred.iter().any(is_newer) {
                    return;
                }
                deferred.retain(|kept| !matches!(kept, SessionInput::Watch { .. }));
            }
            // The greatest number is the one that counts.
            SessionInput::HubHas(seq) => {
                let known = deferred.iter_mut().find_map(|kept| match kept {
                    SessionInput::HubHas(known) => Some(known),
                    _ => None,
                });
                if let Some(known) = known {
                    *known = seq.max(*known);
                    return;
                }
            }
            _ => {}
        }
        deferred.push(input);
    }

    /// Puts inputs back into the mailbox, in order.
    fn requeue_inputs(&self, inputs: Vec<SessionInput>) {
        let sender = self.sender.clone();
        tokio::spawn(async move {
            for input in inputs {
                if sender.send(input).await.is_err() {
                    tracing::debug!("a session ended while its disk was full");
                    return;
                }
            }
        });
    }
}
