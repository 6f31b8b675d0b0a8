//! What was done by whom.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::SqliteHub;
use crate::error::Result;
use crate::hub::{AUDIT_PAGE_ROWS_MAX, AuditQuery, AuditRow, NewRecord};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{counter, record_seq};

const COLUMNS: &str = "audit_key, ts, session_id, runner_id, seq, kind, principal, actor, tool, request_id, ok, \
    duration_ms, summary";
const INSERT: &str =
    "INSERT INTO audit (ts, session_id, runner_id, seq, kind, principal, actor, tool, request_id, ok,
     duration_ms, summary)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

impl SqliteHub {
    pub(crate) async fn put_audit(&self, row: AuditRow) -> Result<()> {
        self.engine.write(0, move |connection| insert(connection, &row)).await
    }

    pub(crate) async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditRow>> {
        self.engine.read(move |connection| list(connection, &query)).await
    }

    pub(crate) async fn prune_audit(
        &self,
        before: Option<i64>,
        rows_max: u64,
        at_most: usize,
    ) -> Result<bool> {
        self.engine.write(0, move |connection| prune(connection, before, rows_max, at_most)).await
    }
}

/// The row of a record.
pub(super) fn insert_of_record(connection: &Connection, record: &NewRecord, row: &AuditRow) -> SqlResult<()> {
    connection.prepare_cached(INSERT)?.execute(params![
        row.ts,
        &*record.session_id,
        &*record.runner_id,
        record_seq(record.seq)?,
        row.kind,
        row.principal,
        row.actor,
        row.tool,
        row.request_id,
        row.ok,
        duration(row)?,
        row.summary,
    ])?;
    Ok(())
}

fn insert(connection: &Connection, row: &AuditRow) -> SqlResult<()> {
    connection.prepare_cached(INSERT)?.execute(params![
        row.ts,
        row.session_id,
        row.runner_id,
        row.seq.map(|seq| counter("seq", seq)).transpose()?,
        row.kind,
        row.principal,
        row.actor,
        row.tool,
        row.request_id,
        row.ok,
        duration(row)?,
        row.summary,
    ])?;
    Ok(())
}

fn duration(row: &AuditRow) -> Result<Option<i64>> {
    row.duration_ms.map(|duration| counter("duration_ms", duration)).transpose()
}

/// Conditions that were not asked for are left out, so that those that were find their index.
fn list(connection: &Connection, query: &AuditQuery) -> SqlResult<Vec<AuditRow>> {
    let before = query.before.map_or(i64::MAX, |before| i64::try_from(before).unwrap_or(i64::MAX));
    let mut sql = format!("SELECT {COLUMNS} FROM audit WHERE audit_key < ?");
    let mut values = vec![Value::from(before)];
    let conditions = [
        (&query.session_id, " AND session_id = ?"),
        (&query.principal, " AND principal = ?"),
        (&query.tool, " AND tool = ?"),
        (&query.kind, " AND kind = ?"),
        (&query.visible_to, " AND (session_id IS NOT NULL OR principal = ?)"),
    ];
    for (wanted, condition) in conditions {
        if let Some(wanted) = wanted {
            sql.push_str(condition);
            values.push(Value::from(wanted.clone()));
        }
    }
    sql.push_str(" ORDER BY audit_key DESC LIMIT ?");
    values.push(Value::from(query.limit.min(AUDIT_PAGE_ROWS_MAX) as i64));
    let mut select = connection.prepare_cached(&sql)?;
    let rows = select.query_map(params_from_iter(values), from_row)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn prune(connection: &Connection, before: Option<i64>, rows_max: u64, at_most: usize) -> SqlResult<bool> {
    let at_most = i64::try_from(at_most).unwrap_or(i64::MAX);
    let old = match before {
        Some(before) => connection
            .prepare_cached(
                "DELETE FROM audit WHERE audit_key IN (SELECT audit_key FROM audit WHERE ts < ?1 LIMIT ?2)",
            )?
            .execute([before, at_most])?,
        None => 0,
    };
    // Keys have few holes, so their distance is as good as a count, and costs nothing.
    let surplus = connection
        .prepare_cached(
            "DELETE FROM audit WHERE audit_key IN (SELECT audit_key FROM audit
             WHERE audit_key <= (SELECT max(audit_key) FROM audit) - ?1 ORDER BY audit_key LIMIT ?2)",
        )?
        .execute([counter("rows_max", rows_max)?, at_most])?;
    Ok(old.max(surplus) as i64 == at_most)
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    let unsigned =
        |index| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(index)?.map(i64::cast_unsigned));
    Ok(AuditRow {
        id: row.get::<_, i64>(0)?.cast_unsigned(),
        ts: row.get(1)?,
        session_id: row.get(2)?,
        runner_id: row.get(3)?,
        seq: unsigned(4)?,
        kind: row.get(5)?,
        principal: row.get(6)?,
        actor: row.get(7)?,
        tool: row.get(8)?,
        request_id: row.get(9)?,
        ok: row.get(10)?,
        duration_ms: unsigned(11)?,
        summary: row.get(12)?,
    })
}
