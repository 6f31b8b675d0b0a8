//! What the runner still has of a conversation: the tail of its records.

use bytes::Bytes;
use qd_store::{RunnerStore, StoreError};
use qd_wire::data::MessagesData;
use qd_wire::message::Message;
use serde::Deserialize;

/// Records read at once from the tail. The store bounds what it keeps after the hub's ack; this bounds the rest.
pub(super) const TAIL_ROWS_MAX: usize = 10_000;

/// Messages in the snapshot of an attach.
const SNAPSHOT_MESSAGES: usize = 200;

/// Messages go out in pages of at most this, so that an answer fits into a client's queue.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// The records the runner has of a session, in order.
pub(super) struct RecordTail(Vec<(u64, Bytes)>);

/// A record as far as messages need it.
#[derive(Deserialize)]
struct MessageRecord {
    event: String,
    message: Option<Message>,
    messages: Option<Vec<Message>>,
}

impl RecordTail {
    pub(super) async fn read(store: &RunnerStore, session_id: &str) -> Result<RecordTail, StoreError> {
        store.tail(session_id, TAIL_ROWS_MAX).await.map(RecordTail)
    }

    #[cfg(test)]
    fn of(rows: Vec<(u64, Bytes)>) -> RecordTail {
        RecordTail(rows)
    }

    /// Whether everything after `after` up to `until` is here.
    pub(super) fn reaches(&self, after: u64, until: u64) -> bool {
        after >= until || self.0.first().is_some_and(|(first, _)| *first <= after.saturating_add(1))
    }

    /// The lines after `after` up to `until`.
    pub(super) fn lines(&self, after: u64, until: u64) -> Bytes {
        let wanted = self.0.iter().filter(|(seq, _)| *seq > after && *seq <= until);
        wanted.flat_map(|(_, line)| line.iter().copied()).collect()
    }

    /// The messages among the records up to `until`; a conversation that was replaced begins anew.
    fn messages(&self, until: u64) -> Vec<Message> {
        let mut messages = Vec::new();
        for (_, line) in self.0.iter().filter(|(seq, _)| *seq <= until) {
            // Most records are something else; reading those would cost more than looking.
            if memchr::memmem::find(line, b"\"message").is_none() {
                continue;
            }
            let Ok(record) = serde_json::from_slice::<MessageRecord>(line) else { continue };
            match (record.event.as_str(), record.message, record.messages) {
                ("stream.message_end", Some(message), _) => messages.push(message),
                ("messages", _, Some(list)) => messages = list,
                _ => {}
            }
        }
        messages
    }

    /// The newest messages up to the record `until`, for a client that has nothing to go on from. What was said
    /// later comes after it.
    pub(super) fn snapshot(&self, until: u64) -> Vec<Message> {
        let mut messages = self.messages(until);
        messages.split_off(page_start(&messages, SNAPSHOT_MESSAGES))
    }

    /// A page of `limit` messages before `before`. Without anything older here there is no way further back.
    pub(super) fn page(&self, before: Option<u64>, limit: Option<u64>, total: u64) -> MessagesData {
        let mut messages = self.messages(u64::MAX);
        messages.retain(|message| before.is_none_or(|before| message.idx < before));
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let skipped = page_start(&messages, limit);
        let messages = messages.split_off(skipped);
        let before = (skipped > 0).then(|| messages.first().map(|message| message.idx)).flatten();
        MessagesData { messages, total, before }
    }
}

/// Where the newest messages begin that fit into one page; at least one if there is one.
fn page_start(messages: &[Message], limit: usize) -> usize {
    let mut bytes = 0;
    let mut start = messages.len();
    for message in messages.iter().rev().take(limit) {
        bytes += serde_json::to_vec(message).map_or(0, |json| json.len());
        if bytes > PAGE_BYTES_MAX && start < messages.len() {
            break;
        }
        start -= 1;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, body: &str) -> (u64, Bytes) {
        let front = format!("{{\"type\":\"event\",\"session_id\":\"s\",\"ts\":1,\"seq\":{seq},");
        (seq, format!("{front}{body}}}\n").into())
    }

    fn message(idx: u64) -> String {
        format!("{{\"id\":\"m{idx}\",\"idx\":{idx},\"role\":\"user\",\"parts\":[],\"created_at\":1}}")
    }

    fn tail() -> RecordTail {
        let end = |idx| format!("\"event\":\"stream.message_end\",\"message\":{}", message(idx));
        let replaced = format!("\"event\":\"messages\",\"messages\":[{},{}]", message(0), message(1));
        RecordTail::of(vec![
            record(5, &end(7)),
            record(6, "\"event\":\"agent.idle\""),
            record(7, &replaced),
            record(8, &end(2)),
        ])
    }

    #[test]
    fn pages_end_where_the_tail_does() {
        let ids = |data: &MessagesData| data.messages.iter().map(|message| message.idx).collect::<Vec<_>>();
        let newest = tail().page(None, Some(2), 3);
        assert_eq!((ids(&newest), newest.before), (vec![1, 2], Some(1)));
        let oldest = tail().page(newest.before, Some(2), 3);
        assert_eq!((ids(&oldest), oldest.before), (vec![0], None));
    }

    #[test]
    fn a_snapshot_has_nothing_that_comes_after_it() {
        let ids = |until| tail().snapshot(until).iter().map(|message| message.idx).collect::<Vec<_>>();
        assert_eq!(ids(8), [0, 1, 2]);
        assert_eq!(ids(7), [0, 1], "the message of record 8 follows as a record");
        assert_eq!(ids(6), [7]);
    }

    #[test]
    fn a_cursor_before_the_tail_is_a_gap() {
        assert!(tail().reaches(4, 8));
        assert!(!tail().reaches(3, 8));
        assert!(RecordTail::of(Vec::new()).reaches(8, 8));
        assert_eq!(tail().lines(5, 7).iter().filter(|byte| **byte == b'\n').count(), 2);
    }
}
