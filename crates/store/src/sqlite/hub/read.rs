use bytes::Bytes;
use rusqlite::Connection;

use super::sessions;
use crate::hub::{MESSAGE_PAGE_BYTES_MAX, MESSAGE_PAGE_ROWS_MAX, MessagePage};
use crate::sqlite::body_slab::BodySlab;
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, cursor_seq, seq_of, session_base};

const RECORDS: &str = "SELECT record_key, body FROM records WHERE record_key > ?1 AND record_key <= ?2
    ORDER BY record_key LIMIT ?3";
const NEWEST: &str = "SELECT idx, message_json FROM messages
    WHERE session_id = ?1 AND active = 1 AND idx < ?2 ORDER BY idx DESC LIMIT ?3";
const COUNT: &str = "SELECT count(*) FROM messages WHERE session_id = ?1 AND active = 1";

pub(super) fn records_after(
    connection: &Connection,
    session_id: &str,
    after_seq: u64,
    limit_rows: usize,
    limit_bytes: usize,
) -> SqlResult<Vec<(u64, Bytes)>> {
    let Some(place) = sessions::find_key(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(place.session_key)?;
    let limit = i64::try_from(limit_rows).unwrap_or(i64::MAX);
    let mut select = connection.prepare_cached(RECORDS)?;
    let mut rows = select.query((base + cursor_seq(after_seq), base + SEQ_MAX.cast_signed(), limit))?;
    let mut slab = BodySlab::default();
    while let Some(row) = rows.next()? {
        if !slab.push(
            seq_of(row.get(0)?),
            row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?,
            limit_bytes,
        ) {
            break;
        }
    }
    Ok(slab.into_bodies())
}

pub(super) fn messages_page(
    connection: &Connection,
    session_id: &str,
    before_idx: Option<i64>,
    limit: usize,
) -> SqlResult<MessagePage> {
    let total: i64 = connection.prepare_cached(COUNT)?.query_row([session_id], |row| row.get(0))?;
    let limit = limit.min(MESSAGE_PAGE_ROWS_MAX) as i64;
    let mut select = connection.prepare_cached(NEWEST)?;
    let mut rows = select.query((session_id, before_idx.unwrap_or(i64::MAX), limit))?;
    let mut slab = BodySlab::default();
    let mut bytes = 0;
    while bytes < MESSAGE_PAGE_BYTES_MAX
        && let Some(row) = rows.next()?
    {
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        bytes += body.len();
        slab.push(row.get::<_, i64>(0)?, body, usize::MAX);
    }
    let mut page = slab.into_bodies();
    page.reverse();
    Ok(MessagePage {
        first_idx: page.first().map(|(idx, _)| *idx),
        messages: page.into_iter().map(|(_, body)| body).collect(),
        total: total.cast_unsigned(),
    })
}
