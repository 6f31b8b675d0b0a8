use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::hub::{RunnerNote, RunnerRow};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::counter;

const COLUMNS: &str = "runner_id, key_hash, next_key_hash, hostname, os, version, harnesses_json, max_sessions, \
    joined_at, last_seen_at, rotated_at, revoked_at";
const PUT: &str = "INSERT OR REPLACE INTO runners
    (runner_id, key_hash, next_key_hash, hostname, os, version, harnesses_json, max_sessions, joined_at,
     last_seen_at, rotated_at, revoked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const NOTE: &str = "INSERT INTO runners
    (runner_id, key_hash, hostname, os, version, harnesses_json, max_sessions, joined_at, last_seen_at)
    VALUES (?1, x'', ?2, ?3, ?4, ?5, ?6, ?7, ?7)
    ON CONFLICT (runner_id) DO UPDATE SET hostname = excluded.hostname, os = excluded.os,
     version = excluded.version, harnesses_json = excluded.harnesses_json, max_sessions = excluded.max_sessions,
     last_seen_at = excluded.last_seen_at";
const SET_NEXT_KEY: &str =
    "UPDATE runners SET next_key_hash = ?2 WHERE runner_id = ?1 AND revoked_at IS NULL";
const PROMOTE_KEY: &str = "UPDATE runners SET key_hash = next_key_hash, next_key_hash = NULL, rotated_at = ?3
    WHERE runner_id = ?1 AND next_key_hash = ?2 AND revoked_at IS NULL";
const REVOKE: &str = "UPDATE runners SET revoked_at = ?2 WHERE runner_id = ?1 AND revoked_at IS NULL";

pub(super) fn list(connection: &Connection) -> SqlResult<Vec<RunnerRow>> {
    let sql = format!("SELECT {COLUMNS} FROM runners ORDER BY runner_id");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn get(connection: &Connection, runner_id: &str) -> SqlResult<Option<RunnerRow>> {
    let sql = format!("SELECT {COLUMNS} FROM runners WHERE runner_id = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([runner_id], from_row).optional()?)
}

pub(super) fn put(connection: &Connection, runner: &RunnerRow) -> SqlResult<()> {
    connection.prepare_cached(PUT)?.execute(params![
        runner.runner_id,
        runner.key_hash,
        runner.next_key_hash,
        runner.hostname,
        runner.os,
        runner.version,
        runner.harnesses_json,
        counter("max_sessions", runner.max_sessions)?,
        runner.joined_at,
        runner.last_seen_at,
        runner.rotated_at,
        runner.revoked_at,
    ])?;
    Ok(())
}

pub(super) fn note(connection: &Connection, note: &RunnerNote) -> SqlResult<()> {
    connection.prepare_cached(NOTE)?.execute(params![
        note.runner_id,
        note.hostname,
        note.os,
        note.version,
        note.harnesses_json,
        counter("max_sessions", note.max_sessions)?,
        note.seen_at,
    ])?;
    Ok(())
}

pub(super) fn set_next_key(connection: &Connection, runner_id: &str, key_hash: &[u8]) -> SqlResult<bool> {
    Ok(connection.prepare_cached(SET_NEXT_KEY)?.execute(params![runner_id, key_hash])? > 0)
}

pub(super) fn promote_key(
    connection: &Connection,
    runner_id: &str,
    key_hash: &[u8],
    now: i64,
) -> SqlResult<bool> {
    Ok(connection.prepare_cached(PROMOTE_KEY)?.execute(params![runner_id, key_hash, now])? > 0)
}

pub(super) fn revoke(connection: &Connection, runner_id: &str, now: i64) -> SqlResult<bool> {
    Ok(connection.prepare_cached(REVOKE)?.execute(params![runner_id, now])? > 0)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<RunnerRow> {
    Ok(RunnerRow {
        runner_id: row.get(0)?,
        key_hash: row.get(1)?,
        next_key_hash: row.get(2)?,
        hostname: row.get(3)?,
        os: row.get(4)?,
        version: row.get(5)?,
        harnesses_json: row.get(6)?,
        max_sessions: row.get::<_, i64>(7)?.cast_unsigned(),
        joined_at: row.get(8)?,
        last_seen_at: row.get(9)?,
        rotated_at: row.get(10)?,
        revoked_at: row.get(11)?,
    })
}
