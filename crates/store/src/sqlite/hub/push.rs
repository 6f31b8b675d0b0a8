//! Subscriptions of browsers to pushes.

use rusqlite::{Connection, params, params_from_iter};

use super::requests::requests;
use crate::hub::{PUSH_SUBSCRIPTIONS_MAX, PushChange, PushRow};
use crate::sqlite::error::SqlResult;
use crate::sqlite::statements::{StoredRow, changes, first, rows, run, stored_row};

stored_row!(PushRow: subscription_id, principal, login_hash, endpoint, p256dh, auth, label, topics, content,
    created_at, last_success_at, last_failure_at, last_failure);

const INSERT: &str =
    "INSERT INTO push_subscriptions (subscription_id, principal, login_hash, endpoint, p256dh, auth,
    label, topics, content, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
/// The columns before those about deliveries.
const INSERTED_COLUMNS: usize = 10;
/// The failures of the old keys say nothing about the new ones, so they are cleared.
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

requests! {
    write put_push_subscription(row: PushRow) -> PushRow = put;
    read push_subscriptions_of(principal: &str) -> Vec<PushRow> = list_of;
    read push_subscriptions(alive_after: i64) -> Vec<PushRow> = list;
    read push_subscription(subscription_id: &str, alive_after: i64) -> Option<PushRow> = get;
    write change_push_subscription(principal: &str, subscription_id: &str, change: PushChange) -> bool = update;
    write delete_push_subscription(principal: Option<&str>, subscription_id: &str) -> bool = delete;
    write note_push(subscription_id: &str, at: i64, failure: Option<String>) -> () = note;
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
    if !changes(connection, RENEW, renewed)? {
        // An endpoint is one browser: whoever used it before must not get the new person's messages, nor the reverse.
        run(connection, "DELETE FROM push_subscriptions WHERE endpoint = ?1", [&row.endpoint])?;
        // Nothing has been sent to it yet, so the columns about that stay empty.
        run(connection, INSERT, params_from_iter(row.values()?.into_iter().take(INSERTED_COLUMNS)))?;
    }
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE endpoint = ?1");
    let stored = first(connection, &sql, [&row.endpoint], PushRow::from_row)?;
    let stored = stored.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let surplus = params![stored.subscription_id, stored.principal, PUSH_SUBSCRIPTIONS_MAX as i64 - 1];
    run(connection, DELETE_SURPLUS, surplus)?;
    Ok(stored)
}

fn update(connection: &Connection, principal: &str, id: &str, change: &PushChange) -> SqlResult<bool> {
    changes(connection, CHANGE, params![id, principal, change.label, change.topics, change.content])
}

fn delete(connection: &Connection, principal: Option<&str>, id: &str) -> SqlResult<bool> {
    const DELETE: &str = "DELETE FROM push_subscriptions
        WHERE subscription_id = ?1 AND principal = coalesce(?2, principal)";
    changes(connection, DELETE, params![id, principal])
}

fn note(connection: &Connection, id: &str, at: i64, failure: &Option<String>) -> SqlResult<()> {
    const SUCCESS: &str = "UPDATE push_subscriptions SET last_success_at = ?2 WHERE subscription_id = ?1";
    const FAILURE: &str = "UPDATE push_subscriptions SET last_failure_at = ?2, last_failure = ?3
        WHERE subscription_id = ?1";
    match failure {
        None => run(connection, SUCCESS, params![id, at])?,
        Some(failure) => run(connection, FAILURE, params![id, at, failure])?,
    };
    Ok(())
}

fn list_of(connection: &Connection, principal: &str) -> SqlResult<Vec<PushRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM push_subscriptions WHERE principal = ?1 ORDER BY created_at, subscription_id"
    );
    rows(connection, &sql, [principal], PushRow::from_row)
}

fn list(connection: &Connection, alive_after: i64) -> SqlResult<Vec<PushRow>> {
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE {IS_ALIVE} ORDER BY principal");
    rows(connection, &sql, [alive_after], PushRow::from_row)
}

fn get(connection: &Connection, subscription_id: &str, alive_after: i64) -> SqlResult<Option<PushRow>> {
    let sql = format!("SELECT {COLUMNS} FROM push_subscriptions WHERE {IS_ALIVE} AND subscription_id = ?2");
    first(connection, &sql, params![alive_after, subscription_id], PushRow::from_row)
}
