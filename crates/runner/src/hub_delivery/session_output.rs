//! The lines a session produced in one round: records, responses and live events.

use std::ops::Range;

use bytes::Bytes;
use qd_core::event_writer::{EventBatch, EventFront, EventWriter, RecordSpan, ResponseSpan};
use qd_wire::command_table::{CommandClass, class_of};

use crate::session::plain_response;

/// How a line names its event, and the name of the one that says how a session stands.
const EVENT_NAME: &[u8] = b"\"event\":\"";
const SNAPSHOT_NAME: &[u8] = b"session.resync\"";

/// The lines a session produced in one round.
#[derive(Clone, Copy)]
pub(crate) struct SessionOutput<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) block: &'a Bytes,
    pub(crate) records: &'a [RecordSpan],
    pub(crate) responses: &'a [ResponseSpan],
    /// Live events in another form than ours; for the hub only.
    pub(crate) natives: &'a [Range<usize>],
}

impl<'a> SessionOutput<'a> {
    /// What a session said in `round`; `block` holds its lines.
    pub(super) fn new(session_id: &'a str, block: &'a Bytes, round: &'a EventBatch) -> Self {
        let EventBatch { records, responses, natives, .. } = round;
        SessionOutput { session_id, block, records, responses, natives }
    }

    /// Whether the session was deleted in this round.
    pub(super) fn is_deletion(&self) -> bool {
        let mut done = self.responses.iter().filter(|response| response.took_effect);
        done.any(|response| class_of(&response.cmd) == CommandClass::Delete)
    }

    /// Whether there are lines that are neither records nor responses.
    pub(super) fn has_events(&self) -> bool {
        let records: usize = self.records.iter().map(|record| record.range.len()).sum();
        let responses: usize = self.responses.iter().map(|response| response.range.len()).sum();
        records + responses < self.block.len()
    }

    /// Bytes of the records from this one on.
    pub(super) fn record_bytes(&self, from_seq: u64) -> usize {
        let records = self.records.iter().filter(|record| record.seq >= from_seq);
        records.map(|record| record.range.len()).sum()
    }

    /// The record after which a response stands; `published` is the last record so far, those of the block included.
    pub(super) fn record_before(&self, response: &ResponseSpan, published: u64) -> u64 {
        let before = self.records.iter().rfind(|record| record.range.end <= response.range.start);
        match (before, self.records.first()) {
            (Some(record), _) => record.seq,
            (None, Some(first)) => first.seq - 1,
            (None, None) => published,
        }
    }

    /// Where the line begins that says how the session stands.
    pub(super) fn snapshot(&self) -> Option<usize> {
        let mut start = 0;
        for line in self.block.split_inclusive(|byte| *byte == b'\n') {
            // The first name in a line is the event's own; what it carries comes after it.
            let name = memchr::memmem::find(line, EVENT_NAME).map(|at| &line[at + EVENT_NAME.len()..]);
            if name.is_some_and(|name| name.starts_with(SNAPSHOT_NAME)) {
                return Some(start);
            }
            start += line.len();
        }
        None
    }

    /// The block as the hub gets it: without others' responses, without records it has, and without live events that
    /// begin before `events_from`. `None` if nothing is left.
    pub(super) fn for_hub(&self, link: u64, from_seq: u64, events_from: usize) -> Option<Bytes> {
        let is_own = |response: &ResponseSpan| response.origin == link;
        let is_new = |record: &RecordSpan| record.seq >= from_seq;
        if events_from == 0 && self.responses.iter().all(is_own) && self.records.iter().all(is_new) {
            return Some(self.block.clone());
        }
        let responses = self.responses.iter().map(|response| (response.range.clone(), is_own(response)));
        let records = self.records.iter().map(|record| (record.range.clone(), is_new(record)));
        let mut lines: Vec<(Range<usize>, bool)> = responses.chain(records).collect();
        lines.sort_by_key(|(range, _)| range.start);
        lines.push((self.block.len()..self.block.len(), false));
        let mut rest = Vec::with_capacity(self.block.len());
        let mut from = 0;
        for (range, is_wanted) in lines {
            // What lies between records and responses are live events.
            let events = from.max(events_from).min(range.start)..range.start;
            rest.extend_from_slice(&self.block[events]);
            from = range.end;
            if is_wanted {
                rest.extend_from_slice(&self.block[range]);
            }
        }
        (!rest.is_empty()).then(|| rest.into())
    }
}

/// Whether a response belongs to one place in the session's stream: it says what came before it.
pub(super) fn has_place_in_stream(cmd: &str) -> bool {
    class_of(cmd).has_place_in_stream()
}

/// Answers an attach that cannot wait.
pub(super) fn refusal(session_id: &str, runner_id: &str, response: &ResponseSpan) -> Bytes {
    let error = qd_wire::ErrorCode::Busy
        .with("Too many clients are attaching while the runner catches up with the hub. Please retry.");
    let mut out = EventWriter::default();
    let response = plain_response(response.origin, &response.id, &response.cmd, Err(&error));
    out.response(&EventFront::new(session_id, runner_id), crate::clock::now_ms(), &response);
    out.take().bytes.into()
}
