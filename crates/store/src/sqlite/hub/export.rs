//! A conversation from its beginning, page by page, for those who want all of it.

use bytes::Bytes;
use rusqlite::Connection;

use super::SqliteHub;
use crate::error::Result;
use crate::hub::MESSAGE_PAGE_BYTES_MAX;
use crate::sqlite::body_slab::BodySlab;
use crate::sqlite::error::SqlResult;

/// Messages of one page; it ends earlier when they are long.
const PAGE_ROWS: i64 = 200;
const OLDEST: &str = "SELECT idx, message_json FROM messages
    WHERE session_id = ?1 AND active = 1 AND idx > ?2 ORDER BY idx LIMIT ?3";

impl SqliteHub {
    pub(crate) async fn messages_after(
        &self,
        session_id: &str,
        after_idx: Option<i64>,
    ) -> Result<Vec<(i64, Bytes)>> {
        let session_id = session_id.to_owned();
        self.engine.read(move |connection| messages_after(connection, &session_id, after_idx)).await
    }
}

fn messages_after(
    connection: &Connection,
    session_id: &str,
    after_idx: Option<i64>,
) -> SqlResult<Vec<(i64, Bytes)>> {
    let mut select = connection.prepare_cached(OLDEST)?;
    let mut rows = select.query((session_id, after_idx.unwrap_or(-1), PAGE_ROWS))?;
    let mut slab = BodySlab::default();
    while let Some(row) = rows.next()? {
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if !slab.push(row.get::<_, i64>(0)?, body, MESSAGE_PAGE_BYTES_MAX) {
            break;
        }
    }
    Ok(slab.into_bodies())
}
