//! A runner's answers on their way to the clients that asked.

use std::sync::Arc;

use bytes::Bytes;
use qd_store::StoreError;
use qd_wire::data::Resume;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::refusals::belongs_to;
use crate::connection::{AttachFrame, Attached, Mail};
use crate::frame;
use crate::head::{Fields, json_string};
use crate::pending::{Pending, PendingKind};
use crate::registry::{Hub, SessionEntry};
use crate::reply;

/// An answer and the command it belongs to.
pub(super) struct Answer {
    pub(super) pending: Pending,
    pub(super) success: bool,
    /// The runner's fields after `id`, with the closing brace.
    pub(super) tail: String,
}

/// What the hub reads of an answer to an attach.
#[derive(Deserialize)]
struct AttachHead {
    resume: Resume,
    seq: u64,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    messages: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct AnswerBody<'a> {
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    ts: i64,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
}

impl Answer {
    /// Whether the hub has to forget a session before it passes this on. A session the runner does not have
    /// is to go from the hub as well.
    pub(super) fn deletes(&self) -> bool {
        matches!(self.pending.kind, PendingKind::Delete) && (self.success || self.is_session_gone())
    }

    /// Whether what the hub does with this answer depends on the records before it.
    pub(super) fn needs_store(&self) -> bool {
        match self.pending.kind {
            PendingKind::Attach { .. } | PendingKind::Create => self.success,
            PendingKind::Resync { .. } | PendingKind::ResyncAll => true,
            PendingKind::Delete => self.deletes(),
            PendingKind::Plain | PendingKind::Barrier(_) => false,
        }
    }

    fn is_session_gone(&self) -> bool {
        !self.success && says_not_found(&self.tail)
    }

    fn error(&self) -> Option<String> {
        error_of(&self.tail)
    }

    /// The link ends before what the answer depends on is stored.
    pub(super) fn give_up(self, hub: &Hub) {
        if !self.needs_store() {
            return self.deliver(hub, None);
        }
        let error = "The connection of the runner ended while the hub could not store its events; ask again";
        self.pending.fail(error, true);
    }

    /// Passes the answer on. Called in the order of the link's stream; `entry` is the session it is about.
    pub(super) fn deliver(self, hub: &Hub, entry: Option<&Arc<SessionEntry>>) {
        match self.pending.kind {
            PendingKind::Plain | PendingKind::Delete => self.pass(),
            PendingKind::Attach { .. } if !self.success => self.pass(),
            PendingKind::Create if !self.success => {
                if let Some(runner) = hub.runner(&self.pending.runner_id) {
                    runner.note_failed_create();
                }
                self.pass();
            }
            PendingKind::ResyncAll => self.resync_all(entry),
            PendingKind::Attach { .. } | PendingKind::Create | PendingKind::Resync { .. } => {
                self.attach(hub, entry);
            }
            PendingKind::Barrier(_) => self.after_barrier(),
        }
    }

    /// The same for a session that the hub has deleted now, or could not.
    pub(super) fn deliver_deleted(self, result: Result<(), StoreError>) {
        match result {
            Ok(()) if self.success => self.pass(),
            Ok(()) => {
                let frame = self.pending.reply.success(None);
                self.pending.answer(Mail::Frames(frame));
            }
            Err(error) => {
                let text = format!(
                    "The runner has deleted the session, but the hub cannot delete its copy: {error}"
                );
                self.pending.fail(&text, false);
            }
        }
    }

    fn pass(self) {
        let frame = reply::spliced_response(self.pending.reply.id.as_deref(), &self.tail);
        self.pending.answer(Mail::Frames(frame));
    }

    fn after_barrier(self) {
        if self.success {
            if let PendingKind::Barrier(command) = self.pending.kind {
                self.pending.mailbox.put(Mail::Run(command));
            }
            return;
        }
        let error = self.error();
        self.pending.fail(error.as_deref().unwrap_or("The dependencies are not met"), false);
    }

    /// Subscribes the asker at this point of the stream and hands it the answer.
    fn attach(self, hub: &Hub, entry: Option<&Arc<SessionEntry>>) {
        let text = format!("{{{}", self.tail);
        let body = serde_json::from_str::<AnswerBody<'_>>(&text);
        let read = body.as_ref().ok().and_then(|body| {
            let data = body.data?;
            let head: AttachHead = serde_json::from_str(data.get()).ok()?;
            Some((body, data, head))
        });
        let Some((body, data, head)) = read else { return self.attach_unreadable() };
        let session_id = head.session_id.clone().or_else(|| body.session_id.clone());
        let session_id = session_id.or_else(|| self.pending.reply.session_id.as_deref().map(str::to_owned));
        let Some(session_id) = session_id else { return self.attach_unreadable() };

        let entry = match entry.filter(|entry| *entry.id == *session_id) {
            Some(entry) => Arc::clone(entry),
            None => hub.session_or_new(&session_id, &self.pending.runner_id),
        };
        if entry.runner_id != self.pending.runner_id {
            let error = belongs_to(&session_id, &entry.runner_id);
            tracing::warn!(runner = %self.pending.runner_id, error, "an answer about another's session is refused");
            return self.pending.fail(&error, false);
        }
        let mut subscription = entry.ring.subscribe(Arc::clone(&self.pending.mailbox));
        // The stored answer to a repeated create is of the past: what came since is replayed.
        let until = subscription.seq.max(head.seq);
        subscription.seq = head.seq;
        let (after, resync_of) = match self.pending.kind {
            PendingKind::Attach { after } => (after, None),
            PendingKind::Resync { after, generation } => (Some(after), Some(generation)),
            _ => (None, None),
        };
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
                let mut before = reply::response_start(self.pending.reply.id.as_deref());
                before.extend_from_slice(&text.as_bytes()[1..data_end]);
                (before, text.as_bytes()[data_end..].to_vec())
            }
        };
        let frame = if has_snapshot && head.messages.is_none() {
            AttachFrame::WithMessages { before, after: rest }
        } else {
            AttachFrame::Ready(join(&before, &rest))
        };
        let mail = Mail::Attached(Box::new(Attached {
            session: entry,
            subscription,
            frame,
            replay,
            resync_of,
            is_away: false,
        }));
        // It stays in flight until the connection follows the session.
        self.pending.mailbox.put(mail);
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
        entry.ring.publish(frame::text(&text), None);
    }

    fn attach_unreadable(self) {
        if let PendingKind::Resync { generation, .. } = self.pending.kind {
            // A refusal is final when the session is gone; anything else is tried again.
            let is_session_gone = self.is_session_gone();
            return self.pending.mailbox.put(Mail::ResyncFailed { generation, is_session_gone });
        }
        tracing::error!(cmd = %self.pending.reply.cmd, "the runner's answer is no attach; passed on as it is");
        self.pass();
    }
}

/// What the answer says went wrong.
fn error_of(tail: &str) -> Option<String> {
    let text = format!("{{{tail}");
    serde_json::from_str::<AnswerBody<'_>>(&text).ok().and_then(|body| body.error)
}

/// Whether the runner does not have the session.
pub(super) fn says_not_found(tail: &str) -> bool {
    error_of(tail).is_some_and(|error| error.starts_with("Session ") && error.contains("not found"))
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
    if let Ok(fields) = serde_json::from_str::<Fields<'_>>(data) {
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
