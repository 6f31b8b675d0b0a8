//! Pages of the log for an app that is behind in a run: one at a time, and only while the app takes what it gets.

use bytes::Bytes;
use qd_core::record::Record;
use qd_store::StoreError;

use super::RunFrames;
use super::feed::MissingEvents;
use crate::hub::Hub;

/// One page of the log.
const PAGE_ROWS_MAX: usize = 1000;
const PAGE_BYTES_MAX: usize = 256 << 10;

/// A page in the document's words, and how far it goes.
pub(super) struct LogPage {
    pub(super) frames: Bytes,
    pub(super) next: u64,
    /// There is no more in the log.
    pub(super) is_end: bool,
}

/// Reads what comes next.
pub(super) async fn page(hub: &Hub, missing: &MissingEvents) -> Result<LogPage, StoreError> {
    let MissingEvents { entry, after, filter, .. } = missing;
    if entry.is_over() {
        // It was deleted, and who has its name now is another.
        return Ok(LogPage { frames: Bytes::new(), next: *after, is_end: true });
    }
    let rows = hub.store.records_after(&entry.id, *after, PAGE_ROWS_MAX, PAGE_BYTES_MAX).await?;
    let mut events = RunFrames::with_capacity(rows.iter().map(|(_, body)| body.len()).sum());
    for (_, body) in &rows {
        if let Some(record) = std::str::from_utf8(body).ok().and_then(Record::parse) {
            events.push(entry.kind(), &record);
        }
    }
    let frames = events.into_frames(|class| filter.wants(&entry.id, class));
    let next = rows.last().map_or(*after, |(seq, _)| *seq);
    Ok(LogPage { frames, next, is_end: rows.is_empty() })
}
