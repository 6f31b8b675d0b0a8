//! Queries that a hub would answer, answered from what the runner has.
//! The answers have the form of the hub's, so that a client works the same with either; what only a hub knows is left
//! at its default or refused.

use qd_store::StoreError;
use qd_wire::command::GetMessagesParams;
use qd_wire::data::{
    MessagesData, RunnerInfo, RunnerStatus, RunnersData, SessionState, SessionSummary, SessionsData,
};
use qd_wire::{CodedError, Command, ErrorCode};
use serde::Serialize;

use super::record_tail::RecordTail;
use crate::clock::now_ms;
use crate::session::RunnerContext;
use crate::uplink::{describe_all, load};

/// Who wants to know.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalAsker<'a> {
    pub(super) origin: u64,
    /// A program of this session, which sees no other.
    pub(super) within: Option<&'a str>,
}

impl LocalAsker<'_> {
    fn sees(&self, session_id: &str) -> bool {
        self.within.is_none_or(|own| own == session_id)
    }
}

/// The `data` of a read, or why there is none.
pub(super) async fn answer(
    shared: &RunnerContext,
    asker: LocalAsker<'_>,
    session_id: &str,
    command: &Command,
) -> Result<Option<String>, CodedError> {
    match command {
        Command::ListSessions(_) => sessions(shared, asker).await.map(|data| json(&data)),
        Command::GetRunners(_) => Ok(json(&runners(shared, asker))),
        Command::GetMessages(params) => messages(shared, session_id, params).await.map(|data| json(&data)),
        Command::SessionDetach(_) => {
            shared.hub_delivery.detach_local(asker.origin, session_id);
            Ok(None)
        }
        // Only service calls can be taken back here; a turn is ended with `abort`.
        Command::Cancel(params) if shared.services.cancel(asker.origin, &params.target, true) => Ok(None),
        Command::Cancel(params) => {
            let error = format!("No command '{}' of this connection waits for its answer", params.target);
            Err(ErrorCode::NotFound.with(error))
        }
        _ => Err(ErrorCode::Unsupported
            .with("This needs the hub: the runner alone cannot answer it. Ask the hub's address.")),
    }
}

fn unreadable(error: StoreError) -> CodedError {
    ErrorCode::StoreUnavailable.with(error.to_string())
}

fn json(data: &impl Serialize) -> Option<String> {
    // These types have no maps with odd keys, so writing them cannot fail.
    serde_json::to_string(data).ok()
}

/// All sessions that the asker sees, most recently active first.
async fn sessions(shared: &RunnerContext, asker: LocalAsker<'_>) -> Result<SessionsData, CodedError> {
    let rows = shared.store.sessions().await.map_err(unreadable)?;
    let mut states = describe_all(shared).await;
    let mut sessions: Vec<SessionSummary> = rows
        .into_iter()
        .filter(|row| asker.sees(&row.session_id))
        .filter_map(|row| {
            // A session that is just being created or deleted is in one of the two lists only, and not shown.
            let state = states.remove(&row.session_id)?;
            Some(summary(shared, *state, row.created_at, row.updated_at))
        })
        .collect();
    sessions.sort_by_key(|session| std::cmp::Reverse(session.last_activity));
    Ok(SessionsData { sessions })
}

fn summary(
    shared: &RunnerContext,
    state: SessionState,
    created_at: i64,
    last_activity: i64,
) -> SessionSummary {
    let (provider, model) = state.model.map(|model| (model.provider, model.model_id)).unzip();
    SessionSummary {
        subscriber_count: shared.hub_delivery.follower_count(&state.session_id) as u64,
        session_id: state.session_id,
        runner_id: state.runner_id,
        harness: state.harness,
        state: state.status.as_str().to_owned(),
        cwd: state.cwd,
        title: state.title,
        provider,
        model,
        created_at,
        last_activity,
        seq: state.seq,
        message_count: state.message_count,
        pending_input_count: state.pending_input.len() as u64,
        branch: state.branch,
        phase: state.phase,
        error: state.error,
        run_tool: state.run.map(|run| run.tool),
        pending_title: state.pending_input.first().map(|question| question.title().to_owned()),
        ..SessionSummary::default()
    }
}

/// This runner; it knows of no other.
fn runners(shared: &RunnerContext, asker: LocalAsker<'_>) -> RunnersData {
    let config = &shared.config;
    let mut sessions = shared.process_table.sessions();
    sessions.retain(|session| asker.sees(&session.session_id));
    let runner = RunnerInfo {
        runner_id: config.runner_id.clone(),
        hostname: config.hostname.clone(),
        os: std::env::consts::OS.to_owned(),
        version: config.version.clone(),
        status: RunnerStatus::Online,
        harnesses: config.harnesses.installed(),
        max_sessions: config.max_sessions as u64,
        session_count: shared.hub_delivery.sessions().len() as u64,
        last_seen: Some(now_ms()),
        joined_at: None,
        rotated_at: None,
        revoked_at: None,
        load: Some(load(shared)),
        sessions,
    };
    RunnersData { runners: vec![runner] }
}

async fn messages(
    shared: &RunnerContext,
    session_id: &str,
    params: &GetMessagesParams,
) -> Result<MessagesData, CodedError> {
    let row = shared.store.session(session_id).await.map_err(unreadable)?;
    let row = row.ok_or_else(|| CodedError::session_not_found(session_id))?;
    // The runner has no table of messages: they are read from the newest records, so only the recent past is there.
    let tail = RecordTail::read(&shared.store, session_id).await.map_err(unreadable)?;
    Ok(tail.page(params.before, params.limit, row.next_idx))
}
