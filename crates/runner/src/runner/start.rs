//! How a runner begins: hello, what the hub does not have yet, the sessions of last time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use qd_link::memory::LinkReceiver;
use qd_wire::link::{HelloSession, LinkLine, RunnerHello, RunnerWelcome};
use tokio::sync::mpsc;

use super::{RunnerError, send_line};
use crate::driver;
use crate::session::{SessionInput, Shared, restore, spawn_restored};

/// How long the hub may take to say welcome.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// Records sent again after a restart, per read.
const RESEND_ROWS: usize = 1000;

pub(super) async fn hello(
    shared: &Shared,
    receiver: &mut LinkReceiver,
) -> Result<RunnerWelcome, RunnerError> {
    let rows = shared.store.sessions().await?;
    let sessions = rows.into_iter().map(|row| HelloSession {
        session_id: row.session_id,
        last_seq: row.next_seq.saturating_sub(1),
        state: None,
    });
    let config = &shared.config;
    let hello = RunnerHello {
        runner_id: config.runner_id.clone(),
        hostname: config.hostname.clone(),
        harnesses: driver::harnesses(config),
        max_sessions: config.max_sessions as u64,
        version: config.version.clone(),
        os: std::env::consts::OS.to_owned(),
        sessions: sessions.collect(),
    };
    send_line(shared, &LinkLine::Hello(hello)).await;
    let answer = tokio::time::timeout(WELCOME_TIMEOUT, receiver.recv()).await;
    let block = answer.map_err(|_| RunnerError::NoWelcome("it did not answer"))?;
    let block = block.ok_or(RunnerError::NoWelcome("it closed the link"))?;
    match serde_json::from_slice(block.strip_suffix(b"\n").unwrap_or(&block)) {
        Ok(LinkLine::Welcome(welcome)) => Ok(welcome),
        _ => Err(RunnerError::NoWelcome("its first line was something else")),
    }
}

/// The last record the hub has of a session.
fn head_of(welcome: &RunnerWelcome, session_id: &str) -> u64 {
    let session = welcome.sessions.iter().find(|session| session.session_id == session_id);
    session.map_or(0, |session| session.last_seq)
}

/// Sends what the hub does not have; what it has is done with.
pub(super) async fn resend(shared: &Shared, welcome: &RunnerWelcome) -> Result<(), RunnerError> {
    for row in shared.store.sessions().await? {
        let mut after = head_of(welcome, &row.session_id);
        shared.store.ack(&row.session_id, after);
        loop {
            let lines = shared.store.spool_after(&row.session_id, after, RESEND_ROWS).await?;
            let Some((last, _)) = lines.last() else { break };
            after = *last;
            let block: Vec<u8> = lines.iter().flat_map(|(_, line)| line.iter().copied()).collect();
            if shared.link.send(block.into()).await.is_err() {
                return Err(RunnerError::NoWelcome("it closed the link"));
            }
        }
    }
    Ok(())
}

pub(super) async fn restore_sessions(
    shared: &Arc<Shared>,
    welcome: &RunnerWelcome,
) -> Result<HashMap<String, mpsc::Sender<SessionInput>>, RunnerError> {
    let mut questions: HashMap<String, Vec<String>> = HashMap::new();
    for approval in shared.store.approvals().await? {
        questions.entry(approval.session_id).or_default().push(approval.request_id);
    }
    let mut sessions = HashMap::new();
    for row in shared.store.sessions().await? {
        let session_id = row.session_id.clone();
        let open = questions.remove(&session_id).unwrap_or_default();
        let hub_seq = head_of(welcome, &session_id);
        match restore(&shared.config, row, open, hub_seq) {
            Ok(restored) => {
                sessions.insert(session_id, spawn_restored(shared, restored));
            }
            Err(error) => {
                tracing::error!(session_id, error, "a stored session cannot be read; it is left alone")
            }
        }
    }
    Ok(sessions)
}
