//! Runners that have joined, and their keys.
//! A key is rotated in two steps, because either side may crash in between: the hub first stores the next key beside
//! the current one, and drops the old one when the runner first connects with the new one.

use rusqlite::{Connection, params, params_from_iter};

use super::requests::requests;
use crate::hub::{RunnerNote, RunnerRow};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::counter;
use crate::sqlite::statements::{StoredRow, changes, first, rows, run, stored_row};

stored_row!(RunnerRow: runner_id, key_hash, next_key_hash, hostname, os, version, harnesses_json, max_sessions,
    joined_at, last_seen_at, rotated_at, revoked_at);

const PUT: &str = "INSERT OR REPLACE INTO runners
    (runner_id, key_hash, next_key_hash, hostname, os, version, harnesses_json, max_sessions, joined_at,
     last_seen_at, rotated_at, revoked_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
/// An empty key hash is shorter than any hash, so no key matches it: the hub's own runner needs no key.
const NOTE: &str = "INSERT INTO runners
    (runner_id, key_hash, hostname, os, version, harnesses_json, max_sessions, joined_at, last_seen_at)
    VALUES (?1, x'', ?2, ?3, ?4, ?5, ?6, ?7, ?7)
    ON CONFLICT (runner_id) DO UPDATE SET hostname = excluded.hostname, os = excluded.os,
     version = excluded.version, harnesses_json = excluded.harnesses_json, max_sessions = excluded.max_sessions,
     last_seen_at = excluded.last_seen_at";
/// A rotation must not bring a revoked runner back; joining again does.
const SET_NEXT_KEY: &str =
    "UPDATE runners SET next_key_hash = ?2 WHERE runner_id = ?1 AND revoked_at IS NULL";
/// Only the key that is prepared now becomes the key: a later preparation may have replaced the one the caller saw.
const PROMOTE_KEY: &str = "UPDATE runners SET key_hash = next_key_hash, next_key_hash = NULL, rotated_at = ?3
    WHERE runner_id = ?1 AND next_key_hash = ?2 AND revoked_at IS NULL";
const REVOKE: &str = "UPDATE runners SET revoked_at = ?2 WHERE runner_id = ?1 AND revoked_at IS NULL";

requests! {
    read runners() -> Vec<RunnerRow> = list;
    read runner(runner_id: &str) -> Option<RunnerRow> = get;
    write put_runner(runner: RunnerRow) -> () = put;
    write note_runner(note: RunnerNote) -> () = put_note;
    write set_next_key(runner_id: &str, key_hash: &[u8]) -> bool = set_next_key;
    write promote_key(runner_id: &str, key_hash: &[u8], now: i64) -> bool = promote_key;
    write revoke_runner(runner_id: &str, now: i64) -> bool = revoke;
}

fn list(connection: &Connection) -> SqlResult<Vec<RunnerRow>> {
    rows(connection, &format!("SELECT {COLUMNS} FROM runners ORDER BY runner_id"), [], RunnerRow::from_row)
}

fn get(connection: &Connection, runner_id: &str) -> SqlResult<Option<RunnerRow>> {
    let sql = format!("SELECT {COLUMNS} FROM runners WHERE runner_id = ?1");
    first(connection, &sql, [runner_id], RunnerRow::from_row)
}

fn put(connection: &Connection, runner: &RunnerRow) -> SqlResult<()> {
    run(connection, PUT, params_from_iter(runner.values()?)).map(drop)
}

fn put_note(connection: &Connection, note: &RunnerNote) -> SqlResult<()> {
    let values = params![
        note.runner_id,
        note.hostname,
        note.os,
        note.version,
        note.harnesses_json,
        counter("max_sessions", note.max_sessions)?,
        note.seen_at,
    ];
    run(connection, NOTE, values).map(drop)
}

fn set_next_key(connection: &Connection, runner_id: &str, key_hash: &[u8]) -> SqlResult<bool> {
    changes(connection, SET_NEXT_KEY, params![runner_id, key_hash])
}

fn promote_key(connection: &Connection, runner_id: &str, key_hash: &[u8], now: i64) -> SqlResult<bool> {
    changes(connection, PROMOTE_KEY, params![runner_id, key_hash, now])
}

fn revoke(connection: &Connection, runner_id: &str, now: i64) -> SqlResult<bool> {
    changes(connection, REVOKE, params![runner_id, now])
}
