//! Terminals that people opened leave nothing behind: some time after its end, the session of one is deleted.

use std::sync::Arc;

use qd_wire::ErrorCode;
use qd_wire::command_table::CommandName;
use qd_wire::data::SessionStatus;
use qd_wire::run::TERMINAL_HARNESS;
use serde::Deserialize;
use tokio::time::Duration;

use crate::command::Command;
use crate::command::ask::{CommandAnswer, CommandSender, ask};
use crate::hub::Hub;

/// Who looks at a terminal shall see its end; its runner keeps it this long too.
const KEEP: Duration = Duration::from_secs(60);

/// Deletes the session after a while, if it is a terminal's and still over.
pub(crate) fn forget_later(hub: &Arc<Hub>, session_id: &str) {
    let (hub, session_id) = (Arc::downgrade(hub), session_id.to_owned());
    tokio::spawn(async move {
        tokio::time::sleep(KEEP).await;
        if let Some(hub) = hub.upgrade() {
            forget(&hub, &session_id).await;
        }
    });
}

/// Deletes what ended while the hub was not there.
pub(crate) async fn forget_ended(hub: &Arc<Hub>) {
    match hub.store.sessions().await {
        Ok(sessions) => {
            let ended = sessions.into_iter().filter(|row| row.closed && row.harness == TERMINAL_HARNESS);
            ended.for_each(|row| forget_later(hub, &row.session_id));
        }
        Err(error) => tracing::warn!(%error, "it is not known which terminals have ended"),
    }
}

/// The row may be older than what its runner knows: somebody may start the terminal again just now. So the runner is
/// asked, and deletes only what it has said is over.
async fn forget(hub: &Arc<Hub>, session_id: &str) {
    let row = match hub.store.session(session_id).await {
        Ok(row) => row.filter(|row| row.closed && row.harness == TERMINAL_HARNESS),
        Err(error) => {
            return tracing::warn!(session_id, %error, "it is not known whether a terminal has ended");
        }
    };
    let Some(row) = row else { return };
    if hub.is_away(&row.runner_id) {
        return forget_later(hub, session_id);
    }
    let command = Command::new(CommandName::GetState).on(session_id);
    let name = session_id.to_owned();
    ask(hub, &CommandSender::hub(), command, move |hub, answer| match ended_version(&answer) {
        Some(version) => delete(hub, name, Some(version)),
        // What its runner does not have cannot live again.
        None if answer.failed_with(ErrorCode::SessionNotFound) => delete(hub, name, None),
        // It went away while it was asked.
        None if answer.link_lost => forget_later(hub, &name),
        None => tracing::debug!(session_id = name, error = answer.error, "a terminal lives again"),
    });
}

/// The version of a session that its runner says is over.
fn ended_version(answer: &CommandAnswer) -> Option<u64> {
    #[derive(Deserialize)]
    struct EndedSession {
        status: SessionStatus,
        session_version: u64,
    }
    let data = answer.data.as_ref().filter(|_| answer.success)?;
    let ended: EndedSession = serde_json::from_str(data.get()).ok()?;
    (ended.status == SessionStatus::Closed).then_some(ended.session_version)
}

/// Deletes it if it still has this version.
fn delete(hub: &Arc<Hub>, session_id: String, version: Option<u64>) {
    let command = Command::new(CommandName::SessionDelete).on(session_id.clone()).if_version(version);
    ask(hub, &CommandSender::hub(), command, move |_, answer| {
        if !answer.success {
            tracing::debug!(session_id, error = answer.error, "an ended terminal stays");
        }
    });
}

#[cfg(test)]
#[path = "terminal_cleanup_tests.rs"]
mod tests;
