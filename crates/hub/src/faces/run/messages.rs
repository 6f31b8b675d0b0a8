//! A run's past, page by page: backwards by the document's `before_id` (or `before_seq`), forwards by `since_seq`.
//!
//! One record can show several messages or none, so a page is filled by reading on until it is full, within bounds of
//! its own on what is read.

use axum::response::{IntoResponse, Json, Response};
use qd_core::record::Record;
use qd_core::view::run::history::{HistoryMessage, messages, seq_before};
use qd_store::StoreError;
use serde::Deserialize;

use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

/// Messages of a page: without a limit, and at most.
const LIMIT_DEFAULT: usize = 200;
const LIMIT_MAX: usize = 500;
/// Records read in one go when going backwards.
const WINDOW: u64 = 64;
const READ_BYTES_MAX: usize = 1 << 20;
/// A page that has so much text is complete.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Records looked at for one page; of most there is something to show.
const SCANNED_MAX: u64 = 100_000;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagesQuery {
    before_id: Option<u64>,
    before_seq: Option<u64>,
    since_seq: Option<u64>,
    limit: Option<usize>,
    include_output: Option<bool>,
}

/// Messages, oldest first, and where to go on.
pub(super) struct MessagesPage {
    messages: Vec<HistoryMessage>,
    /// The `before_seq` or `since_seq` of the next page; none where there is no more.
    next_seq: Option<u64>,
}

impl MessagesPage {
    /// The list is the document's; how to go on is said beside it.
    pub(super) fn into_response(self) -> Response {
        let next = self.next_seq.map_or(String::new(), |seq| seq.to_string());
        ([("x-next-seq", next)], Json(self.messages)).into_response()
    }
}

pub(super) async fn page(
    hub: &Hub,
    entry: &SessionEntry,
    query: &MessagesQuery,
) -> Result<MessagesPage, StoreError> {
    let reading = MessagesReader {
        hub,
        entry,
        limit: query.limit.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX),
        include_output: query.include_output.unwrap_or(true),
    };
    match query.since_seq {
        Some(since_seq) => reading.forwards(since_seq, query.before_seq).await,
        None => {
            let by_id = query.before_id.map(seq_before);
            let before = query.before_seq.or(by_id).unwrap_or(u64::MAX);
            let mut page = reading.backwards(before).await?;
            if let Some(before_id) = query.before_id {
                // A record can have several messages, and the id may lie between them.
                page.messages.retain(|message| message.id < before_id);
            }
            Ok(page)
        }
    }
}

struct MessagesReader<'a> {
    hub: &'a Hub,
    entry: &'a SessionEntry,
    limit: usize,
    include_output: bool,
}

/// Messages of one record, and the record's number.
type RecordMessages = (u64, Vec<HistoryMessage>, usize);

impl MessagesReader<'_> {
    async fn forwards(&self, since_seq: u64, before: Option<u64>) -> Result<MessagesPage, StoreError> {
        let end = self.entry.committed_seq().min(before.map_or(u64::MAX, |before| before.saturating_sub(1)));
        let (mut found, mut bytes, mut seq) = (Vec::new(), 0, since_seq);
        'pages: while seq < end && seq - since_seq < SCANNED_MAX {
            let shown = self.records(seq, end).await?;
            if shown.is_empty() {
                return Ok(MessagesPage { messages: found, next_seq: None });
            }
            for (number, messages, size) in shown {
                // A page ends between records, because a cursor names a record. One record may therefore exceed the
                // limit alone.
                if !found.is_empty() && found.len() + messages.len() > self.limit {
                    break 'pages;
                }
                found.extend(messages);
                (seq, bytes) = (number, bytes + size);
                if found.len() >= self.limit || bytes >= PAGE_BYTES_MAX {
                    break 'pages;
                }
            }
        }
        Ok(MessagesPage { messages: found, next_seq: (seq < end).then_some(seq) })
    }

    async fn backwards(&self, before: u64) -> Result<MessagesPage, StoreError> {
        let mut before = before.min(self.entry.committed_seq() + 1);
        let first = before;
        let (mut pages, mut count, mut bytes) = (Vec::new(), 0, 0);
        'pages: while before > 1 && first - before < SCANNED_MAX {
            // The store reads forwards only, so a small window is read and turned round.
            let after = before.saturating_sub(WINDOW + 1);
            let mut window = Vec::new();
            let mut seq = after;
            while seq + 1 < before {
                let shown = self.records(seq, before - 1).await?;
                let Some((last, ..)) = shown.last() else { break };
                seq = *last;
                window.extend(shown);
            }
            for (number, messages, size) in window.into_iter().rev() {
                if count > 0 && count + messages.len() > self.limit {
                    break 'pages;
                }
                (count, bytes, before) = (count + messages.len(), bytes + size, number);
                pages.push(messages);
                if count >= self.limit || bytes >= PAGE_BYTES_MAX {
                    break 'pages;
                }
            }
            // Also past a window with nothing to show, or the loop would read it again.
            before = before.min(after + 1);
        }
        let messages = pages.into_iter().rev().flatten().collect();
        Ok(MessagesPage { messages, next_seq: (before > 1).then_some(before) })
    }

    /// What the next records up to `until` show.
    async fn records(&self, after: u64, until: u64) -> Result<Vec<RecordMessages>, StoreError> {
        let rows = usize::try_from(until - after).unwrap_or(usize::MAX).min(LIMIT_MAX);
        let rows = self.hub.store.records_after(&self.entry.id, after, rows, READ_BYTES_MAX).await?;
        let shown = rows.into_iter().map(|(seq, body)| {
            let record = std::str::from_utf8(&body).ok().and_then(Record::parse);
            let shown = record.map(|record| messages(self.entry.kind(), &record, self.include_output));
            let shown = shown.unwrap_or_default();
            let size = if shown.is_empty() { 0 } else { body.len() };
            (seq, shown, size)
        });
        Ok(shown.collect())
    }
}
