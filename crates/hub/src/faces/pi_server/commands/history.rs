//! What the journal tells: earlier commands, and what a start found of them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use qd_core::encoding::hex;
use qd_store::{HistoryQuery, SubmissionRow};
use qd_wire::pi_server::{CommandHistory, GetCommandHistory, HistoryEntry, StartupRecovery};
use serde_json::Value;

use crate::faces::pi_server::commands::execute::{failure, finish, finish_with, success};
use crate::faces::pi_server::commands::pending_commands::CommandJob;
use crate::faces::pi_server::commands::{journal, lifecycle};
use crate::hub::Hub;
use crate::sessions::reads::unreadable;

const LIMIT_DEFAULT: u64 = 100;
/// The whole answer is one message, so its rows are bounded.
const LIMIT_MAX: u64 = 500;
/// The shape of the rows; told to clients that ask.
const SCHEMA_VERSION: u64 = 1;

/// `get_startup_recovery`.
pub(crate) fn recovery(hub: &Arc<Hub>, job: &CommandJob) {
    let found = *hub.faces.pi_server.recovery.lock();
    let data = StartupRecovery {
        enabled: true,
        initialized: true,
        // A hub that could not read its journal does not start, so whoever can ask finds it ready.
        init_state: "ready".to_owned(),
        initialization_error: None,
        journal_path: "hub.db".to_owned(),
        schema_version: SCHEMA_VERSION,
        entries_scanned: found.scanned,
        recovered_outcomes: found.outcomes,
        indeterminate_commands: found.in_doubt,
    };
    finish_with(hub, job, &data);
}

/// `get_command_history`: commands of the principal that asks.
pub(crate) fn history(hub: &Arc<Hub>, job: &CommandJob, fields: &GetCommandHistory) {
    let limit = fields.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let query = HistoryQuery {
        principal: Arc::clone(job.client.principal()),
        session_id: fields.session_id_filter.clone(),
        command_id: fields.command_id.clone(),
        from: fields.from_timestamp,
        to: fields.to_timestamp,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
    };
    let filters = filters(fields);
    let job = job.clone();
    hub.spawn(async move |hub| {
        // Outcomes that nobody waits for are on their way to the store.
        hub.faces.pi_server.journal.write(&hub).await;
        let outcome = match hub.store.submission_history(query).await {
            Ok((rows, truncated)) => {
                let live = hub.faces.pi_server.pending.lock().live_uids();
                let entries: Vec<_> = rows.iter().map(|row| entry(row, &live)).collect();
                let data = CommandHistory {
                    enabled: true,
                    filters,
                    returned: entries.len() as u64,
                    entries,
                    truncated,
                    max_items_returned: limit,
                    max_items_allowed: LIMIT_MAX,
                };
                success(Some(lifecycle::json(&data)), None)
            }
            Err(error) => failure(unreadable(&error)),
        };
        finish(&hub, &job, outcome);
    });
}

fn filters(fields: &GetCommandHistory) -> BTreeMap<String, Value> {
    match serde_json::to_value(fields) {
        Ok(Value::Object(fields)) => fields.into_iter().filter(|(_, value)| !value.is_null()).collect(),
        _ => BTreeMap::new(),
    }
}

fn entry(row: &SubmissionRow, live: &HashSet<Arc<str>>) -> HistoryEntry {
    let outcome = journal::stored_outcome(row);
    let state = match &outcome {
        Some(outcome) if outcome.indeterminate => "indeterminate",
        Some(_) => "finished",
        None if live.contains(&row.uid) => "in_flight",
        // Its process died in the middle of it.
        None => "indeterminate",
    };
    let outcome = outcome.as_ref();
    HistoryEntry {
        command_id: row.command_id.clone(),
        command_type: row.command.clone(),
        session_id: row.session_id.clone(),
        idempotency_key: row.idempotency_key.clone(),
        fingerprint: format!("v2:sha256:{}", hex(&row.fingerprint)),
        state: state.to_owned(),
        success: row.success,
        error: outcome.and_then(|outcome| outcome.error.clone()),
        code: outcome.and_then(|outcome| outcome.code),
        session_version: outcome.and_then(|outcome| outcome.session_version),
        timed_out: outcome.map(|outcome| outcome.timed_out).filter(|timed_out| *timed_out),
        accepted_at: row.accepted_at,
        finished_at: row.finished_at,
    }
}
