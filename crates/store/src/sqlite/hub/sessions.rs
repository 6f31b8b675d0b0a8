//! The rows of sessions in the hub: what lists show without reading a record. A row can lag behind the records for a
//! moment, so its `last_seq` is always read together with theirs.

use rusqlite::{Connection, Row, named_params, params};

use crate::hub::{HubSession, SessionPatch, SessionTotals};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, counter, session_base};
use crate::sqlite::statements::{Column, first, rows, run};

/// The greatest `seq` of a session: that of its newest record, because its row is not written for each of them, or what
/// the row says, where the records are gone.
macro_rules! last_seq {
    () => {
        "max(last_seq, coalesce((SELECT record_key & 1099511627775 FROM records
          WHERE record_key BETWEEN (session_key << 40) AND ((session_key << 40) | 1099511627775)
          ORDER BY record_key DESC LIMIT 1), 0))"
    };
}
const LAST_SEQ: &str = last_seq!();
const COLUMNS: &str = "session_id, runner_id, harness, cwd, title, model, provider, state, created_at, \
    updated_at, closed, meta_json, \
    (SELECT count(*) FROM messages WHERE messages.session_id = sessions.session_id AND active = 1), \
    branch, last_text, tokens, cost_usd, error, run_tool";
/// A placeholder made by a record that came first has created_at 0 and takes the real one later.
const UPSERT: &str = "INSERT INTO sessions
    (session_id, runner_id, harness, cwd, title, model, provider, state, created_at, updated_at, last_seq, closed,
     meta_json, run_tool)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
    ON CONFLICT (session_id) DO UPDATE SET runner_id = excluded.runner_id, harness = excluded.harness,
     cwd = excluded.cwd, title = excluded.title, model = excluded.model, provider = excluded.provider,
     state = excluded.state, updated_at = excluded.updated_at, closed = excluded.closed,
     meta_json = excluded.meta_json, run_tool = coalesce(excluded.run_tool, run_tool), last_seq = max(last_seq, excluded.last_seq),
     created_at = iif(created_at = 0, excluded.created_at, created_at)";
/// NULL leaves a column as it is. `branch` and `error` are emptied by an empty text, which `text` reads as none.
const PATCH: &str = "UPDATE sessions SET runner_id = coalesce(:runner_id, runner_id),
     harness = coalesce(:harness, harness), cwd = coalesce(:cwd, cwd), title = coalesce(:title, title),
     model = coalesce(:model, model), provider = coalesce(:provider, provider),
     state = iif(:keeps_failed AND state = 'failed', state, coalesce(:state, state)),
     updated_at = coalesce(:updated_at, updated_at), closed = coalesce(:closed, closed),
     meta_json = coalesce(:meta_json, meta_json), branch = coalesce(:branch, branch),
     error = coalesce(:error, error), run_tool = coalesce(:run_tool, run_tool)
    WHERE session_id = :session_id";
const FIND: &str =
    concat!("SELECT session_key, ", last_seq!(), ", updated_at FROM sessions WHERE session_id = ?1");
/// Records may arrive before the one that describes their session, and need its key.
const PLACEHOLDER: &str = "INSERT INTO sessions
    (session_id, runner_id, harness, cwd, state, created_at, updated_at) VALUES (?1, ?2, '', '', '', 0, 0)";

pub(super) fn upsert(connection: &Connection, session: &HubSession) -> SqlResult<()> {
    connection.prepare_cached(UPSERT)?.execute(params![
        session.session_id,
        session.runner_id,
        session.harness,
        session.cwd,
        session.title,
        session.model,
        session.provider,
        session.state,
        session.created_at,
        session.updated_at,
        counter("last_seq", session.last_seq)?,
        session.closed,
        session.meta_json,
        session.run_tool,
    ])?;
    Ok(())
}

pub(super) fn patch(connection: &Connection, session_id: &str, patch: &SessionPatch) -> SqlResult<()> {
    connection.prepare_cached(PATCH)?.execute(named_params! {
        ":session_id": session_id,
        ":runner_id": patch.runner_id,
        ":harness": patch.harness,
        ":cwd": patch.cwd,
        ":title": patch.title,
        ":model": patch.model,
        ":provider": patch.provider,
        ":state": patch.state,
        ":keeps_failed": patch.keeps_failed,
        ":updated_at": patch.updated_at,
        ":closed": patch.closed,
        ":meta_json": patch.meta_json,
        ":branch": patch.branch,
        ":error": patch.error,
        ":run_tool": patch.run_tool,
    })?;
    Ok(())
}

/// The number of a session and its greatest `seq`; makes a placeholder for one nobody has described yet.
pub(super) fn key(connection: &Connection, session_id: &str, runner_id: &str) -> SqlResult<SessionPosition> {
    if let Some(found) = find_key(connection, session_id)? {
        return Ok(found);
    }
    run(connection, PLACEHOLDER, [session_id, runner_id])?;
    Ok(SessionPosition { session_key: connection.last_insert_rowid(), last_seq: 0, updated_at: 0 })
}

/// Where a session's records are, and how far they go.
pub(super) struct SessionPosition {
    pub(super) session_key: i64,
    pub(super) last_seq: u64,
    /// As its row has it.
    pub(super) updated_at: i64,
}

pub(super) fn find_key(connection: &Connection, session_id: &str) -> SqlResult<Option<SessionPosition>> {
    first(connection, FIND, [session_id], |row| {
        let (session_key, last_seq) = (row.get(0)?, u64::read(row, 1)?);
        Ok(SessionPosition { session_key, last_seq, updated_at: row.get(2)? })
    })
}

pub(super) fn delete(connection: &Connection, session_id: &str) -> SqlResult<bool> {
    let Some(SessionPosition { session_key, .. }) = find_key(connection, session_id)? else {
        return Ok(false);
    };
    let base = session_base(session_key)?;
    let records = (base, base + SEQ_MAX.cast_signed());
    run(connection, "DELETE FROM records WHERE record_key BETWEEN ?1 AND ?2", records)?;
    run(connection, "DELETE FROM messages WHERE session_id = ?1", [session_id])?;
    run(connection, "DELETE FROM sessions WHERE session_key = ?1", [session_key])?;
    Ok(true)
}

pub(super) fn get(connection: &Connection, session_id: &str) -> SqlResult<Option<HubSession>> {
    let sql = format!("SELECT {COLUMNS}, {LAST_SEQ} FROM sessions WHERE session_id = ?1");
    first(connection, &sql, [session_id], from_row)
}

pub(super) fn list(connection: &Connection) -> SqlResult<Vec<HubSession>> {
    let sql =
        format!("SELECT {COLUMNS}, {LAST_SEQ} FROM sessions ORDER BY updated_at DESC, session_key DESC");
    rows(connection, &sql, [], from_row)
}

fn from_row(row: &Row<'_>) -> SqlResult<HubSession> {
    Ok(HubSession {
        session_id: row.get(0)?,
        runner_id: row.get(1)?,
        harness: row.get(2)?,
        cwd: row.get(3)?,
        title: row.get(4)?,
        model: row.get(5)?,
        provider: row.get(6)?,
        state: row.get(7)?,
        created_at: row.get(8)?,
        updated_at: row.get(9)?,
        last_seq: row.get::<_, i64>(19)?.cast_unsigned(),
        closed: row.get(10)?,
        meta_json: row.get(11)?,
        message_count: row.get::<_, i64>(12)?.cast_unsigned(),
        branch: text(row, 13)?,
        last_text: text(row, 14)?,
        totals: SessionTotals { tokens: row.get(15)?, cost_usd: row.get(16)? },
        error: text(row, 17)?,
        run_tool: text(row, 18)?,
    })
}

/// A text that may be none, which an empty one is too.
fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(row.get::<_, Option<String>>(column)?.filter(|text| !text.is_empty()))
}
