//! Persist, then announce.

use std::time::Duration;

use bytes::Bytes;
use qd_core::outbox::Outbox;
use qd_core::session::IndexChange;
use qd_store::{ApprovalRow, RunnerBatch, StoreError};
use qd_wire::Event;

use super::actor::SessionActor;
use super::{SessionInput, row};
use crate::clock::now_ms;

/// The status text that says whether the session can be stored.
const STORE_STATUS: &str = "qd.store";

/// How long to wait before a full disk is tried again.
const RETRY: Duration = Duration::from_millis(500);

impl SessionActor {
    /// Commits everything durable of this round, then sends all of it.
    pub(super) async fn publish(&mut self) {
        let (bytes, records) = self.out.take();
        let block = Bytes::from(bytes);
        let stored_version = self.stored.as_ref().map_or(0, |stored| stored.version);
        let has_new_version = self.exists && self.session.memory().version != stored_version;
        if !records.is_empty() || !self.outcomes.is_empty() || has_new_version {
            let spool = records.into_iter().map(|record| (record.seq, block.slice(record.range))).collect();
            let batch = self.batch(spool);
            if !self.commit(batch).await {
                // What is not stored was never said; the next start goes on from what is.
                self.finished = true;
                self.settled.clear();
                return;
            }
        }
        if !block.is_empty() && self.shared.link.send(block).await.is_err() {
            tracing::debug!("the hub is gone; records wait in the spool");
        }
        for (token, outcome) in self.settled.drain(..) {
            self.shared.submissions.finish(now_ms(), token, &outcome);
        }
    }

    fn batch(&mut self, spool: Vec<(u64, Bytes)>) -> RunnerBatch {
        let mut batch = RunnerBatch {
            session_id: self.session.identity().session_id.clone(),
            spool,
            outcomes: std::mem::take(&mut self.outcomes),
            ..RunnerBatch::default()
        };
        if !self.exists {
            return batch;
        }
        let memory = self.session.memory();
        if self.stored.as_ref().is_some_and(|stored| row::differs_in_counters_only(stored, memory)) {
            batch.counters = Some(row::counters(self, now_ms()));
        } else {
            batch.session_row = Some(row::session_row(self, now_ms()));
        }
        self.stored = Some(memory.clone());
        for change in self.session.take_index_changes() {
            match change {
                IndexChange::Clear => {
                    batch.index_truncate_from = Some(0);
                    batch.index_put.clear();
                }
                IndexChange::Add { idx, message_id } => batch.index_put.push((idx, message_id)),
            }
        }
        self.question_changes(&mut batch);
        batch
    }

    fn question_changes(&mut self, batch: &mut RunnerBatch) {
        let stored = &mut self.stored_questions;
        let open: Vec<&qd_core::session::OpenQuestion> = self.session.open_questions().collect();
        let gone = |id: &String| !open.iter().any(|question| question.request.request_id() == id);
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
                    body_json: serde_json::to_vec(&question.request).unwrap_or_default().into(),
                });
            }
        }
    }

    /// Tries until it is stored: nothing durable is dropped. Commands that come meanwhile are told why they fail.
    /// False when the store is closed.
    async fn commit(&mut self, batch: RunnerBatch) -> bool {
        let mut reported = false;
        loop {
            let error = match self.shared.store.commit(batch.clone()).await {
                Ok(()) => {
                    if reported {
                        self.tell_store(None).await;
                    }
                    return true;
                }
                Err(StoreError::Closed) => {
                    tracing::warn!("the store closed before a session's last records");
                    return false;
                }
                Err(error) => error,
            };
            if !reported {
                reported = true;
                let session_id = &batch.session_id;
                tracing::error!(%error, session_id, "records cannot be stored; the session waits");
                self.tell_store(Some(format!("The session waits until it can be stored: {error}"))).await;
            }
            self.refuse_meanwhile(&error).await;
        }
    }

    /// Tells everybody who looks, at once and live: a record could not be stored now.
    async fn tell_store(&mut self, text: Option<String>) {
        let event = Event::Status { key: STORE_STATUS.to_owned(), text };
        let mut out = Outbox::default();
        out.known(self.session.front(), now_ms(), None, &event);
        let (bytes, _) = out.take();
        if self.shared.link.send(bytes.into()).await.is_err() {
            tracing::debug!("the hub is gone");
        }
    }

    async fn refuse_meanwhile(&mut self, error: &StoreError) {
        let pause = tokio::time::sleep(RETRY);
        tokio::pin!(pause);
        let mut kept = Vec::new();
        loop {
            tokio::select! {
                () = &mut pause => break,
                input = self.mailbox.recv() => match input {
                    None => break,
                    Some(SessionInput::Command(incoming)) => {
                        self.refuse(&incoming, &format!("The runner cannot store anything: {error}"));
                        let (bytes, _) = self.out.take();
                        if self.shared.link.send(bytes.into()).await.is_err() {
                            tracing::debug!("the hub is gone");
                        }
                    }
                    Some(other) => kept.push(other),
                },
            }
        }
        // Everything but commands is news from ourselves and must be handled once the disk works again.
        for input in kept {
            let sender = self.sender.clone();
            tokio::spawn(async move {
                if sender.send(input).await.is_err() {
                    tracing::debug!("a session ended while its disk was full");
                }
            });
        }
    }
}
