//! What the hub says of a session whose runner is away, from its copy.

use std::sync::Arc;
use std::time::Duration;

use qd_store::{HubSession, StoreError};
use qd_wire::data::{AttachData, ModelRef, QueueState, Resume, SessionState, SessionStatus};
use qd_wire::mux::SessionChange;

use super::json;
use crate::clock::now_ms;
use crate::connection::{AttachFrame, Attached, Mailbox};
use crate::frame;
use crate::registry::{Hub, SessionEntry};
use crate::reply::ReplyTo;
use crate::runner_link::order_burial;

/// How long records that were read may take to be committed before somebody else's attach goes past them.
const SETTLE_MAX: Duration = Duration::from_secs(10);

/// Answers an attach: what the client lacks comes from the store, what the runner sends later from the ring.
pub(crate) async fn attach(
    hub: &Hub,
    mailbox: &Arc<Mailbox>,
    reply: &ReplyTo,
    session: Arc<SessionEntry>,
    after: Option<u64>,
) -> Result<Box<Attached>, StoreError> {
    // What the runner's last link brought comes first: its live events go on with a message that is not told here.
    // A store that fails must not keep readers out for ever; they are resynced when the runner is back.
    if tokio::time::timeout(SETTLE_MAX, session.when_settled()).await.is_err() {
        tracing::warn!(session = %session.id, "records of a runner that is away still wait for the store");
    }
    let subscription = session.ring.subscribe(Arc::clone(mailbox));
    // All records up to here are stored, and those after it come to the subscription.
    let seq = subscription.seq;
    let resume = if after.is_some_and(|after| after > seq) { Resume::Gap } else { Resume::Ok };
    let data = json(&AttachData {
        resume,
        seq,
        replay_until: None,
        state: SessionState { seq, ..state(hub, &session).await? },
        pending_input: Vec::new(),
        partial: None,
        messages: None,
    });
    // The messages go before the closing brace of the data.
    let mut before = reply.success_text(&data);
    let rest = before.split_off(before.len() - 2);
    let has_snapshot = resume == Resume::Gap || after.is_none();
    let replay = after.filter(|_| !has_snapshot).map(|after| (after, seq));
    let frame = if has_snapshot {
        AttachFrame::WithMessages { before, after: rest }
    } else {
        AttachFrame::Ready(frame::text_of(&[&before, &rest]))
    };
    Ok(Box::new(Attached { session, subscription, frame, replay, resync_of: None, is_away: true }))
}

/// How the session stood when the hub last heard of it.
pub(super) async fn state(hub: &Hub, session: &SessionEntry) -> Result<SessionState, StoreError> {
    let row = stored(hub, &session.id).await?;
    let model = row.provider.zip(row.model);
    Ok(SessionState {
        session_id: session.id.to_string(),
        runner_id: session.runner_id.to_string(),
        harness: row.harness,
        status: SessionStatus::Offline,
        phase: None,
        detail: None,
        cwd: (!row.cwd.is_empty()).then_some(row.cwd),
        title: row.title,
        model: model.map(|(provider, model_id)| ModelRef { provider, model_id }),
        thinking_level: None,
        auto_compaction: None,
        auto_retry: None,
        session_version: 0,
        seq: session.committed_seq(),
        message_count: row.message_count,
        queue: QueueState::default(),
        pending_input: Vec::new(),
        status_texts: std::collections::BTreeMap::new(),
        native_session_id: None,
        native_session_file: None,
        error: None,
        capabilities: Vec::new(),
        unknown_events: None,
        process: None,
    })
}

async fn stored(hub: &Hub, session_id: &str) -> Result<HubSession, StoreError> {
    Ok(hub.store.session(session_id).await?.unwrap_or_default())
}

/// Deletes a session here, and leaves word for its runner.
pub(super) async fn bury(hub: &Hub, session: &Arc<SessionEntry>) -> Result<(), StoreError> {
    // First the name is taken, then the rows go: a runner that comes meanwhile does not revive it.
    hub.bury(&session.id, &session.runner_id);
    if let Err(error) = hub.store.bury_session(&session.id, &session.runner_id, now_ms()).await {
        hub.unbury(&session.id);
        return Err(error);
    }
    hub.forget_session(session);
    session.end();
    hub.tell_session(session, SessionChange::Deleted);
    // A runner that has come just now was welcomed with the session still in it.
    if let Some(link) = hub.runner(&session.runner_id).and_then(|runner| runner.link()) {
        order_burial(&link, &session.id);
    }
    Ok(())
}
