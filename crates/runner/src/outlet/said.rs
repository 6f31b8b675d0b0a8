//! What a session said in one round, and the parts of it.

use bytes::Bytes;
use qd_core::outbox::{EventFront, Outbox, RecordSpan, Response, ResponseSpan};

/// What a session said in one round.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) block: &'a Bytes,
    pub(crate) records: &'a [RecordSpan],
    pub(crate) responses: &'a [ResponseSpan],
}

impl Said<'_> {
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

    /// The block as the hub gets it: without others' responses and without records it has. `None` if nothing is left.
    pub(super) fn for_hub(&self, link: u64, from_seq: u64) -> Option<Bytes> {
        let is_foreign = |response: &&ResponseSpan| response.origin != link;
        let is_known = |record: &&RecordSpan| record.seq < from_seq;
        let responses = self.responses.iter().filter(is_foreign).map(|response| response.range.clone());
        let records = self.records.iter().filter(is_known).map(|record| record.range.clone());
        let mut out: Vec<_> = responses.chain(records).collect();
        if out.is_empty() {
            return Some(self.block.clone());
        }
        out.sort_by_key(|range| range.start);
        let mut rest = Vec::with_capacity(self.block.len());
        let mut from = 0;
        for range in out {
            rest.extend_from_slice(&self.block[from..range.start]);
            from = range.end;
        }
        rest.extend_from_slice(&self.block[from..]);
        (!rest.is_empty()).then(|| rest.into())
    }
}

/// Whether a response belongs to one place in the session's stream: it says what came before it.
pub(super) fn has_a_place(cmd: &str) -> bool {
    matches!(cmd, "session.attach" | "session.create" | "session.delete")
}

/// Answers an attach that cannot wait.
pub(super) fn refusal(session_id: &str, runner_id: &str, response: &ResponseSpan) -> Bytes {
    let error = "Too many clients attach while the runner catches up with the hub. Please retry.";
    let mut out = Outbox::default();
    let response = Response {
        origin: response.origin,
        id: &response.id,
        cmd: &response.cmd,
        result: Err(error),
        session_version: None,
        replayed: false,
        indeterminate: false,
    };
    out.response(&EventFront::new(session_id, runner_id), crate::clock::now_ms(), &response);
    out.take().bytes.into()
}
