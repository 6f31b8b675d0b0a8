//! Rows of runs and hosts, and the end of the log file.

use std::io::SeekFrom;
use std::path::Path;

use qd_core::time::iso_8601;
use qd_core::view::run::event::requested;
use qd_store::{HubSession, StoreError};
use qd_wire::data::SessionStatus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::past;
use crate::hub::Hub;
use crate::sessions::reads;

/// A page of runs, those that were active last first, and how many there are.
pub(super) async fn runs(hub: &Hub, offset: usize, limit: usize) -> Result<(Vec<Value>, usize), StoreError> {
    let rows = hub.store.sessions().await?;
    let total = rows.len();
    let mut runs = Vec::with_capacity(limit.min(total));
    for row in rows.into_iter().skip(offset).take(limit) {
        runs.push(shown(hub, row).await?);
    }
    Ok((runs, total))
}

pub(super) async fn run(hub: &Hub, session_id: &str) -> Result<Option<Value>, StoreError> {
    match hub.store.session(session_id).await? {
        Some(row) => shown(hub, row).await.map(Some),
        None => Ok(None),
    }
}

/// A stored session in the document's form. What is happening now comes from the hub's memory, since the row is only as
/// new as the last commit.
async fn shown(hub: &Hub, row: HubSession) -> Result<Value, StoreError> {
    let entry = hub.session(&row.session_id);
    let (run, questions) = match &entry {
        Some(entry) => past::run_of(hub, entry).await?,
        None => past::RunWithQuestions::default(),
    };
    let is_closed = entry.as_ref().map_or(row.closed, |entry| entry.status() == SessionStatus::Closed);
    let is_idle = entry.as_ref().is_some_and(|entry| entry.status() == SessionStatus::Idle);
    // An exited program reads no answer, so its questions are over with it.
    let pending = questions.first().filter(|_| !is_closed).map(|request| requested(request).0);
    let status = match &pending {
        _ if is_closed => "exited",
        Some(_) => "awaiting_approval",
        None if is_idle => "awaiting_input",
        None => "running",
    };
    let ended_at = run.ended_at.filter(|_| is_closed);
    Ok(json!({
        "id": row.session_id,
        "host_id": row.runner_id,
        "tool": run.tool.unwrap_or_else(|| row.harness.clone()),
        "command": run.command,
        "harness": row.harness,
        "cwd": row.cwd,
        "title": row.title,
        "status": status,
        "started_at": iso_8601(run.started_at.unwrap_or(row.created_at)),
        "last_active_at": iso_8601(row.updated_at),
        "pending_request_id": pending.as_ref().map(|pending| &pending.request_id),
        "pending_reason": pending.as_ref().map(|pending| pending.reason),
        "pending_prompt": pending.as_ref().map(|pending| &pending.prompt),
        "pending_op_tool": pending.as_ref().and_then(|pending| pending.op_tool.as_ref()),
        "pending_op_args_summary": pending.as_ref().and_then(|pending| pending.op_args_summary.as_ref()),
        "ended_at": ended_at.map(iso_8601),
        "exit_code": run.exit_code.filter(|_| is_closed),
        "last_seq": row.last_seq,
        "host_online": !hub.is_away(&row.runner_id),
    }))
}

/// Every host there ever was.
pub(super) async fn hosts(hub: &Hub) -> Result<Vec<Value>, StoreError> {
    let runners = reads::runners(hub).await?.runners;
    let row = |runner: qd_wire::data::RunnerInfo| {
        json!({
            "id": runner.runner_id,
            "name": (!runner.hostname.is_empty()).then_some(runner.hostname),
            "last_seen_at": runner.last_seen.map(iso_8601),
            "online": !hub.is_away(&runner.runner_id),
        })
    };
    Ok(runners.into_iter().map(row).collect())
}

/// The last lines of a file, reading no more than the end of it, and whether there is more before them within the
/// file.
pub(super) async fn log_tail(path: &Path, lines: usize, max_bytes: u64) -> std::io::Result<(String, bool)> {
    let mut file = tokio::fs::File::open(path).await?;
    let length = file.metadata().await?.len();
    let start = length.saturating_sub(max_bytes);
    file.seek(SeekFrom::Start(start)).await?;
    let mut bytes = Vec::new();
    file.take(max_bytes).read_to_end(&mut bytes).await?;
    // The seek may land within a character.
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let ends: Vec<usize> = text.trim_end_matches('\n').match_indices('\n').map(|(at, _)| at + 1).collect();
    let from = ends.len().checked_sub(lines).map_or(0, |skipped| ends[skipped]);
    Ok((text[from..].to_owned(), start > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_lines_of_a_log_and_no_more_than_asked_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(log_tail(&path, 2, 1000).await.unwrap(), ("two\nthree\n".to_owned(), false));
        assert_eq!(log_tail(&path, 9, 1000).await.unwrap(), ("one\ntwo\nthree\n".to_owned(), false));
        assert_eq!(log_tail(&path, 9, 8).await.unwrap(), ("o\nthree\n".to_owned(), true));
        std::fs::write(&path, "").unwrap();
        assert_eq!(log_tail(&path, 1, 8).await.unwrap(), (String::new(), false));
        assert!(log_tail(&directory.path().join("none"), 1, 8).await.is_err());
    }
}
