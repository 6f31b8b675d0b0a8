//! What was done by whom.

use qd_wire::people::AuditEntry;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::requests::requests;
use crate::hub::{AUDIT_PAGE_ROWS_MAX, AuditQuery, NewRecord};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{counter, row_limit};
use crate::sqlite::statements::{StoredRow, rows, run, stored_row};

stored_row!(AuditEntry: id, ts, session_id, runner_id, seq, kind, principal, actor, tool, request_id, ok,
    duration_ms, summary);

const INSERT: &str =
    "INSERT INTO audit (ts, session_id, runner_id, seq, kind, principal, actor, tool, request_id, ok,
     duration_ms, summary)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

requests! {
    write put_audit(row: AuditEntry) -> () = insert;
    read audit(query: AuditQuery) -> Vec<AuditEntry> = list;
    write prune_audit(before: Option<i64>, rows_max: u64, at_most: usize) -> bool = prune;
}

/// The row of a record.
pub(super) fn insert_of_record(
    connection: &Connection,
    record: &NewRecord,
    row: &AuditEntry,
) -> SqlResult<()> {
    let session_id = Some(record.session_id.to_string());
    let runner_id = Some(record.runner_id.to_string());
    insert(connection, &AuditEntry { session_id, runner_id, seq: Some(record.seq), ..row.clone() })
}

fn insert(connection: &Connection, row: &AuditEntry) -> SqlResult<()> {
    // The first column is the key, which the database gives.
    run(connection, INSERT, params_from_iter(row.values()?.into_iter().skip(1))).map(drop)
}

/// Conditions that were not asked for are left out, so that those that were find their index.
fn list(connection: &Connection, query: &AuditQuery) -> SqlResult<Vec<AuditEntry>> {
    let before = query.before.map_or(i64::MAX, row_limit);
    let columns = COLUMNS.replacen("id", "audit_key", 1);
    let mut sql = format!("SELECT {columns} FROM audit WHERE audit_key < ?");
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
    rows(connection, &sql, params_from_iter(values), AuditEntry::from_row)
}

fn prune(connection: &Connection, before: Option<i64>, rows_max: u64, at_most: usize) -> SqlResult<bool> {
    const OLD: &str =
        "DELETE FROM audit WHERE audit_key IN (SELECT audit_key FROM audit WHERE ts < ?1 LIMIT ?2)";
    // Keys have few holes, so their distance is as good as a count, and costs nothing.
    const SURPLUS: &str = "DELETE FROM audit WHERE audit_key IN (SELECT audit_key FROM audit
        WHERE audit_key <= (SELECT max(audit_key) FROM audit) - ?1 ORDER BY audit_key LIMIT ?2)";
    let at_most = row_limit(at_most);
    let old = before.map_or(Ok(0), |before| run(connection, OLD, [before, at_most]))?;
    let surplus = run(connection, SURPLUS, [counter("rows_max", rows_max)?, at_most])?;
    Ok(old.max(surplus) as i64 == at_most)
}
