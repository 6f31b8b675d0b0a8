//! Access tokens: those of people, and those that the hub's owner has made for somebody else.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteHub;
use crate::error::Result;
use crate::hub::{ACCESS_TOKENS_MAX, AccessTokenRow, TOUCH_MS, TokenStored};
use crate::sqlite::error::SqlResult;

const COLUMNS: &str = "owner, name, token_hash, created_at, last_used_at, scopes, expires_at";
/// A token of the hub's owner is a principal of its own, known by its name alone, so no person may have it.
const INSERT: &str =
    "INSERT INTO access_tokens (owner, name, token_hash, created_at, last_used_at, scopes, expires_at)
    SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7
    WHERE ?1 <> '' OR NOT EXISTS (SELECT 1 FROM people WHERE username = ?2)
    ON CONFLICT (owner, name) DO NOTHING";

impl SqliteHub {
    pub(crate) async fn put_access_token(&self, token: AccessTokenRow) -> Result<TokenStored> {
        self.engine.write(0, move |connection| put(connection, &token)).await
    }

    pub(crate) async fn access_tokens(&self) -> Result<Vec<AccessTokenRow>> {
        self.engine.read(list).await
    }

    pub(crate) async fn delete_access_token(
        &self,
        owner: Option<&str>,
        name: &str,
    ) -> Result<Option<Vec<u8>>> {
        let (owner, name) = (owner.unwrap_or_default().to_owned(), name.to_owned());
        self.engine.write(0, move |connection| delete(connection, &owner, &name)).await
    }

    pub(crate) async fn check_access_token(
        &self,
        token_hash: &[u8],
        now: i64,
    ) -> Result<Option<AccessTokenRow>> {
        let hash = token_hash.to_vec();
        let found = self.engine.read(move |connection| get(connection, &hash)).await?;
        let Some(token) = found.filter(|token| token.expires_at.is_none_or(|end| end > now)) else {
            return Ok(None);
        };
        if token.last_used_at.is_none_or(|used| now.saturating_sub(used) >= TOUCH_MS) {
            let hash = token.token_hash.clone();
            let touch = self.engine.write(0, move |connection| touch(connection, &hash, now));
            if let Err(error) = touch.await {
                tracing::warn!(%error, "the use of an access token cannot be noted");
            }
        }
        Ok(Some(token))
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
    if connection.prepare_cached(INSERT)?.execute(values)? == 0 {
        return Ok(TokenStored::NameTaken);
    }
    let count: i64 =
        connection.prepare_cached("SELECT count(*) FROM access_tokens")?.query_row([], |row| row.get(0))?;
    if count > ACCESS_TOKENS_MAX as i64 {
        delete(connection, owner, &token.name)?;
        return Ok(TokenStored::TooMany);
    }
    Ok(TokenStored::Added)
}

fn list(connection: &Connection) -> SqlResult<Vec<AccessTokenRow>> {
    let sql = format!("SELECT {COLUMNS} FROM access_tokens ORDER BY owner, name");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn get(connection: &Connection, token_hash: &[u8]) -> SqlResult<Option<AccessTokenRow>> {
    let sql = format!("SELECT {COLUMNS} FROM access_tokens WHERE token_hash = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([token_hash], from_row).optional()?)
}

fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> SqlResult<()> {
    connection
        .prepare_cached(
            "UPDATE access_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE token_hash = ?1",
        )?
        .execute(params![token_hash, now])?;
    Ok(())
}

fn delete(connection: &Connection, owner: &str, name: &str) -> SqlResult<Option<Vec<u8>>> {
    let mut delete = connection
        .prepare_cached("DELETE FROM access_tokens WHERE owner = ?1 AND name = ?2 RETURNING token_hash")?;
    Ok(delete.query_row([owner, name], |row| row.get(0)).optional()?)
}

/// All tokens of a person.
pub(super) fn delete_of(connection: &Connection, username: &str) -> SqlResult<()> {
    connection.prepare_cached("DELETE FROM access_tokens WHERE owner = ?1")?.execute([username])?;
    Ok(())
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<AccessTokenRow> {
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
