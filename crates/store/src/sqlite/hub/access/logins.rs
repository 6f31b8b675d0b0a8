//! Logins: browsers and programs that somebody has logged in with, by the hash of the token they hold.

use std::time::Duration;

use rusqlite::{Connection, params, params_from_iter};

use crate::error::Result;
use crate::hub::{LOGINS_MAX, LoginRow, TOUCH_MS};
use crate::sqlite::error::SqlResult;
use crate::sqlite::hub::SqliteHub;
use crate::sqlite::hub::requests::requests;
use crate::sqlite::statements::{StoredRow, changes, first, rows, run, stored_row};

stored_row!(LoginRow: token_hash, username, created_at, last_used_at, label);

const PUT: &str = "INSERT INTO logins (token_hash, username, created_at, last_used_at, label)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (token_hash) DO UPDATE SET last_used_at = excluded.last_used_at, label = excluded.label";
/// Those of the same person that are used least, the one that was put not among them.
const DELETE_SURPLUS: &str = "DELETE FROM logins WHERE username IS ?2 AND token_hash <> ?1 AND token_hash NOT IN
    (SELECT token_hash FROM logins WHERE username IS ?2 AND token_hash <> ?1 ORDER BY last_used_at DESC LIMIT ?3)
    RETURNING token_hash";

requests! {
    write put_login(login: LoginRow) -> Vec<Vec<u8>> = put;
    read login(token_hash: &[u8]) -> Option<LoginRow> = get;
    write touch_login(token_hash: &[u8], now: i64) -> () = touch;
    read logins_of(username: Option<&str>) -> Vec<LoginRow> = list;
    write delete_login(token_hash: &[u8]) -> bool = delete;
}

impl SqliteHub {
    /// As for access tokens: a read, and a write at most once in `TOUCH_MS`, whose failure ends no login.
    pub(crate) async fn check_login(
        &self,
        token_hash: &[u8],
        now: i64,
        life: Duration,
    ) -> Result<Option<LoginRow>> {
        let found = self.login(token_hash).await?.filter(|login| is_alive(login, now, life));
        if found.as_ref().is_some_and(|login| is_stale(login, now))
            && let Err(error) = self.touch_login(token_hash, now).await
        {
            tracing::warn!(%error, "the use of a login cannot be noted");
        }
        Ok(found)
    }
}

fn put(connection: &Connection, login: &LoginRow) -> SqlResult<Vec<Vec<u8>>> {
    run(connection, PUT, params_from_iter(login.values()?))?;
    // The caller gets the hashes of those that went, because what is open under them must end too.
    let values = params![login.token_hash, login.username, LOGINS_MAX as i64 - 1];
    rows(connection, DELETE_SURPLUS, values, |row| Ok(row.get(0)?))
}

fn get(connection: &Connection, token_hash: &[u8]) -> SqlResult<Option<LoginRow>> {
    let sql = format!("SELECT {COLUMNS} FROM logins WHERE token_hash = ?1");
    first(connection, &sql, [token_hash], LoginRow::from_row)
}

fn list(connection: &Connection, username: Option<&str>) -> SqlResult<Vec<LoginRow>> {
    let sql = format!("SELECT {COLUMNS} FROM logins WHERE username IS ?1 ORDER BY last_used_at DESC");
    rows(connection, &sql, [username], LoginRow::from_row)
}

fn is_alive(login: &LoginRow, now: i64, life: Duration) -> bool {
    let life = i64::try_from(life.as_millis()).unwrap_or(i64::MAX);
    now.saturating_sub(login.last_used_at) < life
}

fn is_stale(login: &LoginRow, now: i64) -> bool {
    now.saturating_sub(login.last_used_at) >= TOUCH_MS
}

fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> SqlResult<()> {
    // Two requests may note their use in the wrong order; the later time stays.
    const TOUCH: &str = "UPDATE logins SET last_used_at = max(last_used_at, ?2) WHERE token_hash = ?1";
    run(connection, TOUCH, params![token_hash, now]).map(drop)
}

fn delete(connection: &Connection, token_hash: &[u8]) -> SqlResult<bool> {
    changes(connection, "DELETE FROM logins WHERE token_hash = ?1", [token_hash])
}

/// All logins of a person.
pub(super) fn delete_of(connection: &Connection, username: &str) -> SqlResult<()> {
    run(connection, "DELETE FROM logins WHERE username = ?1", [username]).map(drop)
}
