//! The stored half of the ledger: what came of each submission with an identity. A repeat after a restart is answered
//! from here, so rows are kept until age or size says otherwise.

use bytes::Bytes;
use rusqlite::{Connection, Row, params};

use super::types::{OutcomeLimits, OutcomeRow, OutcomeStatus};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::row_limit;
use crate::sqlite::statements::{rows, run};

/// What a row costs beside its fingerprint and response.
const ROW_OVERHEAD_BYTES: usize = 256;

const COLUMNS: &str = "principal, id, session_id, idempotency_key, fingerprint, cmd, response_json, created_at, \
    status";
const PUT: &str = "INSERT INTO outcomes
    (principal, id, session_id, idempotency_key, fingerprint, cmd, response_json, created_at, status, bytes)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
    ON CONFLICT (principal, id, session_id, idempotency_key) DO UPDATE SET fingerprint = excluded.fingerprint,
     cmd = excluded.cmd, response_json = excluded.response_json, created_at = excluded.created_at,
     status = excluded.status, bytes = excluded.bytes";

pub(super) fn put(connection: &Connection, outcomes: &[OutcomeRow]) -> SqlResult<()> {
    if outcomes.is_empty() {
        return Ok(());
    }
    let mut insert = connection.prepare_cached(PUT)?;
    for outcome in outcomes {
        insert.execute(params![
            outcome.principal,
            outcome.id,
            outcome.session_id,
            // Not NULL: two NULLs are never equal to SQLite, so the conflict that updates the row would not be found.
            outcome.idempotency_key.as_deref().unwrap_or_default(),
            &outcome.fingerprint[..],
            outcome.cmd,
            outcome.response_json.as_deref(),
            outcome.created_at,
            outcome.status.as_str(),
            row_bytes(outcome) as i64,
        ])?;
    }
    Ok(())
}

/// Used for the bound of the table and for room in the write queue; an estimate serves both.
pub(super) fn row_bytes(outcome: &OutcomeRow) -> usize {
    ROW_OVERHEAD_BYTES + outcome.fingerprint.len() + outcome.response_json.as_ref().map_or(0, Bytes::len)
}

/// Oldest first, so that a ledger that fills up while it is restored keeps the newest.
pub(super) fn load(connection: &Connection) -> SqlResult<Vec<OutcomeRow>> {
    let sql = format!("SELECT {COLUMNS} FROM outcomes ORDER BY created_at, outcome_key");
    rows(connection, &sql, [], from_row)
}

/// Only for the start, when nothing runs: whatever is still in flight then was cut off.
pub(super) fn mark_in_flight_indeterminate(connection: &Connection) -> SqlResult<u64> {
    let sql = "UPDATE outcomes SET status = 'indeterminate' WHERE status = 'in_flight'";
    Ok(run(connection, sql, [])? as u64)
}

/// Work in flight is never pruned, however old: without its row a crash would make it look as if it had not begun, and
/// a repeat would run it twice.
pub(super) fn prune(connection: &Connection, limits: OutcomeLimits) -> SqlResult<u64> {
    const EXPIRED: &str = "DELETE FROM outcomes WHERE created_at < ?1 AND status <> 'in_flight'";
    const EXCESS: &str =
        "DELETE FROM outcomes WHERE (created_at, outcome_key) <= (?1, ?2) AND status <> 'in_flight'";
    let expired = run(connection, EXPIRED, [limits.created_before])?;
    let last = last_to_go(connection, limits)?;
    let excess = last.map_or(Ok(0), |last| run(connection, EXCESS, last))?;
    Ok((expired + excess) as u64)
}

/// The newest row that must go for the rest to fit. All columns come from one index.
fn last_to_go(connection: &Connection, limits: OutcomeLimits) -> SqlResult<Option<(i64, i64)>> {
    let (mut rows, mut bytes): (i64, i64) = connection
        .prepare_cached("SELECT count(*), coalesce(sum(bytes), 0) FROM outcomes")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (rows_max, bytes_max) = (row_limit(limits.rows_max), row_limit(limits.bytes_max));
    let mut select = connection.prepare_cached(
        "SELECT created_at, outcome_key, bytes FROM outcomes WHERE status <> 'in_flight'
         ORDER BY created_at, outcome_key",
    )?;
    let mut oldest = select.query([])?;
    let mut last = None;
    while rows > rows_max || bytes > bytes_max {
        let Some(row) = oldest.next()? else { break };
        last = Some((row.get(0)?, row.get(1)?));
        rows -= 1;
        bytes -= row.get::<_, i64>(2)?;
    }
    Ok(last)
}

fn from_row(row: &Row<'_>) -> SqlResult<OutcomeRow> {
    let key: String = row.get(3)?;
    Ok(OutcomeRow {
        principal: row.get(0)?,
        id: row.get(1)?,
        session_id: row.get(2)?,
        idempotency_key: (!key.is_empty()).then_some(key),
        fingerprint: row.get::<_, Vec<u8>>(4)?.into(),
        cmd: row.get(5)?,
        response_json: row.get::<_, Option<Vec<u8>>>(6)?.map(Bytes::from),
        created_at: row.get(7)?,
        status: OutcomeStatus::parse(row.get_ref(8)?.as_str().map_err(rusqlite::Error::from)?),
    })
}
