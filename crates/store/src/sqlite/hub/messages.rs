//! Messages, one row each, kept beside the records they came with so that conversations can be read and searched. They
//! are a copy: what a conversation is, the records say.

use rusqlite::{Connection, params};

use crate::hub::{MessageRow, SessionTotals};
use crate::sqlite::error::SqlResult;
use crate::sqlite::statements::{first, run};

/// An upsert, never REPLACE: see the triggers in the schema.
const UPSERT: &str = "INSERT INTO messages
    (session_id, id, idx, active, role, created_at, model, provider, tokens, cost_usd, stop_reason, tool_call_id,
     tool_name, is_error, client_id, usage_json, metadata, content, parts_json, message_json)
    VALUES (?1, ?2, ?3, 1, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)
    ON CONFLICT (session_id, id) DO UPDATE SET idx = excluded.idx, active = 1, role = excluded.role,
     created_at = excluded.created_at, model = excluded.model, provider = excluded.provider,
     tokens = excluded.tokens, cost_usd = excluded.cost_usd, stop_reason = excluded.stop_reason,
     tool_call_id = excluded.tool_call_id, tool_name = excluded.tool_name, is_error = excluded.is_error,
     client_id = excluded.client_id, usage_json = excluded.usage_json, metadata = excluded.metadata,
     content = excluded.content, parts_json = excluded.parts_json, message_json = excluded.message_json";

const COST: &str = "SELECT tokens, cost_usd FROM messages WHERE session_id = ?1 AND id = ?2";

/// How a message changes the totals of its session. Asked before it is stored; of what it replaces only the difference
/// counts.
pub(super) fn added(
    connection: &Connection,
    session_id: &str,
    message: &MessageRow,
) -> SqlResult<SessionTotals> {
    if message.tokens.is_none() && message.cost_usd.is_none() {
        return Ok(SessionTotals::default());
    }
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let known: Option<(Option<i64>, Option<f64>)> = first(connection, COST, [session_id, &message.id], read)?;
    let (tokens, cost_usd) = known.unwrap_or_default();
    Ok(SessionTotals {
        tokens: message.tokens.unwrap_or(0).saturating_sub(tokens.unwrap_or(0)),
        cost_usd: message.cost_usd.unwrap_or(0.0) - cost_usd.unwrap_or(0.0),
    })
}

pub(super) fn upsert(connection: &Connection, session_id: &str, message: &MessageRow) -> SqlResult<()> {
    connection.prepare_cached(UPSERT)?.execute(params![
        session_id,
        message.id,
        message.idx,
        message.role,
        message.created_at,
        message.model,
        message.provider,
        message.tokens,
        message.cost_usd,
        message.stop_reason,
        message.tool_call_id,
        message.tool_name,
        message.is_error,
        message.client_id,
        message.usage_json,
        message.metadata,
        message.content,
        message.parts_json,
        &message.message_json[..],
    ])?;
    Ok(())
}

/// Makes `list` the whole conversation. What is not in it stays stored but inactive, since another branch of
/// the conversation may come back to it.
pub(super) fn replace(connection: &Connection, session_id: &str, list: &[MessageRow]) -> SqlResult<()> {
    run(connection, "UPDATE messages SET active = 0 WHERE session_id = ?1 AND active = 1", [session_id])?;
    list.iter().try_for_each(|message| upsert(connection, session_id, message))
}

pub(super) fn row_bytes(message: &MessageRow) -> usize {
    message.content.len() + message.parts_json.len() + message.message_json.len()
}
