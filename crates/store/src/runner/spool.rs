use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row};

use crate::error::Result;
use crate::key::{SEQ_MAX, cursor_seq, record_seq, seq_of, session_base};
use crate::slab::Slab;

/// A read of the spool ends before the line that would make it greater than this.
pub const SPOOL_READ_BYTES_MAX: usize = 16 << 20;
/// What a line costs in the queue beside its bytes.
pub(super) const LINE_OVERHEAD_BYTES: usize = 64;

const FIND: &str =
    "SELECT session_key, bytes, acked_seq, tail_bytes FROM spool_sessions WHERE session_id = ?1";
const INSERT: &str = "INSERT INTO spool (spool_key, line) VALUES (?1, ?2) ON CONFLICT (spool_key) DO NOTHING";
const ADD_BYTES: &str = "UPDATE spool_sessions SET bytes = bytes + ?2 WHERE session_key = ?1";
const DELETE: &str = "DELETE FROM spool WHERE spool_key > ?1 AND spool_key <= ?2";
const AFTER: &str = "SELECT spool_key, line FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key LIMIT ?3";
const NEWEST: &str = "SELECT spool_key, line FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key DESC LIMIT ?3";

/// A session's place in the spool.
pub(super) struct Spooled {
    pub(super) session_key: i64,
    /// Of the lines after `acked_seq`.
    pub(super) bytes: i64,
    pub(super) acked_seq: i64,
    /// Of the lines up to `acked_seq` that are still here.
    pub(super) tail_bytes: i64,
}

/// Returns the bytes of the lines that are new. A line that was acked is not: it may have left the tail already.
pub(super) fn put(connection: &Connection, session_id: &str, lines: &[(u64, Bytes)]) -> Result<u64> {
    if lines.is_empty() {
        return Ok(0);
    }
    let (session_key, acked_seq) = match find(connection, session_id)? {
        Some(spooled) => (spooled.session_key, spooled.acked_seq),
        None => {
            connection
                .prepare_cached("INSERT INTO spool_sessions (session_id) VALUES (?1)")?
                .execute([session_id])?;
            (connection.last_insert_rowid(), 0)
        }
    };
    let base = session_base(session_key)?;
    let mut insert = connection.prepare_cached(INSERT)?;
    let mut added = 0;
    for (seq, line) in lines {
        let seq = record_seq(*seq)?;
        if seq <= acked_seq {
            continue;
        }
        insert.raw_bind_parameter(1, base + seq)?;
        insert.raw_bind_parameter(2, &line[..])?;
        if insert.raw_execute()? > 0 {
            added += line.len() as u64;
        }
    }
    connection.prepare_cached(ADD_BYTES)?.execute((session_key, added.cast_signed()))?;
    Ok(added)
}

/// Returns the bytes of the lines that waited for their ack.
pub(super) fn delete_session(connection: &Connection, session_id: &str) -> Result<u64> {
    let Some(spooled) = find(connection, session_id)? else { return Ok(0) };
    let base = session_base(spooled.session_key)?;
    delete_through(connection, base, SEQ_MAX.cast_signed())?;
    connection.prepare_cached("DELETE FROM spool_sessions WHERE session_id = ?1")?.execute([session_id])?;
    Ok(spooled.bytes.cast_unsigned())
}

pub(super) fn delete_through(connection: &Connection, base: i64, seq: i64) -> Result<()> {
    connection.prepare_cached(DELETE)?.execute((base, base + seq))?;
    Ok(())
}

pub(super) fn after(
    connection: &Connection,
    session_id: &str,
    seq: u64,
    limit: usize,
) -> Result<Vec<(u64, Bytes)>> {
    let Some(spooled) = find(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(spooled.session_key)?;
    lines(connection, AFTER, (base + cursor_seq(seq), base + SEQ_MAX.cast_signed()), limit)
}

/// The newest lines, oldest first.
pub(super) fn newest(connection: &Connection, session_id: &str, limit: usize) -> Result<Vec<(u64, Bytes)>> {
    let Some(spooled) = find(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(spooled.session_key)?;
    let mut newest = lines(connection, NEWEST, (base, base + SEQ_MAX.cast_signed()), limit)?;
    newest.reverse();
    Ok(newest)
}

fn lines(
    connection: &Connection,
    select: &str,
    (after, through): (i64, i64),
    limit: usize,
) -> Result<Vec<(u64, Bytes)>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(select)?;
    let mut rows = select.query((after, through, limit))?;
    let mut slab = Slab::default();
    while let Some(row) = rows.next()? {
        let line = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if !slab.push(seq_of(row.get(0)?), line, SPOOL_READ_BYTES_MAX) {
            break;
        }
    }
    Ok(slab.into_bodies())
}

/// How far each session is acked.
pub(super) fn acked(connection: &Connection) -> Result<Vec<(String, u64)>> {
    let mut select = connection.prepare_cached("SELECT session_id, acked_seq FROM spool_sessions")?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned())))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What waits for its ack. The sum over sessions, not lines: it stays cheap however long the spool is.
pub(super) fn total_bytes(connection: &Connection) -> Result<u64> {
    let total: i64 =
        connection.query_row("SELECT coalesce(sum(bytes), 0) FROM spool_sessions", [], |row| row.get(0))?;
    Ok(total.max(0).cast_unsigned())
}

pub(super) fn find(connection: &Connection, session_id: &str) -> Result<Option<Spooled>> {
    let from_row = |row: &Row<'_>| {
        Ok(Spooled {
            session_key: row.get(0)?,
            bytes: row.get(1)?,
            acked_seq: row.get(2)?,
            tail_bytes: row.get(3)?,
        })
    };
    Ok(connection.prepare_cached(FIND)?.query_row([session_id], from_row).optional()?)
}
