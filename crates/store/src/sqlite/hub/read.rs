//! Pages of a session: its records, also by what they are (of a run that has written gigabytes, only what is asked for),
//! and its messages.

use bytes::Bytes;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::requests::requests;
use super::sessions;
use crate::hub::{MESSAGE_PAGE_BYTES_MAX, MESSAGE_PAGE_ROWS_MAX, MessagePage};
use crate::sqlite::body_slab::{BodySlab, bodies};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, cursor_seq, row_limit, seq_of, session_base};
use crate::sqlite::statements::value;

const RECORDS: &str = "SELECT record_key, body FROM records WHERE record_key > ?1 AND record_key <= ?2
    ORDER BY record_key LIMIT ?3";
const NEWEST: &str = "SELECT idx, message_json FROM messages
    WHERE session_id = ?1 AND active = 1 AND idx < ?2 ORDER BY idx DESC LIMIT ?3";
const COUNT: &str = "SELECT count(*) FROM messages WHERE session_id = ?1 AND active = 1";
/// Messages of one page of an export; it ends earlier when they are long.
const EXPORT_PAGE_ROWS: i64 = 200;
const OLDEST: &str = "SELECT idx, message_json FROM messages
    WHERE session_id = ?1 AND active = 1 AND idx > ?2 ORDER BY idx LIMIT ?3";

/// Records with their numbers.
type Records = Vec<(u64, Bytes)>;

requests! {
    read records_after(session_id: &str, after_seq: u64, limit_rows: usize, limit_bytes: usize) -> Records =
        records_after;
    read records_of(
        session_id: &str, events: &'static [&'static str], after_seq: u64, limit_rows: usize, limit_bytes: usize
    ) -> Records = records_of;
    read newest_records_of(
        session_id: &str, events: &'static [&'static str], limit_rows: usize, limit_bytes: usize
    ) -> Records = newest_records_of;
    read messages_page(session_id: &str, before_idx: Option<i64>, limit: usize) -> MessagePage = messages_page;
    read messages_after(session_id: &str, after_idx: Option<i64>) -> Vec<(i64, Bytes)> = messages_after;
}

fn records_after(
    connection: &Connection,
    session_id: &str,
    after_seq: u64,
    limit_rows: usize,
    limit_bytes: usize,
) -> SqlResult<Records> {
    let Some(place) = sessions::find_key(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(place.session_key)?;
    let values = (base + cursor_seq(after_seq), base + SEQ_MAX.cast_signed(), row_limit(limit_rows));
    bodies(connection, RECORDS, values, seq_of, limit_bytes)
}

fn records_of(
    connection: &Connection,
    session_id: &str,
    events: &[&str],
    after_seq: u64,
    limit_rows: usize,
    limit_bytes: usize,
) -> SqlResult<Records> {
    let query = EventQuery { events, order: "ASC", after_seq, limit_rows, limit_bytes };
    query.select(connection, session_id)
}

fn newest_records_of(
    connection: &Connection,
    session_id: &str,
    events: &[&str],
    limit_rows: usize,
    limit_bytes: usize,
) -> SqlResult<Records> {
    let query = EventQuery { events, order: "DESC", after_seq: 0, limit_rows, limit_bytes };
    // Read from the end, so that the limits cut the oldest, but given in order like every other page.
    let mut found = query.select(connection, session_id)?;
    found.reverse();
    Ok(found)
}

struct EventQuery<'request> {
    events: &'request [&'request str],
    order: &'static str,
    after_seq: u64,
    limit_rows: usize,
    limit_bytes: usize,
}

impl EventQuery<'_> {
    fn select(&self, connection: &Connection, session_id: &str) -> SqlResult<Records> {
        let Some(place) = sessions::find_key(connection, session_id)? else { return Ok(Vec::new()) };
        let base = session_base(place.session_key)?;
        // The names are constants of the hub, so there are only a few different statements to prepare and keep.
        let marks = vec!["?"; self.events.len()].join(", ");
        let sql = format!(
            "SELECT record_key, body FROM records WHERE record_key > ? AND record_key <= ? AND event IN ({marks})
             ORDER BY record_key {} LIMIT ?",
            self.order
        );
        let mut values: Vec<Value> =
            vec![(base + cursor_seq(self.after_seq)).into(), (base + SEQ_MAX.cast_signed()).into()];
        values.extend(self.events.iter().map(|event| Value::from((*event).to_owned())));
        values.push(row_limit(self.limit_rows).into());
        bodies(connection, &sql, params_from_iter(values), seq_of, self.limit_bytes)
    }
}

fn messages_page(
    connection: &Connection,
    session_id: &str,
    before_idx: Option<i64>,
    limit: usize,
) -> SqlResult<MessagePage> {
    let total: i64 = value(connection, COUNT, [session_id])?;
    let limit = limit.min(MESSAGE_PAGE_ROWS_MAX) as i64;
    let mut select = connection.prepare_cached(NEWEST)?;
    let mut rows = select.query((session_id, before_idx.unwrap_or(i64::MAX), limit))?;
    let mut slab = BodySlab::default();
    let mut bytes = 0;
    // The limit is checked before a row is read, so the page always has one message, however long that is.
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

/// A conversation from its beginning, for those who want all of it.
fn messages_after(
    connection: &Connection,
    session_id: &str,
    after_idx: Option<i64>,
) -> SqlResult<Vec<(i64, Bytes)>> {
    let values = (session_id, after_idx.unwrap_or(-1), EXPORT_PAGE_ROWS);
    bodies(connection, OLDEST, values, |idx| idx, MESSAGE_PAGE_BYTES_MAX)
}
