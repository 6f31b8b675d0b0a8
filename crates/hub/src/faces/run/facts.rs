//! What lists show of runs: kept up to date by the records that come, read from the log for those of before.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qd_core::record::Record;
use qd_core::view::run::Kind;
use qd_core::view::run::facts::{Facts, Pending};
use qd_store::StoreError;
use qd_wire::data::SessionStatus;

use crate::registry::{Hub, SessionEntry};

/// Records at the beginning and at the end of a run that are looked at when the hub has not seen it run: it says
/// what it is in its first ones, and what it waits for or how it ended in its last ones.
const FIRST_RECORDS: usize = 8;
const LAST_RECORDS: u64 = 256;
const READ_BYTES_MAX: usize = 1 << 20;
/// What says whether somebody waits for an answer. A question may be much older than the last records.
const QUESTIONS: &[&str] =
    &["agent.input_needed", "agent.input_resolved", "run.started", "run.input", "run.exited", "tool.result"];
const QUESTION_ROWS: usize = 1000;

#[derive(Default)]
pub(super) struct FactsTable(Mutex<HashMap<Arc<str>, Facts>>);

impl FactsTable {
    /// Takes in the next records of a session, if what came before them is known.
    pub(super) fn fold<'a>(
        &self,
        session_id: &Arc<str>,
        kind: Kind,
        records: impl Iterator<Item = Record<'a>>,
    ) {
        let mut table = self.lock();
        for record in records {
            if record.seq == 1 {
                table.insert(Arc::clone(session_id), Facts::default());
            }
            let Some(facts) = table.get_mut(session_id) else { continue };
            if facts.seq + 1 == record.seq {
                facts.fold(kind, &record);
            } else if facts.seq < record.seq {
                table.remove(session_id);
            }
        }
    }

    /// Takes in what happened beside the records.
    pub(super) fn fold_live(&self, session_id: &str, kind: Kind, record: &Record<'_>) {
        if let Some(facts) = self.lock().get_mut(session_id) {
            facts.fold(kind, record);
        }
    }

    pub(super) fn forget(&self, session_id: &str) {
        self.lock().remove(session_id);
    }

    /// What is known of a run, from the log where it has to be.
    pub(super) async fn get(&self, hub: &Hub, entry: &SessionEntry) -> Result<Facts, StoreError> {
        if let Some(facts) = self.lock().get(&entry.id) {
            return Ok(facts.clone());
        }
        let facts = read(hub, entry).await?;
        let mut table = self.lock();
        // What has come meanwhile is not in it: then it is read again the next time.
        if facts.seq == entry.committed_seq() {
            table.insert(Arc::clone(&entry.id), facts.clone());
        }
        Ok(facts)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Facts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(hub: &Hub, entry: &SessionEntry) -> Result<Facts, StoreError> {
    let mut facts = read_ends(hub, entry).await?;
    if entry.status() != SessionStatus::Closed {
        let until = facts.seq;
        facts.pending = read_pending(hub, entry, until).await?;
    }
    Ok(facts)
}

/// The questions that nobody has answered, up to a record and however old.
async fn read_pending(hub: &Hub, entry: &SessionEntry, until: u64) -> Result<Vec<Pending>, StoreError> {
    let mut facts = Facts::default();
    let mut after = 0;
    loop {
        let store = &hub.store;
        let rows = store.records_of(&entry.id, QUESTIONS, after, QUESTION_ROWS, READ_BYTES_MAX).await?;
        let Some((last, _)) = rows.last() else { return Ok(facts.pending) };
        after = *last;
        for (_, body) in rows.iter().take_while(|(seq, _)| *seq <= until) {
            if let Some(record) = std::str::from_utf8(body).ok().and_then(Record::parse) {
                facts.fold(entry.kind(), &record);
            }
        }
        if after >= until {
            return Ok(facts.pending);
        }
    }
}

/// What a run is and how it ended.
async fn read_ends(hub: &Hub, entry: &SessionEntry) -> Result<Facts, StoreError> {
    let mut facts = Facts::default();
    let last = entry.committed_seq();
    let mut fold = |rows: Vec<(u64, bytes::Bytes)>| {
        for (seq, body) in rows {
            let record = std::str::from_utf8(&body).ok().and_then(Record::parse);
            if let Some(record) = record.filter(|_| seq > facts.seq) {
                facts.fold(entry.kind(), &record);
            }
            facts.seq = facts.seq.max(seq);
        }
        facts.seq
    };
    let mut seq = fold(hub.store.records_after(&entry.id, 0, FIRST_RECORDS, READ_BYTES_MAX).await?);
    seq = seq.max(last.saturating_sub(LAST_RECORDS));
    loop {
        let rows = hub.store.records_after(&entry.id, seq, LAST_RECORDS as usize, READ_BYTES_MAX).await?;
        if rows.is_empty() {
            return Ok(facts);
        }
        seq = fold(rows);
        if seq >= last {
            return Ok(facts);
        }
    }
}
