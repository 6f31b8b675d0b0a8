//! Access tokens: who beside the owner may talk to the hub.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::HubStore;
use super::types::{AccessToken, TokenPut};
use crate::error::Result;

/// Access tokens that can be there at a time; people name them by hand.
pub const ACCESS_TOKENS_MAX: usize = 1000;
/// A token's last use is written only when the stored one is older than this.
const TOUCH_MS: i64 = 60_000;

const INSERT: &str = "INSERT INTO access_tokens (name, token_hash, created_at, last_used_at)
    VALUES (?1, ?2, ?3, ?4) ON CONFLICT (name) DO NOTHING";

impl HubStore {
    /// Adds a token, by its hash, unless its name is taken or there are `ACCESS_TOKENS_MAX` already.
    pub async fn put_access_token(&self, token: AccessToken) -> Result<TokenPut> {
        self.engine.write(0, move |connection| put(connection, &token)).await
    }

    /// All access tokens, by name.
    pub async fn access_tokens(&self) -> Result<Vec<AccessToken>> {
        self.engine.read(list).await
    }

    /// False if there was none of this name.
    pub async fn delete_access_token(&self, name: &str) -> Result<bool> {
        let name = name.to_owned();
        self.engine.write(0, move |connection| delete(connection, &name)).await
    }

    /// The name of the token with this hash, if there is one. Its use is noted, at most once a minute, and if the
    /// disk is full not at all: who has a token stays in.
    pub async fn check_access_token(&self, token_hash: &[u8], now: i64) -> Result<Option<String>> {
        let hash = token_hash.to_vec();
        let Some(token) = self.engine.read(move |connection| get(connection, &hash)).await? else {
            return Ok(None);
        };
        if token.last_used_at.is_none_or(|used| now.saturating_sub(used) >= TOUCH_MS) {
            let touch = self.engine.write(0, move |connection| touch(connection, &token.token_hash, now));
            if let Err(error) = touch.await {
                tracing::warn!(%error, "the use of an access token cannot be noted");
            }
        }
        Ok(Some(token.name))
    }
}

fn put(connection: &Connection, token: &AccessToken) -> Result<TokenPut> {
    let values = params![token.name, token.token_hash, token.created_at, token.last_used_at];
    if connection.prepare_cached(INSERT)?.execute(values)? == 0 {
        return Ok(TokenPut::NameTaken);
    }
    let count: i64 =
        connection.prepare_cached("SELECT count(*) FROM access_tokens")?.query_row([], |row| row.get(0))?;
    if count > ACCESS_TOKENS_MAX as i64 {
        delete(connection, &token.name)?;
        return Ok(TokenPut::TooMany);
    }
    Ok(TokenPut::Added)
}

fn list(connection: &Connection) -> Result<Vec<AccessToken>> {
    let mut select = connection.prepare_cached(
        "SELECT name, token_hash, created_at, last_used_at FROM access_tokens ORDER BY name",
    )?;
    let rows = select.query_map([], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn get(connection: &Connection, token_hash: &[u8]) -> Result<Option<AccessToken>> {
    let mut select = connection.prepare_cached(
        "SELECT name, token_hash, created_at, last_used_at FROM access_tokens WHERE token_hash = ?1",
    )?;
    Ok(select.query_row([token_hash], from_row).optional()?)
}

fn touch(connection: &Connection, token_hash: &[u8], now: i64) -> Result<()> {
    connection
        .prepare_cached(
            "UPDATE access_tokens SET last_used_at = max(coalesce(last_used_at, 0), ?2) WHERE token_hash = ?1",
        )?
        .execute(params![token_hash, now])?;
    Ok(())
}

fn delete(connection: &Connection, name: &str) -> Result<bool> {
    Ok(connection.prepare_cached("DELETE FROM access_tokens WHERE name = ?1")?.execute([name])? > 0)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<AccessToken> {
    Ok(AccessToken {
        name: row.get(0)?,
        token_hash: row.get(1)?,
        created_at: row.get(2)?,
        last_used_at: row.get(3)?,
    })
}
