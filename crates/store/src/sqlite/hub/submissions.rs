//! The journal of the pi-server face: submissions that carry a name of their client's, and their outcomes.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, params, params_from_iter};

use super::SqliteHub;
use super::requests::requests;
use crate::error::Result;
use crate::hub::{HistoryQuery, SubmissionRow};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::row_limit;
use crate::sqlite::statements::{StoredRow, rows, run, stored_row};

/// What a row costs in the queue beside its outcome.
const ROW_OVERHEAD_BYTES: usize = 256;

stored_row!(SubmissionRow: uid, principal, command_id, scope, idempotency_key, session_id, command, fingerprint,
    accepted_at, finished_at, success, outcome_json, data_json);

/// A row that is there already takes what has come of it, and keeps what had come of it; who submitted what under
/// which name stays.
const PUT: &str = "INSERT INTO submissions
    (uid, principal, command_id, scope, idempotency_key, session_id, command, fingerprint, accepted_at,
     finished_at, success, outcome_json, data_json)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (uid) DO UPDATE SET finished_at = excluded.finished_at, success = excluded.success,
     outcome_json = excluded.outcome_json, data_json = excluded.data_json
    WHERE excluded.finished_at IS NOT NULL";
/// The conditions on time come last in the index, so it is walked from the newest and no further than needed.
const HISTORY_FILTER: &str =
    "FROM submissions WHERE principal = ?1 AND accepted_at >= ?2 AND accepted_at <= ?3
    AND (?4 IS NULL OR session_id = ?4) AND (?5 IS NULL OR command_id = ?5)
    ORDER BY accepted_at DESC, submission_key DESC LIMIT ?6";
/// Keys have holes where rows were deleted, so the newest to go is found by counting, from the newest of all.
const KEEP: &str = "DELETE FROM submissions WHERE submission_key <=
    (SELECT submission_key FROM submissions ORDER BY submission_key DESC LIMIT 1 OFFSET ?1)";

requests! {
    write delete_submissions_of(principal: &str) -> () = delete_of;
    read submissions(limit: usize) -> Vec<SubmissionRow> = newest;
    read submission_history(query: HistoryQuery) -> (Vec<SubmissionRow>, bool) = history;
    write delete_submissions(uids: Vec<Arc<str>>) -> () = delete;
    write keep_submissions(limit: usize) -> u64 = keep;
}

impl SqliteHub {
    pub(crate) async fn put_submission(&self, row: SubmissionRow) -> Result<()> {
        self.engine.write_bytes(row_bytes(&row), move |connection| put(connection, &row)).await
    }

    /// The same statement as `put_submission`: it also serves a submission whose first row was never written.
    pub(crate) async fn finish_submission(&self, row: SubmissionRow) -> Result<()> {
        self.put_submission(row).await
    }

    pub(crate) async fn write_submissions(&self, rows: Arc<[SubmissionRow]>) -> Result<()> {
        let bytes = rows.iter().map(row_bytes).sum();
        let put_all = move |connection: &Connection| rows.iter().try_for_each(|row| put(connection, row));
        self.engine.write_bytes(bytes, put_all).await
    }
}

fn put(connection: &Connection, row: &SubmissionRow) -> SqlResult<()> {
    run(connection, PUT, params_from_iter(row.values()?)).map(drop)
}

fn row_bytes(row: &SubmissionRow) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    ROW_OVERHEAD_BYTES + length(&row.outcome_json) + length(&row.data_json)
}

fn delete_of(connection: &Connection, principal: &str) -> SqlResult<()> {
    run(connection, "DELETE FROM submissions WHERE principal = ?1", [principal]).map(drop)
}

fn newest(connection: &Connection, limit: usize) -> SqlResult<Vec<SubmissionRow>> {
    let sql = format!("SELECT {COLUMNS} FROM submissions ORDER BY submission_key DESC LIMIT ?1");
    let mut rows = rows(connection, &sql, [row_limit(limit)], SubmissionRow::from_row)?;
    rows.reverse();
    Ok(rows)
}

fn history(connection: &Connection, query: &HistoryQuery) -> SqlResult<(Vec<SubmissionRow>, bool)> {
    // The same row type serves both, so the column stays in its place and is empty.
    let columns = COLUMNS.replace("data_json", "NULL");
    let values = params![
        query.principal,
        query.from.unwrap_or(i64::MIN),
        query.to.unwrap_or(i64::MAX),
        query.session_id,
        query.command_id,
        // One more than wanted tells whether there are more, without counting them.
        row_limit(query.limit.saturating_add(1)),
    ];
    let sql = format!("SELECT {columns} {HISTORY_FILTER}");
    let mut rows = rows(connection, &sql, values, SubmissionRow::from_row)?;
    let is_truncated = rows.len() > query.limit;
    rows.truncate(query.limit);
    Ok((rows, is_truncated))
}

fn delete(connection: &Connection, uids: &[Arc<str>]) -> SqlResult<()> {
    for uid in uids {
        run(connection, "DELETE FROM submissions WHERE uid = ?1", [&**uid])?;
    }
    Ok(())
}

fn keep(connection: &Connection, limit: usize) -> SqlResult<u64> {
    Ok(run(connection, KEEP, [row_limit(limit)])? as u64)
}
