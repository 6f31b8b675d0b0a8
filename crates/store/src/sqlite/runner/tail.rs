//! What an ack does to the spool: the acked lines are no longer owed to the hub, and all but the newest are deleted.

use rusqlite::Connection;

use super::spool::{self, SpoolPosition};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, cursor_seq, seq_of, session_base};
use crate::sqlite::statements::first;

/// A session's newest lines stay after their ack, so that a local client can show the recent past without the hub:
/// this many, as long as they fit into `TAIL_BYTES_MAX`. Lines that wait for their ack always stay, and count.
pub const TAIL_LINES_MAX: u64 = 200;
/// See `TAIL_LINES_MAX`. A last line greater than this leaves no tail at all.
pub const TAIL_BYTES_MAX: u64 = 512 << 10;

const LAST: &str =
    "SELECT spool_key FROM spool WHERE spool_key > ?1 AND spool_key <= ?2 ORDER BY spool_key DESC LIMIT 1";
const SIZES: &str = "SELECT spool_key, length(line) FROM spool WHERE spool_key > ?1 AND spool_key <= ?2
    ORDER BY spool_key";
const STORE: &str =
    "UPDATE spool_sessions SET bytes = ?2, acked_seq = ?3, tail_bytes = ?4 WHERE session_key = ?1";

/// The lines up to and including `seq` wait no longer, and become the tail as far as they fit; returns the place of the
/// session then and their bytes. An ack reaches no further than the last line that is here: later ones have yet to be
/// sent.
pub(super) fn ack(
    connection: &Connection,
    spooled: SpoolPosition,
    seq: u64,
) -> SqlResult<(SpoolPosition, u64)> {
    let base = session_base(spooled.session_key)?;
    let last = last_seq(connection, base)?;
    let acked_seq = cursor_seq(seq).min(last);
    if acked_seq <= spooled.acked_seq {
        return Ok((spooled, 0));
    }
    let freed = if acked_seq == last {
        spooled.bytes
    } else {
        spool::size(connection, base + spooled.acked_seq, base + acked_seq)?
    };
    let (bytes, tail_bytes) = (spooled.bytes - freed, spooled.tail_bytes + freed);
    let acked = SpoolPosition { bytes, acked_seq, tail_bytes, ..spooled };
    let tail_bytes = trim(connection, base, last, &acked)?;
    connection.prepare_cached(STORE)?.execute((acked.session_key, bytes, acked_seq, tail_bytes))?;
    Ok((SpoolPosition { tail_bytes, ..acked }, freed.max(0).cast_unsigned()))
}

/// Deletes what is beyond the bounds; returns the bytes of the tail that is left. Each line is looked at once, when
/// it goes, so the cost of an ack does not depend on how long the tail is.
fn trim(connection: &Connection, base: i64, last: i64, acked: &SpoolPosition) -> SqlResult<i64> {
    let mut through = (last - TAIL_LINES_MAX.cast_signed()).clamp(0, acked.acked_seq);
    let mut tail_bytes = acked.tail_bytes - spool::size(connection, base, base + through)?;
    let bytes_max = TAIL_BYTES_MAX.cast_signed() - acked.bytes;
    if tail_bytes > bytes_max {
        let mut select = connection.prepare_cached(SIZES)?;
        let mut rows = select.query((base + through, base + acked.acked_seq))?;
        while tail_bytes > bytes_max
            && let Some(row) = rows.next()?
        {
            through = seq_of(row.get(0)?).cast_signed();
            tail_bytes -= row.get::<_, i64>(1)?;
        }
    }
    if through > 0 {
        spool::delete_through(connection, base, through)?;
    }
    Ok(tail_bytes)
}

/// 0 if there is no line.
fn last_seq(connection: &Connection, base: i64) -> SqlResult<i64> {
    let range = (base, base + SEQ_MAX.cast_signed());
    let last = first(connection, LAST, range, |row| Ok(row.get(0)?))?;
    Ok(last.map_or(0, |key| seq_of(key).cast_signed()))
}
