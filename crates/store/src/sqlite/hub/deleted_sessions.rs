//! Tombstones of sessions whose runner has yet to learn that they are deleted.

use rusqlite::{Connection, params};

use super::requests::requests;
use super::sessions;
use crate::hub::DELETED_SESSIONS_MAX;
use crate::sqlite::error::SqlResult;
use crate::sqlite::statements::{changes, first, rows, run, value};

const INSERT: &str = "INSERT INTO buried_sessions (session_id, runner_id, buried_at) VALUES (?1, ?2, ?3)";
/// Keys have holes where deleted sessions were forgotten, so the oldest to go is found by counting, from the newest.
const TRIM: &str = "DELETE FROM buried_sessions WHERE burial_key <=
    (SELECT burial_key FROM buried_sessions ORDER BY burial_key DESC LIMIT 1 OFFSET ?1)";

requests! {
    write mark_session_deleted(session_id: &str, runner_id: &str, now: i64) -> bool = mark;
    read deleted_sessions_of(runner_id: &str) -> Vec<String> = of_runner;
    read runner_of_deleted(session_id: &str) -> Option<String> = runner_of;
    write forget_deleted_session(session_id: &str) -> bool = forget;
}

/// True if the hub had anything of the session; a tombstone stands in any case.
fn mark(connection: &Connection, session_id: &str, runner_id: &str, now: i64) -> SqlResult<bool> {
    let existed = sessions::delete(connection, session_id)?;
    forget(connection, session_id)?;
    run(connection, INSERT, params![session_id, runner_id, now])?;
    trim(connection, connection.last_insert_rowid())?;
    Ok(existed)
}

/// Counts only when the keys are far enough apart for there to be too many.
fn trim(connection: &Connection, newest: i64) -> SqlResult<()> {
    let oldest: i64 = value(connection, "SELECT min(burial_key) FROM buried_sessions", [])?;
    if newest - oldest >= DELETED_SESSIONS_MAX as i64 {
        run(connection, TRIM, [DELETED_SESSIONS_MAX as i64])?;
    }
    Ok(())
}

/// Oldest first.
fn of_runner(connection: &Connection, runner_id: &str) -> SqlResult<Vec<String>> {
    let sql = "SELECT session_id FROM buried_sessions WHERE runner_id = ?1 ORDER BY burial_key";
    rows(connection, sql, [runner_id], |row| Ok(row.get(0)?))
}

fn runner_of(connection: &Connection, session_id: &str) -> SqlResult<Option<String>> {
    let sql = "SELECT runner_id FROM buried_sessions WHERE session_id = ?1";
    first(connection, sql, [session_id], |row| Ok(row.get(0)?))
}

fn forget(connection: &Connection, session_id: &str) -> SqlResult<bool> {
    changes(connection, "DELETE FROM buried_sessions WHERE session_id = ?1", [session_id])
}
