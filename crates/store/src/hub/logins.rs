use rusqlite::{Connection, OptionalExtension, Row, params};

use super::types::Login;
use crate::error::Result;

/// A login's last use is written only when the stored one is older than this.
const TOUCH_MS: i64 = 60_000;

pub(super) fn put(connection: &Connection, login: &Login) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO logins (token_hash, created_at, last_used_at, label) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (token_hash) DO UPDATE SET last_used_at = excluded.last_used_at, label = excluded.label",
        )?
        .execute(params![login.token_hash, login.created_at, login.last_used_at, login.label])?;
    Ok(())
}

pub(super) fn get(connection: &Connection, token_hash: &[u8]) -> Result<Option<Login>> {
    let mut select = connection.prepare_cached(
        "SELECT token_hash, created_at, last_used_at, label FROM logins WHERE token_hash = ?1",
    )?;
    Ok(select.query_row([token_hash], from_row).optional()?)
}

pub(super) fn list(connection: &Connection) -> Result<Vec<Login>> {
    let mut select = connection.prepare_cached(
        "SELECT token_hash, created_at, last_used_at, label FROM logins ORDER BY created_at",
    )?;
    let rows = select.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn is_stale(login: &Login, now: i64) -> bool {
    now.saturating_sub(login.last_used_at) >= TOUCH_MS
}

pub(super) fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> Result<()> {
    connection
        .prepare_cached("UPDATE logins SET last_used_at = max(last_used_at, ?2) WHERE token_hash = ?1")?
        .execute(params![token_hash, now])?;
    Ok(())
}

pub(super) fn delete(connection: &Connection, token_hash: &[u8]) -> Result<bool> {
    let deleted =
        connection.prepare_cached("DELETE FROM logins WHERE token_hash = ?1")?.execute([token_hash])?;
    Ok(deleted > 0)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Login> {
    Ok(Login {
        token_hash: row.get(0)?,
        created_at: row.get(1)?,
        last_used_at: row.get(2)?,
        label: row.get(3)?,
    })
}
