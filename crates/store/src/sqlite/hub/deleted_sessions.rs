use rusqlite::{Connection, OptionalExtension, params};

use super::sessions;
use crate::hub::DELETED_SESSIONS_MAX;
use crate::sqlite::error::SqlResult;

const INSERT: &str = "INSERT INTO buried_sessions (session_id, runner_id, buried_at) VALUES (?1, ?2, ?3)";
/// Keys have holes where deleted sessions were forgotten, so the oldest to go is found by counting, from the newest.
const TRIM: &str = "DELETE FROM buried_sessions WHERE burial_key <=
    (SELECT burial_key FROM buried_sessions ORDER BY burial_key DESC LIMIT 1 OFFSET ?1)";

/// True if the hub had anything of the session; a tombstone stands in any case.
pub(super) fn mark(connection: &Connection, session_id: &str, runner_id: &str, now: i64) -> SqlResult<bool> {
    let existed = sessions::delete(connection, session_id)?;
    forget(connection, session_id)?;
    connection.prepare_cached(INSERT)?.execute(params![session_id, runner_id, now])?;
    trim(connection, connection.last_insert_rowid())?;
    Ok(existed)
}

/// Counts only when the keys are far enough apart for there to be too many.
fn trim(connection: &Connection, newest: i64) -> SqlResult<()> {
    let oldest: i64 = connection
        .prepare_cached("SELECT min(burial_key) FROM buried_sessions")?
        .query_row([], |row| row.get(0))?;
    if newest - oldest >= DELETED_SESSIONS_MAX as i64 {
        connection.prepare_cached(TRIM)?.execute([DELETED_SESSIONS_MAX as i64])?;
    }
    Ok(())
}

/// Oldest first.
pub(super) fn of_runner(connection: &Connection, runner_id: &str) -> SqlResult<Vec<String>> {
    let mut select = connection
        .prepare_cached("SELECT session_id FROM buried_sessions WHERE runner_id = ?1 ORDER BY burial_key")?;
    let rows = select.query_map([runner_id], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn runner_of(connection: &Connection, session_id: &str) -> SqlResult<Option<String>> {
    let mut select =
        connection.prepare_cached("SELECT runner_id FROM buried_sessions WHERE session_id = ?1")?;
    Ok(select.query_row([session_id], |row| row.get(0)).optional()?)
}

pub(super) fn forget(connection: &Connection, session_id: &str) -> SqlResult<bool> {
    let deleted = connection
        .prepare_cached("DELETE FROM buried_sessions WHERE session_id = ?1")?
        .execute([session_id])?;
    Ok(deleted > 0)
}
