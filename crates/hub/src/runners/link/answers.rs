//! A runner's answers on their way to the clients that asked.
//!
//! An answer that depends on records waits behind them in the commit queue. So a client that is told of success can
//! read what the success produced. The hub reads of an answer only what it must know; its text is passed on as the
//! runner wrote it.

use std::sync::Arc;

use bytes::Bytes;
use qd_store::StoreError;
use qd_wire::data::Resume;
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::refused_sessions::belongs_to;
use crate::command::ask::CommandAnswer;
use crate::command::pending::{AnswerTo, PendingCommand, PendingKind};
use crate::command::reply;
use crate::connection::{AttachFrame, AttachedSession, ConnectionMail, frame};
use crate::hub::Hub;
use crate::runners::line_head::{JsonFields, json_string};
use crate::sessions::session::SessionEntry;

/// An answer and the command it belongs to.
pub(super) struct RunnerAnswer {
    pub(super) pending: PendingCommand,
    pub(super) success: bool,
    /// The runner's fields after `id`, with the closing brace.
    pub(super) tail: String,
}

/// What the hub reads of an answer to an attach.
#[derive(Deserialize)]
struct AttachHead {
    resume: Resume,
    seq: u64,
    session_id: Option<String>,
    messages: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct AnswerBody<'a> {
    session_id: Option<String>,
    #[serde(default)]
    ts: i64,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    error: Option<String>,
    code: Option<ErrorCode>,
}

impl RunnerAnswer {
    /// Whether the hub has to forget a session before it passes this on. A session the runner does not have
    /// is to go from the hub as well.
    pub(super) fn deletes(&self) -> bool {
        matches!(self.pending.kind, PendingKind::Delete) && (self.success || self.is_session_gone())
    }

    /// Notes how the command ended, if it is one for the audit.
    pub(super) fn note(&mut self, hub: &Arc<Hub>, session_id: Option<&str>) {
        let ok = self.success || self.deletes();
        self.pending.note_answer(hub, session_id, ok);
    }

    /// Whether what the hub does with this answer depends on the records before it.
    pub(super) fn needs_store(&self) -> bool {
        match self.pending.kind {
            // A refusal depends on nothing and must not wait for a store that fails.
            PendingKind::Attach { .. } | PendingKind::Create | PendingKind::InOrder => self.success,
            PendingKind::Resync { .. } | PendingKind::ResyncAll => true,
            PendingKind::Delete => self.deletes(),
            PendingKind::Plain | PendingKind::Barrier(_) => false,
        }
    }

    fn is_session_gone(&self) -> bool {
        !self.success && says_not_found(&self.tail)
    }

    /// The link ends before what the answer depends on is stored.
    pub(super) fn give_up(self, hub: &Arc<Hub>) {
        if !self.needs_store() {
            return self.deliver(hub, None);
        }
        let error = "The connection of the runner ended while the hub could not store its events; ask again";
        self.pending.fail(hub, &ErrorCode::LinkLost.with(error), true);
    }

    /// Passes the answer on. Called in the order of the link's stream; `entry` is the session it is about.
    pub(super) fn deliver(self, hub: &Arc<Hub>, entry: Option<&Arc<SessionEntry>>) {
        // `send` counted the session when it sent the command; it does not exist after all.
        if let PendingKind::Create = self.pending.kind
            && !self.success
            && let Some(runner) = hub.runner(&self.pending.runner_id)
        {
            runner.note_failed_create();
        }
        if let AnswerTo::Face { .. } = self.pending.to {
            return self.deliver_to_face(hub);
        }
        match self.pending.kind {
            PendingKind::Plain | PendingKind::Delete | PendingKind::InOrder => self.pass(hub),
            PendingKind::Attach { .. } | PendingKind::Create if !self.success => self.pass(hub),
            PendingKind::ResyncAll => self.resync_all(entry),
            PendingKind::Attach { .. } | PendingKind::Create | PendingKind::Resync { .. } => {
                self.attach(hub, entry);
            }
            PendingKind::Barrier(_) => self.after_barrier(hub),
        }
    }

    /// Gives a face the answer, after what it depends on.
    fn deliver_to_face(self, hub: &Arc<Hub>) {
        match &self.pending.kind {
            PendingKind::Barrier(_) => return self.after_barrier(hub),
            PendingKind::Create if self.success => {
                // Usually its first record has made it known.
                let session_id = answered(&self.tail).and_then(|answered| answered.session_id);
                let entry = session_id.map(|id| hub.session_or_new(&id, &self.pending.runner_id));
                if let Some(entry) = entry.filter(|entry| entry.runner_id != self.pending.runner_id) {
                    let error = belongs_to(&entry.id, &entry.runner_id);
                    return self.pending.fail(hub, &error, false);
                }
            }
            PendingKind::Plain
            | PendingKind::Attach { .. }
            | PendingKind::Create
            | PendingKind::InOrder
            | PendingKind::Delete
            | PendingKind::Resync { .. }
            | PendingKind::ResyncAll => {}
        }
        self.pass(hub);
    }

    /// The same for a session that the hub has deleted now, or could not.
    pub(super) fn deliver_deleted(self, hub: &Arc<Hub>, result: Result<(), StoreError>) {
        match result {
            Ok(()) if self.success => self.pass(hub),
            // The runner did not know the session, which is what a delete wants: to the asker it is a success.
            Ok(()) => match self.pending.to {
                AnswerTo::Client { mailbox, reply } => {
                    mailbox.send_answer(reply.success(None), false);
                }
                AnswerTo::Face { session_id, on_answer, .. } => {
                    let session_id = session_id.map(|session_id| session_id.to_string());
                    let runner_id = Some(self.pending.runner_id);
                    on_answer(
                        hub,
                        CommandAnswer { success: true, session_id, runner_id, ..CommandAnswer::default() },
                    );
                }
            },
            Err(error) => {
                let error = ErrorCode::StoreUnavailable.with(format!(
                    "The runner has deleted the session, but the hub cannot delete its copy: {error}"
                ));
                self.pending.fail(hub, &error, false);
            }
        }
    }

    fn pass(self, hub: &Arc<Hub>) {
        match self.pending.to {
            AnswerTo::Client { mailbox, reply } => {
                let frame = reply::spliced_response(reply.id.as_deref(), &self.tail);
                mailbox.send_answer(frame, self.pending.kind.attaches());
            }
            AnswerTo::Face { cmd, session_id, on_answer, .. } => {
                let mut answered = answered(&self.tail).unwrap_or_else(|| {
                    tracing::error!(cmd, "the runner's answer cannot be read");
                    CommandAnswer::failure(
                        ErrorCode::Internal.with("The runner's answer cannot be read; look at the session"),
                    )
                });
                answered.session_id =
                    answered.session_id.or_else(|| session_id.map(|session_id| session_id.to_string()));
                answered.runner_id = Some(self.pending.runner_id);
                on_answer(hub, answered);
            }
        }
    }

    fn after_barrier(self, hub: &Arc<Hub>) {
        if !self.success {
            let error = error_of(&self.tail);
            let error = error.unwrap_or_else(|| {
                ErrorCode::DependencyFailed.with("A command that this one depends on failed or is unknown")
            });
            return self.pending.fail(hub, &error, false);
        }
        let PendingKind::Barrier(command) = self.pending.kind else { return };
        match self.pending.to {
            AnswerTo::Client { mailbox, .. } => mailbox.put(ConnectionMail::Run(command)),
            AnswerTo::Face { on_answer, .. } => command.run_for_face(hub, on_answer),
        }
    }

    /// Subscribes the asker at this point of the stream and hands it the answer.
    fn attach(self, hub: &Arc<Hub>, entry: Option<&Arc<SessionEntry>>) {
        let Some((mailbox, reply)) = self.pending.client() else { return };
        let text = format!("{{{}", self.tail);
        let body = serde_json::from_str::<AnswerBody<'_>>(&text);
        let read = body.as_ref().ok().and_then(|body| {
            let data = body.data?;
            let head: AttachHead = serde_json::from_str(data.get()).ok()?;
            Some((body, data, head))
        });
        let Some((body, data, head)) = read else { return self.attach_unreadable(hub) };
        let session_id = head.session_id.clone().or_else(|| body.session_id.clone());
        let session_id = session_id.or_else(|| reply.session_id.as_deref().map(str::to_owned));
        let Some(session_id) = session_id else { return self.attach_unreadable(hub) };

        // A create without a name learns the session's id only here.
        let entry = match entry.filter(|entry| *entry.id == *session_id) {
            Some(entry) => Arc::clone(entry),
            None => hub.session_or_new(&session_id, &self.pending.runner_id),
        };
        // A runner cannot take over a name that belongs to another machine.
        if entry.runner_id != self.pending.runner_id {
            let error = belongs_to(&session_id, &entry.runner_id);
            tracing::warn!(runner = %self.pending.runner_id, %error, "an answer about another's session is refused");
            return self.pending.fail(hub, &error, false);
        }
        // Exactly here in the stream: events before this point are in the answer, those after it in the ring. So none
        // is missing and none comes twice.
        let mut subscription = entry.ring.subscribe(Arc::clone(mailbox));
        // The stored answer to a repeated create is of the past: what came since is replayed.
        let until = subscription.seq.max(head.seq);
        subscription.seq = head.seq;
        let (after, resync_of) = self.pending.kind.cursor();
        let has_snapshot = head.resume == Resume::Gap || after.is_none();
        let replay = match after.filter(|_| !has_snapshot) {
            Some(after) => Some((after, until)),
            None => Some((head.seq, until)).filter(|_| head.seq < until),
        };
        let (before, rest) = match resync_of {
            Some(_) => {
                let cursor = replay.map_or(head.seq, |(after, _)| after);
                let text = resync_text(
                    &session_id,
                    &self.pending.runner_id,
                    body.ts,
                    data.get(),
                    (cursor, head.seq),
                );
                (text, b"}".to_vec())
            }
            None => {
                // The data is an object; its closing brace is where the messages go in.
                let data_end = data.get().as_ptr() as usize - text.as_ptr() as usize + data.get().len() - 1;
                let mut before = reply::response_start(reply.id.as_deref());
                before.extend_from_slice(&text.as_bytes()[1..data_end]);
                (before, text.as_bytes()[data_end..].to_vec())
            }
        };
        let frame = if has_snapshot && head.messages.is_none() {
            AttachFrame::WithMessages { before, after: rest }
        } else {
            AttachFrame::Ready(join(&before, &rest))
        };
        let mail = ConnectionMail::Attached(Box::new(AttachedSession {
            session: entry,
            subscription,
            frame,
            replay,
            resync_of,
            is_away: false,
        }));
        // It stays in flight until the connection follows the session.
        mailbox.put(mail);
    }

    /// Tells all who follow a session how it stands, now that its runner is back.
    fn resync_all(self, entry: Option<&Arc<SessionEntry>>) {
        let Some(entry) = entry.filter(|_| self.success) else { return };
        let text = format!("{{{}", self.tail);
        let Ok(body) = serde_json::from_str::<AnswerBody<'_>>(&text) else { return };
        let Some((data, head)) =
            body.data.and_then(|data| Some((data, serde_json::from_str::<AttachHead>(data.get()).ok()?)))
        else {
            return;
        };
        // They have every record up to here: nothing is left to replay.
        let mut text = resync_text(&entry.id, &entry.runner_id, body.ts, data.get(), (head.seq, head.seq));
        text.push(b'}');
        // Once for all of them, through the ring like every event; asking for each follower would cost an answer
        // each.
        entry.ring.publish(frame::text(&text), None);
    }

    fn attach_unreadable(self, hub: &Arc<Hub>) {
        let Some((mailbox, reply)) = self.pending.client() else { return };
        if let PendingKind::Resync { generation, .. } = self.pending.kind {
            // A refusal is final when the session is gone; anything else is tried again.
            let is_session_gone = self.is_session_gone();
            return mailbox.put(ConnectionMail::ResyncFailed { generation, is_session_gone });
        }
        tracing::error!(cmd = %reply.cmd, "the runner's answer is no attach; passed on as it is");
        self.pass(hub);
    }
}

/// An answer as a face reads it.
fn answered(tail: &str) -> Option<CommandAnswer> {
    let mut text = String::with_capacity(tail.len() + 1);
    text.push('{');
    text.push_str(tail);
    serde_json::from_str(&text).ok()
}

/// What the answer says went wrong.
fn error_of(tail: &str) -> Option<CodedError> {
    let text = format!("{{{tail}");
    let body = serde_json::from_str::<AnswerBody<'_>>(&text).ok()?;
    let error = body.error?;
    Some(body.code.unwrap_or_else(|| ErrorCode::of_older_peer(&error)).with(error))
}

/// Whether the runner does not have the session.
pub(super) fn says_not_found(tail: &str) -> bool {
    error_of(tail).is_some_and(|error| error.code == ErrorCode::SessionNotFound)
}

/// The answer of a runner that knows no codes gets one here, where it enters the hub, so that nobody behind this has to
/// read its sentence.
pub(super) fn answer_tail(success: bool, tail: String) -> String {
    if success {
        return tail;
    }
    let text = format!("{{{tail}");
    let Ok(body) = serde_json::from_str::<AnswerBody<'_>>(&text) else { return tail };
    let (Some(error), None) = (&body.error, body.code) else { return tail };
    let code = ErrorCode::of_older_peer(error);
    match tail.trim_end().strip_suffix('}') {
        Some(open) => format!("{open},\"code\":\"{code}\"}}"),
        None => tail,
    }
}

fn join(before: &[u8], after: &[u8]) -> Bytes {
    frame::text(&[before, after].concat())
}

/// A `session.resync` event without its closing brace: the runner's account, told as a gap. Its `seq` is the cursor
/// the client now has: the records it missed follow, up to `replay_until`; only live events are lost.
pub(crate) fn resync_text(
    session_id: &str,
    runner_id: &str,
    ts: i64,
    data: &str,
    (cursor, replay_until): (u64, u64),
) -> Vec<u8> {
    let mut text = format!(
        "{{\"channel\":\"agent\",\"session_id\":{},\"runner_id\":{},\"ts\":{ts},\"event\":\"session.resync\",\
         \"resume\":\"gap\",\"seq\":{cursor},\"replay_until\":{replay_until}",
        json_string(session_id),
        json_string(runner_id),
    );
    if let Ok(fields) = serde_json::from_str::<JsonFields<'_>>(data) {
        let replaced = ["session_id", "resume", "seq", "replay_until"];
        for (name, value) in fields.0.iter().filter(|(name, _)| !replaced.contains(&name.as_ref())) {
            text.push(',');
            text.push_str(&json_string(name));
            text.push(':');
            text.push_str(value.get());
        }
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_code_gets_one_and_the_others_stay_as_they_are() {
        let older = |error: &str| {
            answer_tail(false, format!("\"cmd\":\"x\",\"success\":false,\"error\":\"{error}\"}}"))
        };
        assert!(older("Session 's' not found").ends_with("not found\",\"code\":\"session_not_found\"}"));
        assert!(older("The disk is full").ends_with(",\"code\":\"failed\"}"));
        assert!(says_not_found(&older("Session s not found")));
        // Its data may name a code of something else.
        let with_data = "\"success\":false,\"data\":{\"code\":1},\"error\":\"denied\"}";
        assert!(answer_tail(false, with_data.to_owned()).ends_with("\"denied\",\"code\":\"denied\"}"));
        for (success, tail) in [
            (true, "\"success\":true,\"data\":{}}"),
            (false, "\"success\":false,\"error\":\"Session s not found\",\"code\":\"busy\"}"),
            (false, "not JSON"),
        ] {
            assert_eq!(answer_tail(success, tail.to_owned()), tail);
        }
    }
}
