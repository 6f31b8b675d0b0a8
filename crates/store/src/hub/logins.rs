use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::types::Login;
use crate::error::Result;

/// Logins that are kept.
pub const LOGINS_MAX: usize = 100;
/// A login's last use is written only when the stored one is older than this.
const TOUCH_MS: i64 = 60_000;

pub(super) fn put(connection: &Connection, login: &Login) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO logins (token_hash, created_at, last_used_at, label) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (token_hash) DO UPDATE SET last_used_at = excluded.last_used_at, label = excluded.label",
        )?
        .execute(params![login.token_hash, login.created_at, login.last_used_at, login.label])?;
    connection
        .prepare_cached(
            "DELETE FROM logins WHERE token_hash <> ?1 AND token_hash NOT IN
             (SELECT token_hash FROM logins WHERE token_hash <> ?1 ORDER BY last_used_at DESC LIMIT ?2)",
        )?
        .execute(params![login.token_hash, LOGINS_MAX as i64 - 1])?;
    Ok(())
}

pub(super) fn get(connection: &Connection, token_hash: &[u8]) -> Result<Option<Login>> {
    let mut select = connection.prepare_cached(
        "SELECT token_hash, created_at, last_used_at, label FROM logins WHERE token_hash = ?1",
    )?;
    Ok(select.query_row([token_hash], from_row).optional()?)
}

pub(super) fn is_alive(login: &Login, now: i64, life: Duration) -> bool {
    let life = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    now.saturating_sub(login.last_used_at) < life
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
