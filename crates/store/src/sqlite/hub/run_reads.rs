//! Reads of a session's records by what they are: of a run that has written gigabytes, only what is asked for.

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::{SqliteHub, sessions};
use crate::error::Result;
use crate::sqlite::body_slab::BodySlab;
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{SEQ_MAX, cursor_seq, seq_of, session_base};

impl SqliteHub {
    pub(crate) async fn records_of(
        &self,
        session_id: &str,
        events: &'static [&'static str],
        after_seq: u64,
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>> {
        let session_id = session_id.to_owned();
        let read = move |connection: &Connection| {
            let query = RunQuery { events, order: "ASC", after_seq, limit_rows, limit_bytes };
            select(connection, &session_id, &query)
        };
        self.engine.read(read).await
    }

    pub(crate) async fn newest_records_of(
        &self,
        session_id: &str,
        events: &'static [&'static str],
        limit_rows: usize,
        limit_bytes: usize,
    ) -> Result<Vec<(u64, Bytes)>> {
        let session_id = session_id.to_owned();
        let read = move |connection: &Connection| {
            let query = RunQuery { events, order: "DESC", after_seq: 0, limit_rows, limit_bytes };
            let mut found = select(connection, &session_id, &query)?;
            found.reverse();
            Ok(found)
        };
        self.engine.read(read).await
    }
}

struct RunQuery {
    events: &'static [&'static str],
    order: &'static str,
    after_seq: u64,
    limit_rows: usize,
    limit_bytes: usize,
}

fn select(connection: &Connection, session_id: &str, query: &RunQuery) -> SqlResult<Vec<(u64, Bytes)>> {
    let Some(place) = sessions::find_key(connection, session_id)? else { return Ok(Vec::new()) };
    let base = session_base(place.session_key)?;
    let marks = vec!["?"; query.events.len()].join(", ");
    let sql = format!(
        "SELECT record_key, body FROM records WHERE record_key > ? AND record_key <= ? AND event IN ({marks})
         ORDER BY record_key {} LIMIT ?",
        query.order
    );
    let mut parameters: Vec<Value> =
        vec![(base + cursor_seq(query.after_seq)).into(), (base + SEQ_MAX.cast_signed()).into()];
    parameters.extend(query.events.iter().map(|event| Value::from((*event).to_owned())));
    parameters.push(i64::try_from(query.limit_rows).unwrap_or(i64::MAX).into());
    let mut select = connection.prepare_cached(&sql)?;
    let mut rows = select.query(rusqlite::params_from_iter(parameters))?;
    let mut slab = BodySlab::default();
    while let Some(row) = rows.next()? {
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if !slab.push(seq_of(row.get(0)?), body, query.limit_bytes) {
            break;
        }
    }
    Ok(slab.into_bodies())
}
