//! A session as a run. What the hub has seen of it from its first record on is known; of others the log is read.
//!
//! A run can have written gigabytes. Of one that began before this hub was started only its first and last records
//! and its questions are read, which is all that a list shows.

use std::sync::Arc;

use bytes::Bytes;
use qd_core::projection::{EventMoment, Projection, RunSummary, read};
use qd_core::record::Record;
use qd_store::StoreError;
use qd_wire::InputRequest;
use qd_wire::data::SessionStatus;

use crate::hub::Hub;
use crate::sessions::session::SessionEntry;

/// Records at the beginning and at the end of a run that are looked at when the hub has not seen it run: it says
/// what it is in its first ones, and what it waits for or how it ended in its last ones.
const FIRST_RECORDS: usize = 8;
const LAST_RECORDS: u64 = 256;
const READ_BYTES_MAX: usize = 1 << 20;
/// What says whether somebody waits for an answer. A question may be much older than the last records.
const QUESTIONS: &[&str] =
    &["agent.input_needed", "agent.input_resolved", "run.started", "run.input", "run.exited", "tool.result"];
const QUESTION_ROWS: usize = 1000;

/// A session as a run, and the questions that nobody has answered, the oldest first.
pub(super) type RunWithQuestions = (RunSummary, Vec<Arc<InputRequest>>);

/// What is known of a run, from the log where it has to be.
pub(super) async fn run_of(hub: &Hub, entry: &SessionEntry) -> Result<RunWithQuestions, StoreError> {
    if let Some(run) = entry.projection().run() {
        return Ok(run);
    }
    let (past, seq) = read_past(hub, entry).await?;
    let run = past.run().unwrap_or_default();
    let mut session = entry.projection();
    // What has come meanwhile is not in it: then it is read again the next time. A record is published before it is
    // applied, so with the lock held nothing comes between.
    if seq == entry.committed_seq() {
        session.learn_past(past);
    }
    Ok(run)
}

async fn read_past(hub: &Hub, entry: &SessionEntry) -> Result<(Projection, u64), StoreError> {
    let (ends, until) = read_ends(hub, entry).await?;
    if entry.status() == SessionStatus::Closed {
        return Ok((ends, until));
    }
    let questions = read_questions(hub, entry, until).await?;
    Ok((ends.with_questions_of(questions), until))
}

fn fold(session: &mut Projection, body: &Bytes) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let Some(record) = Record::parse(text) else { return };
    let moment = EventMoment { seq: Some(record.seq), ts: record.ts, now: record.ts, is_past: false };
    for change in read(&record.event, Some(record.seq), text) {
        session.apply(&change, moment);
    }
}

/// The questions that nobody has answered, up to a record and however old.
async fn read_questions(hub: &Hub, entry: &SessionEntry, until: u64) -> Result<Projection, StoreError> {
    let mut session = Projection::default();
    let mut after = 0;
    loop {
        let store = &hub.store;
        let rows = store.records_of(&entry.id, QUESTIONS, after, QUESTION_ROWS, READ_BYTES_MAX).await?;
        let Some((last, _)) = rows.last() else { return Ok(session) };
        after = *last;
        rows.iter().take_while(|(seq, _)| *seq <= until).for_each(|(_, body)| fold(&mut session, body));
        if after >= until {
            return Ok(session);
        }
    }
}

/// What a run is and how it ended, and the last record that is in it.
async fn read_ends(hub: &Hub, entry: &SessionEntry) -> Result<(Projection, u64), StoreError> {
    let mut session = Projection::default();
    let last = entry.committed_seq();
    let mut known = 0;
    let mut fold_rows = |rows: Vec<(u64, Bytes)>| {
        for (seq, body) in rows {
            if seq > known {
                fold(&mut session, &body);
            }
            known = known.max(seq);
        }
        known
    };
    let mut seq = fold_rows(hub.store.records_after(&entry.id, 0, FIRST_RECORDS, READ_BYTES_MAX).await?);
    seq = seq.max(last.saturating_sub(LAST_RECORDS));
    loop {
        let rows = hub.store.records_after(&entry.id, seq, LAST_RECORDS as usize, READ_BYTES_MAX).await?;
        if rows.is_empty() {
            break;
        }
        seq = fold_rows(rows);
        if seq >= last {
            break;
        }
    }
    Ok((session, known))
}
