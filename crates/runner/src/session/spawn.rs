//! The tasks of sessions: of new ones, and of those known from before.

use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::command::SessionConfig;
use qd_wire::people::Rights;
use tokio::sync::mpsc;

use super::actor::{RunnerContext, SessionActor};
use super::workplace::hold_to_workspaces;
use super::{MAILBOX_MAX, SessionInput};
use crate::clock::now_ms;

/// Starts the task of a session that is being created; `first` is its `session.create`.
pub(crate) fn spawn_new(
    shared: &Arc<RunnerContext>,
    session_id: &str,
    mut config: SessionConfig,
    rights: Rights,
) -> mpsc::Sender<SessionInput> {
    let created_at = now_ms();
    let (sender, mailbox) = mpsc::channel(MAILBOX_MAX);
    let (shared, session_id, door) = (Arc::clone(shared), session_id.to_owned(), sender.clone());
    tokio::spawn(async move {
        let refusal = settle_directory(&shared, rights, &mut config).await.err();
        let session = super::session_row::new_session(&shared.config, &session_id, &config, created_at);
        let mut actor = SessionActor::new(&shared, (door, mailbox), session, config, created_at, false);
        actor.refusal = refusal;
        Box::new(actor).run().await;
    });
    sender
}

/// Decides where a new session works, or says why it may not work where that would be.
pub(crate) async fn settle_directory(
    shared: &Arc<RunnerContext>,
    rights: Rights,
    config: &mut SessionConfig,
) -> Result<(), CodedError> {
    if config.cwd.is_none() {
        config.cwd = cwd_of_stored(shared, config).await;
    }
    hold_to_workspaces(shared, rights, config).await
}

/// A conversation goes on where it was. Its file is read here and not by whoever hands out the commands of all
/// sessions.
async fn cwd_of_stored(shared: &Arc<RunnerContext>, config: &SessionConfig) -> Option<String> {
    let (named, harness) = (config.continue_session.clone()?, config.harness.clone());
    let shared = Arc::clone(shared);
    let reading =
        tokio::task::spawn_blocking(move || shared.config.harnesses.cwd_of_stored(&harness, &named));
    reading.await.unwrap_or_else(|error| {
        tracing::error!(%error, "a stored session's directory could not be read");
        None
    })
}

/// Starts the task of a session known from before.
pub(crate) fn spawn_restored(
    shared: &Arc<RunnerContext>,
    restored: super::session_row::RestoredSession,
) -> mpsc::Sender<SessionInput> {
    let (config, created_at) = (restored.config, restored.created_at);
    let channel = mpsc::channel(MAILBOX_MAX);
    let mut actor = Box::new(SessionActor::new(shared, channel, restored.session, config, created_at, true));
    actor.publishing.stored = Some(restored.stored);
    let sender = actor.sender.clone();
    tokio::spawn(async move {
        actor.recover(restored.was_working, restored.may_resume, restored.open_questions).await;
        actor.run().await;
    });
    sender
}
