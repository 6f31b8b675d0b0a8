//! Storing a batch of records with what they change. A record that is there already is skipped with its effects, so a
//! runner may send again whatever it is unsure of.
//!
//! This is the hub's hot path. A record of output costs one row in one table; the session's own row is written with
//! it only when something else has changed, or once a second.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::Connection;

use super::{audit, messages, sessions};
use crate::RecordRewrite;
use crate::hub::{AppendSummary, NewRecord, RecordEffect, SessionTotals};
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::{record_seq, session_base};
use crate::sqlite::statements::{first, run};

const INSERT: &str = "INSERT INTO records (record_key, ts, event, body) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (record_key) DO NOTHING";
/// The totals are given back as they are then.
const RAISE_HEAD: &str = "UPDATE sessions SET last_seq = max(last_seq, ?2), updated_at = max(updated_at, ?3),
     last_text = coalesce(?4, last_text), tokens = tokens + ?5, cost_usd = cost_usd + ?6
    WHERE session_key = ?1 RETURNING tokens, cost_usd";
/// How old the time in the row of a session may be that only writes output.
const ROW_EVERY_MS: i64 = 1000;
/// What a record costs in the queue beside its body.
const RECORD_OVERHEAD_BYTES: usize = 128;

/// A session of the batch: where its keys start and how far it has come.
struct SessionHead<'batch> {
    session_id: &'batch Arc<str>,
    session_key: i64,
    base: i64,
    last_seq: u64,
    ts: i64,
    raised: bool,
    /// The time its row has.
    stored_at: i64,
    /// A record of the batch says more than that it happened.
    has_effect: bool,
    /// What the new messages of the batch add.
    added: SessionTotals,
    last_text: Option<&'batch str>,
}

impl<'batch> SessionHead<'batch> {
    /// Whether its row is to be written. A session that only writes output has its time stored once in a while: the row
    /// would cost as much as the record, and its newest record is known from the records.
    fn is_to_be_stored(&self) -> bool {
        let is_fresh = self.stored_at > 0 && (0..ROW_EVERY_MS).contains(&(self.ts - self.stored_at));
        self.raised && (self.has_effect || !is_fresh)
    }

    /// Notes what an effect that is about to be applied means for lists.
    fn count(&mut self, connection: &Connection, effect: &'batch RecordEffect) -> SqlResult<()> {
        // Only messages count; the other effects change what a session is, not what was said in it.
        let list = match effect {
            RecordEffect::Message(message) => std::slice::from_ref(&**message),
            RecordEffect::ReplaceMessages(list) => {
                // What was said before is not of this conversation.
                self.last_text = Some("");
                list
            }
            RecordEffect::UpsertSession(_) | RecordEffect::SessionPatch(_) | RecordEffect::Rewrite { .. } => {
                return Ok(());
            }
        };
        for message in list {
            let SessionTotals { tokens, cost_usd } = messages::added(connection, self.session_id, message)?;
            self.added.tokens = self.added.tokens.saturating_add(tokens);
            self.added.cost_usd += cost_usd;
            self.last_text = message.last_text.as_deref().or(self.last_text);
        }
        Ok(())
    }
}

pub(super) fn append(connection: &Connection, batch: &[NewRecord]) -> SqlResult<AppendSummary> {
    let mut insert = connection.prepare_cached(INSERT)?;
    let mut heads = SessionHeads::default();
    let mut appended = AppendSummary::default();
    for record in batch {
        let head = heads.of(connection, record)?;
        insert.raw_bind_parameter(1, head.base + record_seq(record.seq)?)?;
        insert.raw_bind_parameter(2, record.ts)?;
        insert.raw_bind_parameter(3, &*record.event)?;
        insert.raw_bind_parameter(4, &record.body[..])?;
        if insert.raw_execute()? == 0 {
            appended.duplicates += 1;
            continue;
        }
        appended.inserted += 1;
        head.raised = true;
        head.last_seq = head.last_seq.max(record.seq);
        head.ts = head.ts.max(record.ts);
        if let Some(effect) = &record.effect {
            head.has_effect = true;
            // Before it is applied: the difference to what is stored is gone afterwards.
            head.count(connection, effect)?;
            apply(connection, head.base, &record.session_id, effect)?;
        }
        if let Some(row) = &record.audit {
            audit::insert_of_record(connection, record, row)?;
        }
    }
    heads.store(connection, &mut appended)?;
    Ok(appended)
}

pub(super) fn batch_bytes(batch: &[NewRecord]) -> usize {
    batch.iter().map(|record| RECORD_OVERHEAD_BYTES + record.body.len() + effect_bytes(record)).sum()
}

/// Whether its time depends on its own size only: replacing messages removes as many as there are.
pub(super) fn is_short(batch: &[NewRecord]) -> bool {
    !batch.iter().any(|record| matches!(record.effect, Some(RecordEffect::ReplaceMessages(_))))
}

fn effect_bytes(record: &NewRecord) -> usize {
    match &record.effect {
        Some(RecordEffect::Message(message)) => messages::row_bytes(message),
        Some(RecordEffect::ReplaceMessages(list)) => list.iter().map(messages::row_bytes).sum(),
        Some(
            RecordEffect::UpsertSession(_) | RecordEffect::SessionPatch(_) | RecordEffect::Rewrite { .. },
        )
        | None => 0,
    }
}

fn apply(connection: &Connection, base: i64, session_id: &str, effect: &RecordEffect) -> SqlResult<()> {
    match effect {
        RecordEffect::UpsertSession(session) => sessions::upsert(connection, session),
        RecordEffect::SessionPatch(patch) => sessions::patch(connection, session_id, patch),
        RecordEffect::Message(message) => messages::upsert(connection, session_id, message),
        RecordEffect::ReplaceMessages(list) => messages::replace(connection, session_id, list),
        RecordEffect::Rewrite { seq, with } => rewrite(connection, base, *seq, *with),
    }
}

/// Replaces the body of a record, where it is there and something is to be replaced.
fn rewrite(connection: &Connection, base: i64, seq: u64, with: RecordRewrite) -> SqlResult<()> {
    let key = base + record_seq(seq)?;
    let body =
        first(connection, "SELECT body FROM records WHERE record_key = ?1", [key], |row| Ok(row.get(0)?))?;
    if let Some(body) = body.and_then(|body: Vec<u8>| with(&body)) {
        run(connection, "UPDATE records SET body = ?2 WHERE record_key = ?1", (key, body))?;
    }
    Ok(())
}

/// The same for a record that no later one tells of; nothing where the session or the record is unknown.
pub(super) fn rewrite_record(
    connection: &Connection,
    session_id: &str,
    seq: u64,
    with: RecordRewrite,
) -> SqlResult<()> {
    let Some(place) = sessions::find_key(connection, session_id)? else { return Ok(()) };
    rewrite(connection, session_base(place.session_key)?, seq, with)
}

#[derive(Default)]
struct SessionHeads<'batch> {
    list: Vec<SessionHead<'batch>>,
    by_id: HashMap<&'batch str, usize>,
    current: usize,
}

impl<'batch> SessionHeads<'batch> {
    /// The head of a session; records of one session mostly follow each other, so the last one is tried first.
    fn of(
        &mut self,
        connection: &Connection,
        record: &'batch NewRecord,
    ) -> SqlResult<&mut SessionHead<'batch>> {
        let session_id = &record.session_id;
        let same = |head: &SessionHead<'_>| {
            Arc::ptr_eq(head.session_id, session_id) || head.session_id == session_id
        };
        if !self.list.get(self.current).is_some_and(same) {
            self.current = match self.by_id.get(&**session_id) {
                Some(index) => *index,
                None => {
                    let sessions::SessionPosition { session_key, last_seq, updated_at } =
                        sessions::key(connection, session_id, &record.runner_id)?;
                    let base = session_base(session_key)?;
                    self.list.push(SessionHead {
                        session_id,
                        session_key,
                        base,
                        last_seq,
                        ts: 0,
                        raised: false,
                        stored_at: updated_at,
                        has_effect: false,
                        added: SessionTotals::default(),
                        last_text: None,
                    });
                    self.by_id.insert(session_id, self.list.len() - 1);
                    self.list.len() - 1
                }
            };
        }
        Ok(&mut self.list[self.current])
    }

    fn store(self, connection: &Connection, appended: &mut AppendSummary) -> SqlResult<()> {
        let mut raise = connection.prepare_cached(RAISE_HEAD)?;
        for head in self.list {
            if head.is_to_be_stored() {
                let SessionTotals { tokens, cost_usd } = head.added;
                let last_seq = head.last_seq.cast_signed();
                let values = (head.session_key, last_seq, head.ts, head.last_text, tokens, cost_usd);
                let totals = raise.query_row(values, |row| {
                    Ok(SessionTotals { tokens: row.get(0)?, cost_usd: row.get(1)? })
                })?;
                if head.added != SessionTotals::default() {
                    appended.totals.push((Arc::clone(head.session_id), totals));
                }
            }
            appended.heads.push((Arc::clone(head.session_id), head.last_seq));
        }
        Ok(())
    }
}
