//! Access tokens: those of people, and those that the hub's owner has made for somebody else.

use rusqlite::{Connection, Row, params};

use crate::error::Result;
use crate::hub::{ACCESS_TOKENS_MAX, AccessTokenRow, TOUCH_MS, TokenStored};
use crate::sqlite::error::SqlResult;
use crate::sqlite::hub::SqliteHub;
use crate::sqlite::hub::requests::requests;
use crate::sqlite::statements::{first, rows, run, value};

const COLUMNS: &str = "owner, name, token_hash, created_at, last_used_at, scopes, expires_at";
/// A token of the hub's owner is a principal of its own, known by its name alone, so no person may have it.
const INSERT: &str =
    "INSERT INTO access_tokens (owner, name, token_hash, created_at, last_used_at, scopes, expires_at)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
    WHERE ?1 <> '' OR NOT EXISTS (SELECT 1 FROM people WHERE username = ?2)
    ON CONFLICT (owner, name) DO NOTHING";

requests! {
    write put_access_token(token: AccessTokenRow) -> TokenStored = put;
    read access_tokens() -> Vec<AccessTokenRow> = list;
    write delete_access_token(owner: Option<&str>, name: &str) -> Option<Vec<u8>> = delete;
    read access_token(token_hash: &[u8]) -> Option<AccessTokenRow> = get;
    write touch_access_token(token_hash: &[u8], now: i64) -> () = touch;
}

impl SqliteHub {
    /// Reads first and writes rarely: every request of a program checks its token, and a write for each would fill the
    /// writer's queue. A use that cannot be noted is logged only, so that a full disk locks nobody out.
    pub(crate) async fn check_access_token(
        &self,
        token_hash: &[u8],
        now: i64,
    ) -> Result<Option<AccessTokenRow>> {
        let found = self.access_token(token_hash).await?;
        let found = found.filter(|token| token.expires_at.is_none_or(|end| end > now));
        let is_stale = |used: Option<i64>| used.is_none_or(|used| now.saturating_sub(used) >= TOUCH_MS);
        if found.as_ref().is_some_and(|token| is_stale(token.last_used_at))
            && let Err(error) = self.touch_access_token(token_hash, now).await
        {
            tracing::warn!(%error, "the use of an access token cannot be noted");
        }
        Ok(found)
    }
}

fn put(connection: &Connection, token: &AccessTokenRow) -> SqlResult<TokenStored> {
    let owner = token.owner.as_deref().unwrap_or_default();
    let values = params![
        owner,
        token.name,
        token.token_hash,
        token.created_at,
        token.last_used_at,
        token.scopes,
        token.expires_at
    ];
    if run(connection, INSERT, values)? == 0 {
        return Ok(TokenStored::NameTaken);
    }
    // Counted after the insert, so that a taken name is told as such even when there is no more room.
    if value::<i64>(connection, "SELECT count(*) FROM access_tokens", [])? > ACCESS_TOKENS_MAX as i64 {
        delete(connection, Some(owner), &token.name)?;
        return Ok(TokenStored::TooMany);
    }
    Ok(TokenStored::Added)
}

fn list(connection: &Connection) -> SqlResult<Vec<AccessTokenRow>> {
    rows(connection, &format!("SELECT {COLUMNS} FROM access_tokens ORDER BY owner, name"), [], from_row)
}

fn get(connection: &Connection, token_hash: &[u8]) -> SqlResult<Option<AccessTokenRow>> {
    let sql = format!("SELECT {COLUMNS} FROM access_tokens WHERE token_hash = ?1");
    first(connection, &sql, [token_hash], from_row)
}

fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> SqlResult<()> {
    const TOUCH: &str =
        "UPDATE access_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE token_hash = ?1";
    run(connection, TOUCH, params![token_hash, now]).map(drop)
}

fn delete(connection: &Connection, owner: Option<&str>, name: &str) -> SqlResult<Option<Vec<u8>>> {
    let sql = "DELETE FROM access_tokens WHERE owner = ?1 AND name = ?2 RETURNING token_hash";
    first(connection, sql, [owner.unwrap_or_default(), name], |row| Ok(row.get(0)?))
}

/// All tokens of a person.
pub(super) fn delete_of(connection: &Connection, username: &str) -> SqlResult<()> {
    run(connection, "DELETE FROM access_tokens WHERE owner = ?1", [username]).map(drop)
}

fn from_row(row: &Row<'_>) -> SqlResult<AccessTokenRow> {
    let owner: String = row.get(0)?;
    Ok(AccessTokenRow {
        owner: (!owner.is_empty()).then_some(owner),
        name: row.get(1)?,
        token_hash: row.get(2)?,
        created_at: row.get(3)?,
        last_used_at: row.get(4)?,
        scopes: row.get(5)?,
        expires_at: row.get(6)?,
    })
}
