//! The spool: lines of records that the hub has not acknowledged, and a short tail of those it has. Positions and sizes
//! are kept in memory and follow each commit, so that a commit of lines touches one table only.
//!
//! A line leaves the spool when the hub has committed it, and then stays a while in the tail for local clients. Its
//! key holds the session's number and its `seq`, so a session's lines are one range that is read and deleted as such.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use rusqlite::{Connection, Row};

use crate::RecordRewrite;
use crate::sqlite::body_slab::bodies;
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, cursor_seq, record_seq, row_limit, seq_of, session_base};
use crate::sqlite::lock::lock;
use crate::sqlite::statements::{Column, first, rows, run, value};

/// A read of the spool ends before the line that would make it greater than this.
pub const SPOOL_READ_BYTES_MAX: usize = 16 << 20;
/// What a line costs in the queue beside its bytes.
pub(super) const LINE_OVERHEAD_BYTES: usize = 64;

const FIND: &str =
    "SELECT session_key, bytes, acked_seq, tail_bytes FROM spool_sessions WHERE session_id = ?1";
const ALL: &str = "SELECT session_key, bytes, acked_seq, tail_bytes, session_id FROM spool_sessions";
const SIZE: &str =
    "SELECT coalesce(sum(length(line)), 0) FROM spool WHERE spool_key > ?1 AND spool_key <= ?2";
const INSERT: &str = "INSERT INTO spool (spool_key, line) VALUES (?1, ?2) ON CONFLICT (spool_key) DO NOTHING";
const DELETE: &str = "DELETE FROM spool WHERE spool_key > ?1 AND spool_key <= ?2";
const AFTER: &str = "SELECT spool_key, line FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key LIMIT ?3";
const NEWEST: &str = "SELECT spool_key, line FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key DESC LIMIT ?3";

/// A session's place in the spool.
#[derive(Debug, Clone, Copy)]
pub(super) struct SpoolPosition {
    pub(super) session_key: i64,
    /// Of the lines after `acked_seq`.
    pub(super) bytes: i64,
    pub(super) acked_seq: i64,
    /// Of the lines up to `acked_seq` that are still here.
    pub(super) tail_bytes: i64,
}

/// Every session's place, as of the last commit: a unit then writes its lines and nothing else.
#[derive(Default)]
pub(super) struct SpoolPositions {
    by_session: Mutex<HashMap<String, SpoolPosition>>,
}

impl SpoolPositions {
    /// Reads the places, and counts what waits: the bytes in the table are those of the last ack.
    pub(super) fn load(connection: &Connection) -> SqlResult<Self> {
        let places = rows(connection, ALL, [], |row| Ok((row.get(4)?, spooled(row)?)))?;
        let mut by_session: HashMap<String, SpoolPosition> = places.into_iter().collect();
        for place in by_session.values_mut() {
            let base = session_base(place.session_key)?;
            place.bytes = size(connection, base + place.acked_seq, base + SEQ_MAX.cast_signed())?;
        }
        Ok(Self { by_session: Mutex::new(by_session) })
    }

    /// What waits for its ack.
    pub(super) fn total_bytes(&self) -> u64 {
        lock(&self.by_session).values().map(|place| place.bytes.max(0).cast_unsigned()).sum()
    }

    pub(super) fn get(&self, session_id: &str) -> Option<SpoolPosition> {
        lock(&self.by_session).get(session_id).copied()
    }

    /// A unit with so many bytes of new lines is committed.
    pub(super) fn add(&self, session_id: &str, session_key: i64, bytes: u64) {
        let mut places = lock(&self.by_session);
        match places.get_mut(session_id) {
            Some(place) => place.bytes += bytes.cast_signed(),
            None => {
                places.insert(session_id.to_owned(), SpoolPosition::new(session_key, bytes.cast_signed()));
            }
        }
    }

    /// An ack is committed.
    pub(super) fn set(&self, session_id: &str, place: SpoolPosition) {
        if let Some(known) = lock(&self.by_session).get_mut(session_id) {
            *known = place;
        }
    }

    pub(super) fn forget(&self, session_id: &str) {
        lock(&self.by_session).remove(session_id);
    }
}

/// What a unit has added to the spool.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AddedLines {
    pub(super) bytes: u64,
    pub(super) session_key: i64,
}

impl SpoolPosition {
    fn new(session_key: i64, bytes: i64) -> Self {
        Self { session_key, bytes, acked_seq: 0, tail_bytes: 0 }
    }
}

/// Adds lines. One that was acked is not added: it may have left the tail already.
pub(super) fn put(
    connection: &Connection,
    places: &SpoolPositions,
    session_id: &str,
    lines: &[(u64, Bytes)],
) -> SqlResult<AddedLines> {
    if lines.is_empty() {
        return Ok(AddedLines::default());
    }
    // The copy in memory knows committed units only; `begin` also finds a session that an earlier unit of the same,
    // uncommitted group has made.
    let place = match places.get(session_id) {
        Some(place) => place,
        None => begin(connection, session_id)?,
    };
    let base = session_base(place.session_key)?;
    let mut insert = connection.prepare_cached(INSERT)?;
    let mut bytes = 0;
    for (seq, line) in lines {
        let seq = record_seq(*seq)?;
        if seq <= place.acked_seq {
            continue;
        }
        insert.raw_bind_parameter(1, base + seq)?;
        insert.raw_bind_parameter(2, &line[..])?;
        if insert.raw_execute()? > 0 {
            bytes += line.len() as u64;
        }
    }
    Ok(AddedLines { bytes, session_key: place.session_key })
}

/// Replaces lines that are still here. They stay as long as they were, because their bytes are counted: a line that would
/// change its length is left alone.
pub(super) fn rewrite(
    connection: &Connection,
    places: &SpoolPositions,
    session_id: &str,
    rewrites: &[(u64, RecordRewrite)],
) -> SqlResult<()> {
    if rewrites.is_empty() {
        return Ok(());
    }
    let place = match places.get(session_id) {
        Some(place) => Some(place),
        None => find(connection, session_id)?,
    };
    let Some(place) = place else { return Ok(()) };
    let base = session_base(place.session_key)?;
    for (seq, with) in rewrites {
        let key = base + record_seq(*seq)?;
        let line: Option<Vec<u8>> =
            first(connection, "SELECT line FROM spool WHERE spool_key = ?1", [key], |row| Ok(row.get(0)?))?;
        let Some(line) = line else { continue };
        if let Some(new) = with(&line).filter(|new| new.len() == line.len()) {
            run(connection, "UPDATE spool SET line = ?2 WHERE spool_key = ?1", (key, new))?;
        }
    }
    Ok(())
}

/// The place of a session that has none in memory: its first unit, or one whose first is in the same group.
fn begin(connection: &Connection, session_id: &str) -> SqlResult<SpoolPosition> {
    if let Some(place) = find(connection, session_id)? {
        return Ok(place);
    }
    run(connection, "INSERT INTO spool_sessions (session_id) VALUES (?1)", [session_id])?;
    Ok(SpoolPosition::new(connection.last_insert_rowid(), 0))
}

/// Returns the bytes of the lines that waited for their ack.
pub(super) fn delete_session(
    connection: &Connection,
    places: &SpoolPositions,
    session_id: &str,
) -> SqlResult<u64> {
    let Some(spooled) = find(connection, session_id)? else { return Ok(0) };
    let base = session_base(spooled.session_key)?;
    delete_through(connection, base, SEQ_MAX.cast_signed())?;
    run(connection, "DELETE FROM spool_sessions WHERE session_id = ?1", [session_id])?;
    Ok(places.get(session_id).map_or(0, |place| place.bytes.max(0).cast_unsigned()))
}

pub(super) fn delete_through(connection: &Connection, base: i64, seq: i64) -> SqlResult<()> {
    run(connection, DELETE, (base, base + seq)).map(drop)
}

pub(super) fn after(
    connection: &Connection,
    session_id: &str,
    seq: u64,
    limit: usize,
) -> SqlResult<Vec<(u64, Bytes)>> {
    let Some(spooled) = find(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(spooled.session_key)?;
    lines(connection, AFTER, (base + cursor_seq(seq), base + SEQ_MAX.cast_signed()), limit)
}

/// The newest lines, oldest first.
pub(super) fn newest(
    connection: &Connection,
    session_id: &str,
    limit: usize,
) -> SqlResult<Vec<(u64, Bytes)>> {
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
) -> SqlResult<Vec<(u64, Bytes)>> {
    bodies(connection, select, (after, through, row_limit(limit)), seq_of, SPOOL_READ_BYTES_MAX)
}

/// How far each session is acked.
pub(super) fn acked(connection: &Connection) -> SqlResult<Vec<(String, u64)>> {
    let sql = "SELECT session_id, acked_seq FROM spool_sessions";
    rows(connection, sql, [], |row| Ok((row.get(0)?, Column::read(row, 1)?)))
}

pub(super) fn find(connection: &Connection, session_id: &str) -> SqlResult<Option<SpoolPosition>> {
    first(connection, FIND, [session_id], spooled)
}

fn spooled(row: &Row<'_>) -> SqlResult<SpoolPosition> {
    Ok(SpoolPosition {
        session_key: row.get(0)?,
        bytes: row.get(1)?,
        acked_seq: row.get(2)?,
        tail_bytes: row.get(3)?,
    })
}

/// Bytes of the lines in a range of keys.
pub(super) fn size(connection: &Connection, after: i64, through: i64) -> SqlResult<i64> {
    value(connection, SIZE, (after, through))
}
