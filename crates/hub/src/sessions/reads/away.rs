//! What the hub says of a session whose runner is away, from its copy.
//!
//! An attach first waits, within a bound, for what the runner's last link has brought and is not committed yet.

use std::sync::Arc;
use std::time::Duration;

use qd_link::clock::now_ms;
use qd_wire::data::{AttachData, ModelRef, QueueState, Resume, SessionState, SessionStatus};
use qd_wire::mux::SessionChange;
use qd_wire::{CodedError, ErrorCode};

use super::json;
use crate::command::reply::ReplyTo;
use crate::connection::{AttachFrame, AttachedSession, Mailbox, frame};
use crate::hub::Hub;
use crate::runners::link::{order_deletions, resync_text};
use crate::sessions::session::SessionEntry;

/// How long records that were read may take to be committed before somebody else's attach goes past them.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Why a client follows a session of the hub's own accord.
pub(crate) enum AwayAttach<'a> {
    /// It has asked for that.
    Asked { reply: &'a ReplyTo, after: Option<u64> },
    /// It fell behind: it has everything up to `after`, and its place there has this generation.
    Resync { after: u64, generation: u64 },
}

/// Answers an attach: what the client lacks comes from the store, what the runner sends later from the ring.
pub(crate) async fn attach(
    mailbox: &Arc<Mailbox>,
    session: Arc<SessionEntry>,
    attach: AwayAttach<'_>,
) -> Box<AttachedSession> {
    // What the runner's last link brought comes first: its live events go on with a message that is not told here.
    // A store that fails must not keep readers out for ever; they are resynced when the runner is back.
    if tokio::time::timeout(SETTLE_MAX, session.when_settled()).await.is_err() {
        tracing::warn!(session = %session.id, "records of a runner that is away still wait for the store");
    }
    let subscription = session.ring.subscribe(Arc::clone(mailbox));
    // All records up to here are stored, and those after it come to the subscription.
    let seq = subscription.seq;
    let (after, resync_of) = match attach {
        AwayAttach::Asked { after, .. } => (after, None),
        AwayAttach::Resync { after, generation } => (Some(after), Some(generation)),
    };
    let resume = if after.is_some_and(|after| after > seq) { Resume::Gap } else { Resume::Ok };
    let has_snapshot = resume == Resume::Gap || after.is_none();
    let replay = after.filter(|_| !has_snapshot).map(|after| (after, seq));
    let data = as_of(&session, resume, seq);
    // The messages go before the closing brace of the data.
    let (before, rest) = match attach {
        AwayAttach::Asked { reply, .. } => {
            let mut before = reply.success_text(&json(&data));
            let rest = before.split_off(before.len() - 2);
            (before, rest)
        }
        AwayAttach::Resync { .. } => {
            let cursor = replay.map_or(seq, |(after, _)| after);
            (
                resync_text(&session.id, &session.runner_id, now_ms(), &json(&data), (cursor, seq)),
                b"}".to_vec(),
            )
        }
    };
    let frame = if has_snapshot {
        AttachFrame::WithMessages { before, after: rest }
    } else {
        AttachFrame::Ready(frame::text_of(&[&before, &rest]))
    };
    Box::new(AttachedSession { session, subscription, frame, replay, resync_of, is_away: true })
}

/// The same for one who follows nothing by it.
pub(super) fn attach_data(session: &SessionEntry, after: Option<u64>) -> AttachData {
    let seq = session.committed_seq();
    let resume = if after.is_some_and(|after| after > seq) { Resume::Gap } else { Resume::Ok };
    as_of(session, resume, seq)
}

fn as_of(session: &SessionEntry, resume: Resume, seq: u64) -> AttachData {
    let state = SessionState { seq, ..state(session) };
    AttachData {
        resume,
        seq,
        replay_until: None,
        pending_input: state.pending_input.clone(),
        state,
        partial: None,
        messages: None,
        terminal: None,
    }
}

/// How the session stood when the hub last heard of it.
pub(super) fn state(session: &SessionEntry) -> SessionState {
    let (line, pending_input) = {
        let projection = session.projection();
        (projection.line().clone(), projection.open_questions().cloned().collect())
    };
    let model = line.provider.zip(line.model);
    SessionState {
        session_id: session.id.to_string(),
        runner_id: session.runner_id.to_string(),
        harness: line.harness,
        status: SessionStatus::Offline,
        phase: None,
        detail: None,
        cwd: line.cwd,
        title: line.title,
        model: model.map(|(provider, model_id)| ModelRef { provider, model_id }),
        thinking_level: None,
        auto_compaction: None,
        auto_retry: None,
        session_version: 0,
        seq: session.committed_seq(),
        message_count: line.message_count,
        queue: QueueState::default(),
        pending_input,
        status_texts: std::collections::BTreeMap::new(),
        native_session_id: None,
        native_session_file: None,
        error: line.error,
        capabilities: Vec::new(),
        unknown_events: None,
        process: None,
        created_at: Some(line.created_at),
        native_model: None,
        run: None,
        branch: line.branch,
        worktree: None,
    }
}

/// Deletes a session here, and leaves word for its runner. An error says what to do.
pub(crate) async fn delete_while_away(hub: &Arc<Hub>, session: &Arc<SessionEntry>) -> Result<(), CodedError> {
    let _alone = session.deleting.lock().await;
    if session.is_over() {
        return Ok(());
    }
    // First the name is taken: a runner that comes meanwhile does not revive it. Then what its last link brought
    // comes to rest: rows that come after the others are gone would be another session's.
    hub.mark_deleted(&session.id, &session.runner_id);
    hub.forget_session(session);
    session.set_being_deleted(true);
    if let Err(error) = remove_rows(hub, session).await {
        session.set_being_deleted(false);
        hub.remember_session(Arc::clone(session));
        hub.forget_deleted(&session.id);
        // A runner that has come just now was welcomed without it. It comes again, and sends what was not taken.
        if let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.newest_link()) {
            link.end();
        }
        return Err(error);
    }
    hub.note_deletion_stored(&session.id);
    session.end();
    hub.faces.forget(&session.id);
    hub.announce_session(session, SessionChange::Deleted);
    if let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.link()) {
        order_deletions(hub, &session.runner_id, &link);
    }
    Ok(())
}

async fn remove_rows(hub: &Hub, session: &SessionEntry) -> Result<(), CodedError> {
    if tokio::time::timeout(SETTLE_MAX, session.when_settled()).await.is_err() {
        let error = "Events of the session still wait to be stored; delete it again later";
        return Err(ErrorCode::Busy.with(error));
    }
    let stored = hub.store.mark_session_deleted(&session.id, &session.runner_id, now_ms()).await;
    stored.map(drop).map_err(|error| {
        ErrorCode::StoreUnavailable.with(format!("The hub cannot write to its store: {error}"))
    })
}
