//! Logins: browsers and programs that somebody has logged in with, by the hash of the token they hold.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteHub;
use crate::error::Result;
use crate::hub::{LOGINS_MAX, LoginRow, TOUCH_MS};
use crate::sqlite::error::SqlResult;

const COLUMNS: &str = "token_hash, username, created_at, last_used_at, label";
const PUT: &str = "INSERT INTO logins (token_hash, username, created_at, last_used_at, label)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (token_hash) DO UPDATE SET last_used_at = excluded.last_used_at, label = excluded.label";
/// Those of the same person that are used least, the one that was put not among them.
const DELETE_SURPLUS: &str = "DELETE FROM logins WHERE username IS ?2 AND token_hash <> ?1 AND token_hash NOT IN
    (SELECT token_hash FROM logins WHERE username IS ?2 AND token_hash <> ?1 ORDER BY last_used_at DESC LIMIT ?3)
    RETURNING token_hash";

impl SqliteHub {
    pub(crate) async fn put_login(&self, login: LoginRow) -> Result<Vec<Vec<u8>>> {
        self.engine.write(0, move |connection| put(connection, &login)).await
    }

    pub(crate) async fn check_login(
        &self,
        token_hash: &[u8],
        now: i64,
        life: Duration,
    ) -> Result<Option<LoginRow>> {
        let hash = token_hash.to_vec();
        let found = self.engine.read(move |connection| get(connection, &hash)).await?;
        let found = found.filter(|login| is_alive(login, now, life));
        if let Some(login) = found.as_ref().filter(|login| is_stale(login, now)) {
            let hash = login.token_hash.clone();
            let touch = self.engine.write(0, move |connection| touch(connection, &hash, now));
            if let Err(error) = touch.await {
                tracing::warn!(%error, "the use of a login cannot be noted");
            }
        }
        Ok(found)
    }

    pub(crate) async fn logins_of(&self, username: Option<&str>) -> Result<Vec<LoginRow>> {
        let username = username.map(str::to_owned);
        self.engine.read(move |connection| list(connection, username.as_deref())).await
    }

    pub(crate) async fn delete_login(&self, token_hash: &[u8]) -> Result<bool> {
        let hash = token_hash.to_vec();
        self.engine.write(0, move |connection| delete(connection, &hash)).await
    }
}

fn put(connection: &Connection, login: &LoginRow) -> SqlResult<Vec<Vec<u8>>> {
    connection.prepare_cached(PUT)?.execute(params![
        login.token_hash,
        login.username,
        login.created_at,
        login.last_used_at,
        login.label
    ])?;
    let mut surplus = connection.prepare_cached(DELETE_SURPLUS)?;
    let values = params![login.token_hash, login.username, LOGINS_MAX as i64 - 1];
    let gone = surplus.query_map(values, |row| row.get(0))?;
    Ok(gone.collect::<rusqlite::Result<_>>()?)
}

fn get(connection: &Connection, token_hash: &[u8]) -> SqlResult<Option<LoginRow>> {
    let sql = format!("SELECT {COLUMNS} FROM logins WHERE token_hash = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([token_hash], from_row).optional()?)
}

fn list(connection: &Connection, username: Option<&str>) -> SqlResult<Vec<LoginRow>> {
    let sql = format!("SELECT {COLUMNS} FROM logins WHERE username IS ?1 ORDER BY last_used_at DESC");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([username], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn is_alive(login: &LoginRow, now: i64, life: Duration) -> bool {
    let life = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    now.saturating_sub(login.last_used_at) < life
}

fn is_stale(login: &LoginRow, now: i64) -> bool {
    now.saturating_sub(login.last_used_at) >= TOUCH_MS
}

fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> SqlResult<()> {
    connection
        .prepare_cached("UPDATE logins SET last_used_at = max(last_used_at, ?2) WHERE token_hash = ?1")?
        .execute(params![token_hash, now])?;
    Ok(())
}

fn delete(connection: &Connection, token_hash: &[u8]) -> SqlResult<bool> {
    let deleted =
        connection.prepare_cached("DELETE FROM logins WHERE token_hash = ?1")?.execute([token_hash])?;
    Ok(deleted > 0)
}

/// All logins of a person.
pub(super) fn delete_of(connection: &Connection, username: &str) -> SqlResult<()> {
    connection.prepare_cached("DELETE FROM logins WHERE username = ?1")?.execute([username])?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<LoginRow> {
    Ok(LoginRow {
        token_hash: row.get(0)?,
        username: row.get(1)?,
        created_at: row.get(2)?,
        last_used_at: row.get(3)?,
        label: row.get(4)?,
    })
}
