//! The runner's sessions, the ids of their messages by place, and their open questions. All of it changes within the
//! unit of `RunnerBatch`, except that deleting a session is a request of its own.

use rusqlite::{Connection, params, params_from_iter};

use super::types::{ApprovalRow, RunnerSession, SessionCounters};
use crate::error::StoreError;
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::counter;
use crate::sqlite::statements::{Column, StoredRow, changes, first, rows, run, stored_row};

stored_row!(RunnerSession: session_id, config_json, native_json, version, next_seq, next_idx, state, title,
    created_at, updated_at, extra_json);

/// The next number is after the last line that was spooled or acked: units that only add lines do not write the row.
const NEXT_SEQ: &str = "max(next_seq, coalesce((
        SELECT 1 + max(acked_seq, coalesce((
            SELECT max(spool_key) - (session_key << 40) FROM spool
            WHERE spool_key > session_key << 40 AND spool_key < (session_key + 1) << 40), 0))
        FROM spool_sessions WHERE spool_sessions.session_id = sessions.session_id), 0))";
const PUT: &str = "INSERT INTO sessions
    (session_id, config_json, native_json, version, next_seq, next_idx, state, title, created_at, updated_at,
     extra_json)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (session_id) DO UPDATE SET config_json = excluded.config_json,
     native_json = excluded.native_json, version = excluded.version, next_seq = excluded.next_seq,
     next_idx = excluded.next_idx, state = excluded.state, title = excluded.title,
     created_at = excluded.created_at, updated_at = excluded.updated_at, extra_json = excluded.extra_json";
const PUT_COUNTERS: &str = "UPDATE sessions
    SET version = ?2, next_seq = ?3, next_idx = ?4, state = ?5, updated_at = ?6 WHERE session_id = ?1";
const PUT_INDEX: &str = "INSERT INTO message_index (session_id, idx, message_id) VALUES (?1, ?2, ?3)
    ON CONFLICT (session_id, idx) DO UPDATE SET message_id = excluded.message_id";
const PUT_APPROVAL: &str = "INSERT INTO approvals (session_id, request_id, body_json) VALUES (?1, ?2, ?3)
    ON CONFLICT (session_id, request_id) DO UPDATE SET body_json = excluded.body_json";

pub(super) fn put(connection: &Connection, session: &RunnerSession) -> SqlResult<()> {
    run(connection, PUT, params_from_iter(session.values()?)).map(drop)
}

pub(super) fn put_counters(
    connection: &Connection,
    session_id: &str,
    counters: &SessionCounters,
) -> SqlResult<()> {
    let changed = connection.prepare_cached(PUT_COUNTERS)?.execute(params![
        session_id,
        counter("version", counters.version)?,
        counter("next_seq", counters.next_seq)?,
        counter("next_idx", counters.next_idx)?,
        counters.state,
        counters.updated_at,
    ])?;
    // Counters without a row would be lost silently, and with them the session's version.
    if changed == 0 {
        let reason = format!("session {session_id} is not stored: put its row first");
        return Err(StoreError::Invalid(reason).into());
    }
    Ok(())
}

pub(super) fn get(connection: &Connection, session_id: &str) -> SqlResult<Option<RunnerSession>> {
    let sql = format!("SELECT {} FROM sessions WHERE session_id = ?1", columns());
    first(connection, &sql, [session_id], RunnerSession::from_row)
}

pub(super) fn list(connection: &Connection) -> SqlResult<Vec<RunnerSession>> {
    let sql = format!("SELECT {} FROM sessions ORDER BY created_at, session_id", columns());
    rows(connection, &sql, [], RunnerSession::from_row)
}

/// The stored columns, with `next_seq` replaced by the number that also covers lines whose unit did not write the row.
fn columns() -> String {
    COLUMNS.replace("next_seq", NEXT_SEQ)
}

pub(super) fn delete(connection: &Connection, session_id: &str) -> SqlResult<bool> {
    run(connection, "DELETE FROM message_index WHERE session_id = ?1", [session_id])?;
    run(connection, "DELETE FROM approvals WHERE session_id = ?1", [session_id])?;
    changes(connection, "DELETE FROM sessions WHERE session_id = ?1", [session_id])
}

/// Truncates before it puts, so that one unit can cut a conversation short and continue it from there.
pub(super) fn change_index(
    connection: &Connection,
    session_id: &str,
    truncate_from: Option<u64>,
    put: &[(u64, String)],
) -> SqlResult<()> {
    if let Some(from) = truncate_from {
        let values = params![session_id, counter("idx", from)?];
        run(connection, "DELETE FROM message_index WHERE session_id = ?1 AND idx >= ?2", values)?;
    }
    for (idx, message_id) in put {
        run(connection, PUT_INDEX, params![session_id, counter("idx", *idx)?, message_id])?;
    }
    Ok(())
}

pub(super) fn load_index(connection: &Connection, session_id: &str) -> SqlResult<Vec<(u64, String)>> {
    let sql = "SELECT idx, message_id FROM message_index WHERE session_id = ?1 ORDER BY idx";
    rows(connection, sql, [session_id], |row| Ok((Column::read(row, 0)?, row.get(1)?)))
}

pub(super) fn change_approvals(
    connection: &Connection,
    session_id: &str,
    put: &[ApprovalRow],
    delete: &[String],
) -> SqlResult<()> {
    for approval in put {
        let row = params![approval.session_id, approval.request_id, &approval.body_json[..]];
        run(connection, PUT_APPROVAL, row)?;
    }
    if delete.is_empty() {
        return Ok(());
    }
    // A question may hold secrets, so what it leaves behind is overwritten, free pages too. Doing so for everything that
    // is ever deleted would write every line of the spool twice.
    secure_delete(connection, "ON")?;
    let deleted = delete_approvals(connection, session_id, delete);
    secure_delete(connection, "FAST")?;
    deleted
}

/// The setting belongs to the connection and not to a transaction, so it must be put back for the requests that follow.
fn secure_delete(connection: &Connection, mode: &str) -> SqlResult<()> {
    Ok(connection.query_row(&format!("PRAGMA secure_delete = {mode}"), [], |_| Ok(()))?)
}

fn delete_approvals(connection: &Connection, session_id: &str, delete: &[String]) -> SqlResult<()> {
    for request_id in delete {
        let sql = "DELETE FROM approvals WHERE session_id = ?1 AND request_id = ?2";
        run(connection, sql, [session_id, request_id.as_str()])?;
    }
    Ok(())
}

pub(super) fn approvals(connection: &Connection) -> SqlResult<Vec<ApprovalRow>> {
    let sql = "SELECT session_id, request_id, body_json FROM approvals ORDER BY session_id, request_id";
    rows(connection, sql, [], |row| {
        let (session_id, request_id) = (row.get(0)?, row.get(1)?);
        Ok(ApprovalRow { session_id, request_id, body_json: Column::read(row, 2)? })
    })
}
