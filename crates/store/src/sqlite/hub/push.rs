//! Subscriptions of browsers to pushes.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteHub;
use crate::error::Result;
use crate::hub::{PUSH_SUBSCRIPTIONS_MAX, PushChange, PushRow};
use crate::sqlite::error::SqlResult;

const COLUMNS: &str =
    "subscription_id, principal, login_hash, endpoint, p256dh, auth, label, topics, content, created_at,
    last_success_at, last_failure_at, last_failure";
const INSERT: &str =
    "INSERT INTO push_subscriptions (subscription_id, principal, login_hash, endpoint, p256dh, auth,
    label, topics, content, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const RENEW: &str =
    "UPDATE push_subscriptions SET login_hash = ?3, p256dh = ?4, auth = ?5, label = ?6, topics = ?7,
    content = ?8, last_failure_at = NULL, last_failure = NULL WHERE endpoint = ?1 AND principal = ?2";
const CHANGE: &str =
    "UPDATE push_subscriptions SET label = coalesce(?3, label), topics = coalesce(?4, topics),
    content = coalesce(?5, content) WHERE subscription_id = ?1 AND principal = ?2";
/// Those of the same principal that have worked least recently, the one that was put not among them.
const DELETE_SURPLUS: &str = "DELETE FROM push_subscriptions WHERE principal = ?2 AND subscription_id <> ?1
    AND subscription_id NOT IN (SELECT subscription_id FROM push_subscriptions
        WHERE principal = ?2 AND subscription_id <> ?1
        ORDER BY coalesce(last_success_at, created_at) DESC LIMIT ?3)";
/// A login that was not used for so long is over, though its row may still be there.
const IS_ALIVE: &str = "(login_hash IS NULL OR EXISTS (SELECT 1 FROM logins
    WHERE logins.token_hash = push_subscriptions.login_hash AND logins.last_used_at > ?1))";

impl SqliteHub {
    pub(crate) async fn put_push_subscription(&self, row: PushRow) -> Result<PushRow> {
        self.engine.write(0, move |connection| put(connection, &row)).await
    }

    pub(crate) async fn push_subscriptions_of(&self, principal: &str) -> Result<Vec<PushRow>> {
        let principal = principal.to_owned();
        self.engine.read(move |connection| list_of(connection, &principal)).await
    }

    pub(crate) async fn push_subscriptions(&self, alive_after: i64) -> Result<Vec<PushRow>> {
        self.engine.read(move |connection| list(connection, alive_after)).await
    }

    pub(crate) async fn push_subscription(
        &self,
        subscription_id: &str,
        alive_after: i64,
    ) -> Result<Option<PushRow>> {
        let id = subscription_id.to_owned();
        self.engine.read(move |connection| get(connection, &id, alive_after)).await
    }

    pub(crate) async fn change_push_subscription(
        &self,
        principal: &str,
        subscription_id: &str,
        change: PushChange,
    ) -> Result<bool> {
        let (principal, id) = (principal.to_owned(), subscription_id.to_owned());
        let update = move |connection: &Connection| {
            let values = params![id, principal, change.label, change.topics, change.content];
            Ok(connection.prepare_cached(CHANGE)?.execute(values)? > 0)
        };
        self.engine.write(0, update).await
    }

    pub(crate) async fn delete_push_subscription(
        &self,
        principal: Option<&str>,
        subscription_id: &str,
    ) -> Result<bool> {
        let (principal, id) = (principal.map(str::to_owned), subscription_id.to_owned());
        let delete = move |connection: &Connection| {
            const DELETE: &str = "DELETE FROM push_subscriptions
                WHERE subscription_id = ?1 AND principal = coalesce(?2, principal)";
            Ok(connection.prepare_cached(DELETE)?.execute(params![id, principal])? > 0)
        };
        self.engine.write(0, delete).await
    }

    pub(crate) async fn note_push(
        &self,
        subscription_id: &str,
        at: i64,
        failure: Option<String>,
    ) -> Result<()> {
        const SUCCESS: &str = "UPDATE push_subscriptions SET last_success_at = ?2 WHERE subscription_id = ?1";
        const FAILURE: &str = "UPDATE push_subscriptions SET last_failure_at = ?2, last_failure = ?3
            WHERE subscription_id = ?1";
        let id = subscription_id.to_owned();
        let note = move |connection: &Connection| {
            match &failure {
                None => connection.prepare_cached(SUCCESS)?.execute(params![id, at])?,
                Some(failure) => connection.prepare_cached(FAILURE)?.execute(params![id, at, failure])?,
            };
            Ok(())
        };
        self.engine.write(0, note).await
    }
}

fn put(connection: &Connection, row: &PushRow) -> SqlResult<PushRow> {
    let renewed = params![
        row.endpoint,
        row.principal,
        row.login_hash,
        row.p256dh,
        row.auth,
        row.label,
        row.topics,
        row.content
    ];
    if connection.prepare_cached(RENEW)?.execute(renewed)? == 0 {
        connection
            .prepare_cached("DELETE FROM push_subscriptions WHERE endpoint = ?1")?
            .execute([&row.endpoint])?;
        connection.prepare_cached(INSERT)?.execute(params![
            row.subscription_id,
            row.principal,
            row.login_hash,
            row.endpoint,
            row.p256dh,
            row.auth,
            row.label,
            row.topics,
            row.content,
            row.created_at
        ])?;
    }
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE endpoint = ?1");
    let stored = connection.prepare_cached(&sql)?.query_row([&row.endpoint], from_row)?;
    connection.prepare_cached(DELETE_SURPLUS)?.execute(params![
        stored.subscription_id,
        stored.principal,
        PUSH_SUBSCRIPTIONS_MAX as i64 - 1
    ])?;
    Ok(stored)
}

fn list_of(connection: &Connection, principal: &str) -> SqlResult<Vec<PushRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM push_subscriptions WHERE principal = ?1 ORDER BY created_at, subscription_id"
    );
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([principal], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn list(connection: &Connection, alive_after: i64) -> SqlResult<Vec<PushRow>> {
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE {IS_ALIVE} ORDER BY principal");
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map([alive_after], from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn get(connection: &Connection, subscription_id: &str, alive_after: i64) -> SqlResult<Option<PushRow>> {
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE {IS_ALIVE} AND subscription_id = ?2");
    let mut select = connection.prepare_cached(&sql)?;
    Ok(select.query_row(params![alive_after, subscription_id], from_row).optional()?)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<PushRow> {
    Ok(PushRow {
        subscription_id: row.get(0)?,
        principal: row.get(1)?,
        login_hash: row.get(2)?,
        endpoint: row.get(3)?,
        p256dh: row.get(4)?,
        auth: row.get(5)?,
        label: row.get(6)?,
        topics: row.get(7)?,
        content: row.get(8)?,
        created_at: row.get(9)?,
        last_success_at: row.get(10)?,
        last_failure_at: row.get(11)?,
        last_failure: row.get(12)?,
    })
}
