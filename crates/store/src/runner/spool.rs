use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension};

use crate::error::Result;
use crate::key::{SEQ_MAX, cursor_seq, record_seq, seq_of, session_base};
use crate::slab::Slab;

/// A read of the spool ends before the line that would make it greater than this.
pub const SPOOL_READ_BYTES_MAX: usize = 16 << 20;
/// What a line costs in the queue beside its bytes.
pub(super) const LINE_OVERHEAD_BYTES: usize = 64;

const INSERT: &str = "INSERT INTO spool (spool_key, line) VALUES (?1, ?2) ON CONFLICT (spool_key) DO NOTHING";
const ADD_BYTES: &str = "UPDATE spool_sessions SET bytes = bytes + ?2 WHERE session_key = ?1";
const SIZE: &str =
    "SELECT coalesce(sum(length(line)), 0) FROM spool WHERE spool_key > ?1 AND spool_key <= ?2";
const DELETE: &str = "DELETE FROM spool WHERE spool_key > ?1 AND spool_key <= ?2";
const AFTER: &str = "SELECT spool_key, line FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key LIMIT ?3";

/// Returns the bytes of the lines that are new.
pub(super) fn put(connection: &Connection, session_id: &str, lines: &[(u64, Bytes)]) -> Result<u64> {
    if lines.is_empty() {
        return Ok(0);
    }
    let session_key = match find_key(connection, session_id)? {
        Some(session_key) => session_key,
        None => {
            connection
                .prepare_cached("INSERT INTO spool_sessions (session_id) VALUES (?1)")?
                .execute([session_id])?;
            connection.last_insert_rowid()
        }
    };
    let base = session_base(session_key)?;
    let mut insert = connection.prepare_cached(INSERT)?;
    let mut added = 0;
    for (seq, line) in lines {
        insert.raw_bind_parameter(1, base + record_seq(*seq)?)?;
        insert.raw_bind_parameter(2, &line[..])?;
        if insert.raw_execute()? > 0 {
            added += line.len() as u64;
        }
    }
    connection.prepare_cached(ADD_BYTES)?.execute((session_key, added.cast_signed()))?;
    Ok(added)
}

/// Deletes up to and including `seq`; returns the bytes freed.
pub(super) fn delete_through(connection: &Connection, session_id: &str, seq: u64) -> Result<u64> {
    let Some(session_key) = find_key(connection, session_id)? else { return Ok(0) };
    let base = session_base(session_key)?;
    let range = (base, base + cursor_seq(seq));
    let freed: i64 = connection.prepare_cached(SIZE)?.query_row(range, |row| row.get(0))?;
    connection.prepare_cached(DELETE)?.execute(range)?;
    connection.prepare_cached(ADD_BYTES)?.execute((session_key, -freed))?;
    Ok(freed.cast_unsigned())
}

pub(super) fn delete_session(connection: &Connection, session_id: &str) -> Result<u64> {
    let freed = delete_through(connection, session_id, SEQ_MAX)?;
    connection.prepare_cached("DELETE FROM spool_sessions WHERE session_id = ?1")?.execute([session_id])?;
    Ok(freed)
}

pub(super) fn after(
    connection: &Connection,
    session_id: &str,
    seq: u64,
    limit: usize,
) -> Result<Vec<(u64, Bytes)>> {
    let Some(session_key) = find_key(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(session_key)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(AFTER)?;
    let mut rows = select.query((base + cursor_seq(seq), base + SEQ_MAX.cast_signed(), limit))?;
    let mut slab = Slab::default();
    while let Some(row) = rows.next()? {
        let line = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if !slab.push(seq_of(row.get(0)?), line, SPOOL_READ_BYTES_MAX) {
            break;
        }
    }
    Ok(slab.into_bodies())
}

/// The sum over sessions, not lines: it stays cheap however long the spool is.
pub(super) fn total_bytes(connection: &Connection) -> Result<u64> {
    let total: i64 =
        connection.query_row("SELECT coalesce(sum(bytes), 0) FROM spool_sessions", [], |row| row.get(0))?;
    Ok(total.max(0).cast_unsigned())
}

fn find_key(connection: &Connection, session_id: &str) -> Result<Option<i64>> {
    let mut select =
        connection.prepare_cached("SELECT session_key FROM spool_sessions WHERE session_id = ?1")?;
    Ok(select.query_row([session_id], |row| row.get(0)).optional()?)
}
