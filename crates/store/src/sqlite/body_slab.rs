//! Reading many small blobs with few allocations. Pages of records and messages are the largest things a store reads.

use bytes::Bytes;
use rusqlite::{Connection, Params};

use crate::sqlite::error::SqlResult;

/// Many bodies in one allocation, cut into `Bytes` at the end: one `malloc` a page and not one a row.
pub(crate) struct BodySlab<K> {
    bytes: Vec<u8>,
    ends: Vec<(K, usize)>,
}

impl<K> Default for BodySlab<K> {
    fn default() -> Self {
        Self { bytes: Vec::new(), ends: Vec::new() }
    }
}

impl<K> BodySlab<K> {
    /// False, and nothing taken, if there is one already and this one would go over the limit.
    pub(crate) fn push(&mut self, key: K, body: &[u8], limit_bytes: usize) -> bool {
        if !self.ends.is_empty() && self.bytes.len() + body.len() > limit_bytes {
            return false;
        }
        self.bytes.extend_from_slice(body);
        self.ends.push((key, self.bytes.len()));
        true
    }

    /// The bodies share the allocation, so whoever keeps one of them keeps all of the page in memory.
    pub(crate) fn into_bodies(self) -> Vec<(K, Bytes)> {
        let shared = Bytes::from(self.bytes);
        let mut start = 0;
        let cut = |(key, end)| {
            let body = shared.slice(start..end);
            start = end;
            (key, body)
        };
        self.ends.into_iter().map(cut).collect()
    }
}

/// The bodies of an answer whose rows are keys and bodies, until the limit; at least one if there is one.
pub(crate) fn bodies<K>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    key: impl Fn(i64) -> K,
    limit_bytes: usize,
) -> SqlResult<Vec<(K, Bytes)>> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(values)?;
    let mut slab = BodySlab::default();
    while let Some(row) = rows.next()? {
        let body = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if !slab.push(key(row.get(0)?), body, limit_bytes) {
            break;
        }
    }
    Ok(slab.into_bodies())
}
