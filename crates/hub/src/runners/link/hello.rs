//! A runner's hello: who it is, what it has, and what it is told.
//!
//! A hello decides between two accounts of the same sessions: the runner's and the hub's. The runner is right about
//! what exists and how it stands; the hub is right about what is committed and what was deleted by people.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use qd_core::projection::{PendingQuestion, SessionDescription};
use qd_link::clock::now_ms;
use qd_store::RunnerNote;
use qd_wire::data::{SessionState, SessionStatus};
use qd_wire::link::{LinkLine, RunnerHello, RunnerWelcome, WelcomeSession};
use qd_wire::{CodedError, ErrorCode};

use super::reader::{LinkEnded, LinkReader};
use super::refused_sessions::{belongs_to, refused_session};
use super::{RunnerLink, line_of};
use crate::command::{request_resync_of_all, send_waiting};
use crate::faces::RunnerUpdate;
use crate::hub::Hub;
use crate::runners::line_head::json_string;
use crate::runners::runner::Runner;
use crate::sessions::effects;

/// Ids of the hub's own deletes: no command of a client has such a one.
pub(super) const DELETION_ID: &str = "bury:";

/// Sessions that one runner may name; each costs the hub some memory for as long as it knows it.
const HELLO_SESSIONS_MAX: usize = 10_000;
/// The longest name of a session in bytes; it is kept in memory, and is part of every line.
pub(super) const SESSION_ID_BYTES_MAX: usize = 256;

/// The packing of blocks this hub knows.
const COMPRESSION: &str = "deflate";

impl LinkReader {
    pub(super) async fn hello(&mut self, hello: RunnerHello) -> Result<(), LinkEnded> {
        // The order of the steps below matters: each one makes true what the next relies on.
        self.check_hello(&hello)?;
        let runner = self.hub.runner_or_new(&self.identity.runner_id);
        // Before anything can fail: `end` has to undo the claim.
        self.runner = Some(Arc::clone(&runner));
        if let Some(old) = runner.claim(&self.link) {
            tracing::info!(runner = %runner.id, peer = %self.identity.peer, "a newer connection replaces an old one");
            let reason = "This connection is replaced by a newer one of the same runner";
            old.refuse(ErrorCode::Conflict.with(reason));
            // Not even when this one is to end: who replaces us relies on what we waited for.
            old.settled().await;
        }
        // While this link waited for the old one, a newer one may have replaced it, or its runner was revoked.
        if self.link.stop.is_cancelled() {
            return Err(LinkEnded);
        }
        for entry in self.hub.sessions_of(&runner.id) {
            // The runner sends again what is not committed, so reading starts after the last committed record.
            entry.start_over();
        }
        // Nothing is read from the store here: many clients may be reading, and the runner would wait for them all.
        let note = self.noted(&hello);
        note_runner(&self.hub, note).await;
        self.forget_lost_deletions(&runner, &hello).await;
        self.welcome(&hello);
        order_deletions(&self.hub, &runner.id, &self.link);
        // Those who waited come first; the second time for those who came in between.
        send_waiting(&self.hub, &runner, Some(&self.link));
        if !runner.open(&self.link, &hello) {
            return Err(LinkEnded);
        }
        // Who deletes a session from now on sees the link; who did so since the welcome did not.
        order_deletions(&self.hub, &runner.id, &self.link);
        runner.note_seen();
        tracing::info!(runner = %runner.id, peer = %self.identity.peer, "a runner has come");
        self.hub.announce_runner(&runner);
        send_waiting(&self.hub, &runner, None);
        // Who follows a session from now on finds the link.
        self.hub.faces.runner_update(&self.hub, &runner.id, RunnerUpdate::Came);
        for entry in self.hub.sessions_of(&runner.id) {
            let is_followed = entry.ring.subscriber_count() > 0 && !entry.is_orphan.load(Ordering::Relaxed);
            if is_followed {
                request_resync_of_all(&self.hub, &self.link, &entry);
            }
        }
        Ok(())
    }

    fn check_hello(&self, hello: &RunnerHello) -> Result<(), LinkEnded> {
        let own = &self.identity.runner_id;
        let reason = if *hello.runner_id != **own {
            format!("This connection is runner {own}'s, but its hello names {}", hello.runner_id)
        } else if self.runner.is_some() {
            "A second hello on the same connection".to_owned()
        } else {
            return Ok(());
        };
        tracing::warn!(runner = %own, peer = %self.identity.peer, reason, "a runner is refused");
        self.link.refuse(ErrorCode::Conflict.with(reason));
        Err(LinkEnded)
    }

    /// Brings the sessions in line with what the runner says of them, and tells it how far each is committed.
    fn welcome(&mut self, hello: &RunnerHello) {
        let runner_id = Arc::clone(&self.identity.runner_id);
        // A session the runner does not name is one it has lost: its history stays, and it can be deleted.
        for entry in self.hub.sessions_of(&runner_id) {
            // Taken back below for those that the hello names.
            entry.is_orphan.store(true, Ordering::Relaxed);
            if entry.status() != SessionStatus::Closed {
                entry.set_status(SessionStatus::Dormant);
            }
        }
        let mut refused = Vec::new();
        for (number, session) in hello.sessions.iter().enumerate() {
            if let Err(error) = check_bounds(number, &session.session_id) {
                if self.refusals.note(&session.session_id, &error.message) {
                    refused.push(refused_session(&session.session_id, error));
                }
                continue;
            }
            let deleted_on = self.hub.deleted_on(&session.session_id);
            // It was deleted while this runner was away: it is told so after the welcome.
            if deleted_on.as_ref() == Some(&runner_id) {
                continue;
            }
            let entry =
                deleted_on.is_none().then(|| self.hub.session_or_new(&session.session_id, &runner_id));
            let owner = entry.as_ref().map(|entry| Arc::clone(&entry.runner_id)).or(deleted_on);
            let Some(entry) = entry.filter(|entry| entry.runner_id == runner_id) else {
                let error = belongs_to(&session.session_id, owner.as_deref().unwrap_or_default());
                self.refusals.note(&session.session_id, &error.message);
                refused.push(refused_session(&session.session_id, error));
                continue;
            };
            entry.is_orphan.store(false, Ordering::Relaxed);
            if let Some(state) = &session.state {
                let questions = state.pending_input.iter().map(PendingQuestion::from).collect();
                let SessionState { status, phase, seq, .. } = **state;
                effects::describe(&self.hub, &entry, SessionDescription { status, phase, questions, seq });
                self.hub.faces.described(&self.hub, &entry, status, &state.pending_input);
            } else if entry.status() == SessionStatus::Starting {
                entry.set_status(SessionStatus::Dormant);
            }
        }
        self.drop_empty_orphans();
        let sessions = self.hub.sessions_of(&runner_id).into_iter().map(|entry| WelcomeSession {
            session_id: entry.id.to_string(),
            last_seq: entry.committed_seq(),
        });
        let compression = self.agree_on_compression(&hello.compression);
        let welcome = RunnerWelcome {
            runner_id: runner_id.to_string(),
            sessions: sessions.collect(),
            refused,
            compression,
        };
        if let Err(error) = self.link.send_queue.push(&line_of(&LinkLine::Welcome(welcome))) {
            tracing::warn!(runner = %runner_id, %error, "the runner cannot be welcomed");
        }
    }

    /// Sessions that the runner does not have and of which nothing is stored were never more than a name.
    fn drop_empty_orphans(&self) {
        for entry in self.hub.sessions_of(&self.identity.runner_id) {
            if entry.is_orphan.load(Ordering::Relaxed) && entry.committed_seq() == 0 {
                self.hub.forget_session(&entry);
                entry.end();
            }
        }
    }

    /// The packing that both ends know, switched on for what we send.
    fn agree_on_compression(&self, offered: &[String]) -> Option<String> {
        let is_known = !self.identity.is_local && offered.iter().any(|name| name == COMPRESSION);
        // Within one process packing would only cost time.
        self.sender.set_compression(is_known);
        is_known.then(|| COMPRESSION.to_owned())
    }

    pub(super) fn noted(&self, hello: &RunnerHello) -> RunnerNote {
        RunnerNote {
            runner_id: self.identity.runner_id.to_string(),
            hostname: hello.hostname.clone(),
            os: hello.os.clone(),
            version: hello.version.clone(),
            // A list of strings can always be written.
            harnesses_json: serde_json::to_string(&hello.harnesses).unwrap_or_default(),
            max_sessions: hello.max_sessions,
            seen_at: now_ms(),
        }
    }

    /// Deleted sessions that the runner does not have any more are forgotten.
    async fn forget_lost_deletions(&self, runner: &Runner, hello: &RunnerHello) {
        let named: HashSet<&str> = hello.sessions.iter().map(|session| &*session.session_id).collect();
        for session_id in self.hub.deleted_sessions_of(&runner.id) {
            if !named.contains(&*session_id) {
                forget_deleted(&self.hub, &session_id).await;
            }
        }
    }

    /// The runner's answer to such an order.
    pub(super) fn note_deleted_by_runner(&self, session_id: &str, success: bool, tail: &str) {
        if !self.hub.is_deletion_ordered(session_id, &self.link) {
            return;
        }
        if !success && !super::answers::says_not_found(tail) {
            tracing::warn!(
                session = session_id,
                "a runner did not delete a session; it is told again next time"
            );
            return;
        }
        let (hub, session_id) = (Arc::clone(&self.hub), session_id.to_owned());
        self.hub.tasks.spawn(async move { forget_deleted(&hub, &session_id).await });
    }
}

/// Whether a session of a hello is taken, by its name and its place in the list.
fn check_bounds(number: usize, session_id: &str) -> Result<(), CodedError> {
    if session_id.len() > SESSION_ID_BYTES_MAX {
        let error = format!("The name is longer than {SESSION_ID_BYTES_MAX} bytes; take another one");
        return Err(CodedError::invalid(error));
    }
    if number >= HELLO_SESSIONS_MAX {
        let error =
            format!("The runner has more than {HELLO_SESSIONS_MAX} sessions; delete some and connect again");
        return Err(ErrorCode::LimitReached.with(error));
    }
    Ok(())
}

/// Tells a runner to delete the sessions that were deleted while it was away, each once on this link.
pub(crate) fn order_deletions(hub: &Hub, runner_id: &str, link: &Arc<RunnerLink>) {
    for session_id in hub.deleted_to_order(runner_id, link) {
        order_deletion(link, &session_id);
    }
}

fn order_deletion(link: &RunnerLink, session_id: &str) {
    let (id, session) = (json_string(&format!("{DELETION_ID}{session_id}")), json_string(session_id));
    let line = format!(
        "{{\"type\":\"command\",\"id\":{id},\"user_id\":\"owner\",\"connection_id\":\"hub\",\
         \"session_id\":{session},\"cmd\":\"session.delete\"}}\n"
    );
    if let Err(error) = link.send_queue.push(line.as_bytes()) {
        tracing::warn!(session = session_id, %error, "a runner cannot be told to delete a session yet");
    }
}

/// The name is free again, once the store says so too: a tombstone left behind would delete its next bearer.
async fn forget_deleted(hub: &Hub, session_id: &str) {
    match hub.store.forget_deleted_session(session_id).await {
        Ok(_) => hub.forget_deleted(session_id),
        Err(error) => {
            tracing::warn!(session = session_id, %error, "a deleted session's name is not free yet")
        }
    }
}

/// Notes that a runner is here. That it cannot be noted is no reason to turn it away.
pub(super) async fn note_runner(hub: &Hub, note: RunnerNote) {
    let runner_id = note.runner_id.clone();
    if let Err(error) = hub.store.note_runner(note).await {
        tracing::warn!(runner = runner_id, %error, "a runner cannot be noted");
    }
}
