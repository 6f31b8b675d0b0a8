//! The journal of the pi-server face: submissions that carry a name of their client's, and their outcomes.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use super::SqliteHub;
use crate::error::Result;
use crate::hub::{HistoryQuery, SubmissionRow};
use crate::sqlite::error::SqlResult;

/// What a row costs in the queue beside its outcome.
const ROW_OVERHEAD_BYTES: usize = 256;

const COLUMNS: &str = "uid, principal, command_id, scope, idempotency_key, session_id, command, fingerprint, \
    accepted_at, finished_at, success, outcome_json";
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

const DELETE_OF: &str = "DELETE FROM submissions WHERE principal = ?1";

impl SqliteHub {
    pub(crate) async fn put_submission(&self, row: SubmissionRow) -> Result<()> {
        self.engine.write(row_bytes(&row), move |connection| put(connection, &row)).await
    }

    pub(crate) async fn finish_submission(&self, row: SubmissionRow) -> Result<()> {
        self.put_submission(row).await
    }

    pub(crate) async fn write_submissions(&self, rows: Arc<[SubmissionRow]>) -> Result<()> {
        let bytes = rows.iter().map(row_bytes).sum();
        self.engine.write(bytes, move |connection| rows.iter().try_for_each(|row| put(connection, row))).await
    }

    pub(crate) async fn delete_submissions_of(&self, principal: &str) -> Result<()> {
        let principal = principal.to_owned();
        self.engine
            .write(0, move |connection| {
                connection.prepare_cached(DELETE_OF)?.execute([&principal])?;
                Ok(())
            })
            .await
    }

    pub(crate) async fn submissions(&self, limit: usize) -> Result<Vec<SubmissionRow>> {
        self.engine.read(move |connection| newest(connection, limit)).await
    }

    pub(crate) async fn submission_history(&self, query: HistoryQuery) -> Result<(Vec<SubmissionRow>, bool)> {
        self.engine.read(move |connection| history(connection, &query)).await
    }

    pub(crate) async fn delete_submissions(&self, uids: Vec<Arc<str>>) -> Result<()> {
        self.engine.write(0, move |connection| delete(connection, &uids)).await
    }

    pub(crate) async fn keep_submissions(&self, limit: usize) -> Result<u64> {
        self.engine.write(0, move |connection| keep(connection, limit)).await
    }
}

fn put(connection: &Connection, row: &SubmissionRow) -> SqlResult<()> {
    connection.prepare_cached(PUT)?.execute(params![
        row.uid,
        row.principal,
        row.command_id,
        row.scope,
        row.idempotency_key,
        row.session_id,
        row.command,
        row.fingerprint,
        row.accepted_at,
        row.finished_at,
        row.success,
        row.outcome_json.as_deref(),
        row.data_json.as_deref(),
    ])?;
    Ok(())
}

fn row_bytes(row: &SubmissionRow) -> usize {
    let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    ROW_OVERHEAD_BYTES + length(&row.outcome_json) + length(&row.data_json)
}

fn newest(connection: &Connection, limit: usize) -> SqlResult<Vec<SubmissionRow>> {
    let sql = format!("SELECT {COLUMNS}, data_json FROM submissions ORDER BY submission_key DESC LIMIT ?1");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([row_limit(limit)], from_row)?;
    let mut rows: Vec<SubmissionRow> = rows.collect::<rusqlite::Result<_>>()?;
    rows.reverse();
    Ok(rows)
}

fn history(connection: &Connection, query: &HistoryQuery) -> SqlResult<(Vec<SubmissionRow>, bool)> {
    let sql = format!("SELECT {COLUMNS}, NULL {HISTORY_FILTER}");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(
        params![
            query.principal,
            query.from.unwrap_or(i64::MIN),
            query.to.unwrap_or(i64::MAX),
            query.session_id,
            query.command_id,
            row_limit(query.limit.saturating_add(1)),
        ],
        from_row,
    )?;
    let mut rows: Vec<SubmissionRow> = rows.collect::<rusqlite::Result<_>>()?;
    let is_truncated = rows.len() > query.limit;
    rows.truncate(query.limit);
    Ok((rows, is_truncated))
}

fn delete(connection: &Connection, uids: &[Arc<str>]) -> SqlResult<()> {
    let mut delete = connection.prepare_cached("DELETE FROM submissions WHERE uid = ?1")?;
    for uid in uids {
        delete.execute([&**uid])?;
    }
    Ok(())
}

fn keep(connection: &Connection, limit: usize) -> SqlResult<u64> {
    Ok(connection.prepare_cached(KEEP)?.execute([row_limit(limit)])? as u64)
}

/// A limit as the database's integer; one that is greater than all means no limit.
fn row_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<SubmissionRow> {
    let bytes = |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<Vec<u8>>>(index)?.map(Bytes::from));
    Ok(SubmissionRow {
        uid: row.get(0)?,
        principal: row.get(1)?,
        command_id: row.get(2)?,
        scope: row.get(3)?,
        idempotency_key: row.get(4)?,
        session_id: row.get(5)?,
        command: row.get(6)?,
        fingerprint: row.get(7)?,
        accepted_at: row.get(8)?,
        finished_at: row.get(9)?,
        success: row.get(10)?,
        outcome_json: bytes(11)?,
        data_json: bytes(12)?,
    })
}
