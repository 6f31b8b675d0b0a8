//! Who has used which id and key for what: commands in flight by their token, and the kept outcomes, bounded in
//! count and bytes. What is in flight is never forgotten; of the rest the oldest goes first.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{Limits, Outcome, Restored, Submission, Token, words};

/// A kept outcome's place; later ones are higher.
pub(super) type Slot = u64;

/// What an id or a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    InFlight(Token),
    Kept(Slot),
}

/// One row.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) principal: Arc<str>,
    pub(super) id: Option<Box<str>>,
    /// With its scope, as [`words::scoped`] writes it.
    pub(super) key: Option<Box<str>>,
    pub(super) fingerprint: [u8; 32],
    pub(super) command: Cow<'static, str>,
    pub(super) uid: Arc<str>,
    pub(super) finished_at: i64,
    /// `None`: cut off by a restart.
    pub(super) outcome: Option<Arc<Outcome>>,
}

impl Record {
    /// The outcome of a submission, under its id.
    pub(super) fn of(submission: &Submission, finished_at: i64, outcome: &Arc<Outcome>) -> Record {
        Record {
            principal: submission.principal.clone(),
            id: submission.id.as_deref().map(Into::into),
            key: None,
            fingerprint: submission.fingerprint,
            command: Cow::Borrowed(submission.spec.name),
            uid: submission.uid.clone(),
            finished_at,
            outcome: Some(outcome.clone()),
        }
    }

    /// What it takes of the byte bound.
    fn bytes(&self) -> usize {
        let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
        let name = |name: &Option<Box<str>>| name.as_ref().map_or(0, |name| name.len());
        let outcome = self.outcome.as_ref();
        outcome.map_or(0, |outcome| text(&outcome.data) + text(&outcome.error))
            + name(&self.id)
            + name(&self.key)
    }
}

/// The names of one principal.
#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Box<str>, Holder>,
    keys: HashMap<Box<str>, Holder>,
}

#[derive(Debug)]
pub(super) struct Identities {
    outcomes_max: usize,
    outcome_bytes_max: usize,
    key_ttl_ms: i64,
    names: HashMap<Arc<str>, Names>,
    /// Oldest first; `None` where one was taken up again.
    records: VecDeque<Option<Record>>,
    /// The slot of the first of `records`.
    first: Slot,
    kept: usize,
    bytes: usize,
    evicted: Vec<Arc<str>>,
}

impl Identities {
    pub(super) fn new(limits: &Limits) -> Self {
        Identities {
            outcomes_max: limits.outcomes_max,
            outcome_bytes_max: limits.outcome_bytes_max,
            key_ttl_ms: limits.key_ttl_ms,
            names: HashMap::new(),
            records: VecDeque::new(),
            first: 0,
            kept: 0,
            bytes: 0,
            evicted: Vec::new(),
        }
    }

    pub(super) fn id(&self, principal: &str, id: &str) -> Option<Holder> {
        self.names.get(principal)?.ids.get(id).copied()
    }

    /// What a key stands for, unless its time is over.
    pub(super) fn key(&self, now: i64, principal: &str, key: &str) -> Option<Holder> {
        let holder = self.names.get(principal)?.keys.get(key).copied()?;
        if let Holder::Kept(slot) = holder {
            let record = self.record(slot)?;
            // One in doubt does not expire: whether it ran is still to be found out.
            if record.outcome.is_some() && record.finished_at.saturating_add(self.key_ttl_ms) <= now {
                return None;
            }
        }
        Some(holder)
    }

    pub(super) fn record(&self, slot: Slot) -> Option<&Record> {
        let index = usize::try_from(slot.checked_sub(self.first)?).ok()?;
        self.records.get(index)?.as_ref()
    }

    /// Takes up one that was in doubt: it is no longer kept but in flight, under both its names.
    pub(super) fn take_up(&mut self, slot: Slot, token: Token) -> Option<Record> {
        let index = usize::try_from(slot.checked_sub(self.first)?).ok()?;
        let record = self.records.get_mut(index)?.take()?;
        self.kept -= 1;
        self.bytes -= record.bytes();
        let names = self.names.get_mut(&record.principal)?;
        let holders = [
            record.id.as_deref().and_then(|id| names.ids.get_mut(id)),
            record.key.as_deref().and_then(|key| names.keys.get_mut(key)),
        ];
        for holder in holders.into_iter().flatten().filter(|holder| **holder == Holder::Kept(slot)) {
            *holder = Holder::InFlight(token);
        }
        Some(record)
    }

    pub(super) fn set_id(&mut self, principal: &Arc<str>, id: &str, token: Token) {
        self.names_of(principal).ids.insert(id.into(), Holder::InFlight(token));
    }

    pub(super) fn set_key(&mut self, principal: &Arc<str>, key: &str, token: Token) {
        self.names_of(principal).keys.insert(key.into(), Holder::InFlight(token));
    }

    /// Keeps an outcome under its names, and forgets the oldest ones beyond the bounds.
    pub(super) fn keep(&mut self, record: Record) {
        let slot = self.first + self.records.len() as Slot;
        let names = self.names_of(&record.principal);
        if let Some(id) = &record.id {
            set(&mut names.ids, id, Holder::Kept(slot));
        }
        if let Some(key) = &record.key {
            set(&mut names.keys, key, Holder::Kept(slot));
        }
        self.kept += 1;
        self.bytes += record.bytes();
        self.records.push_back(Some(record));
        while self.kept > self.outcomes_max || self.bytes > self.outcome_bytes_max || self.starts_empty() {
            self.forget_first();
        }
    }

    /// Keeps a row read back at start.
    pub(super) fn restore(&mut self, row: Restored) {
        let mut key = row.key.map(|key| words::scoped(&row.scope, &key));
        let finished_at = row.finished_at.unwrap_or_default();
        // A row that only repeated a key's outcome under another id must not make the key last longer.
        if let Some(name) = &key
            && row.outcome.is_some()
            && let Some(Holder::Kept(slot)) = self.key(finished_at, &row.principal, name)
            && self.record(slot).is_some_and(|record| record.outcome.is_some())
        {
            key = None;
        }
        let command = match qd_wire::pi_server::spec(&row.command) {
            Some(spec) => Cow::Borrowed(spec.name),
            None => Cow::Owned(row.command),
        };
        self.keep(Record {
            principal: row.principal,
            id: row.id.map(Into::into),
            key,
            fingerprint: row.fingerprint,
            command,
            uid: row.uid,
            finished_at,
            outcome: row.outcome.map(Arc::new),
        });
    }

    pub(super) fn take_evicted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.evicted)
    }

    pub(super) fn outcome_count(&self) -> usize {
        self.kept
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.values().map(|names| names.keys.len()).sum()
    }

    fn names_of(&mut self, principal: &Arc<str>) -> &mut Names {
        self.names.entry(principal.clone()).or_default()
    }

    fn starts_empty(&self) -> bool {
        self.records.front().is_some_and(Option::is_none)
    }

    fn forget_first(&mut self) {
        let slot = self.first;
        let Some(first) = self.records.pop_front() else { return };
        self.first += 1;
        let Some(record) = first else { return };
        self.kept -= 1;
        self.bytes -= record.bytes();
        if let Some(names) = self.names.get_mut(&record.principal) {
            let holder = Some(&Holder::Kept(slot));
            if let Some(id) = &record.id
                && names.ids.get(id) == holder
            {
                names.ids.remove(id);
            }
            if let Some(key) = &record.key
                && names.keys.get(key) == holder
            {
                names.keys.remove(key);
            }
            if names.ids.is_empty() && names.keys.is_empty() {
                self.names.remove(&record.principal);
            }
        }
        self.evicted.push(record.uid);
    }
}

/// Names in flight are there already, so that no second copy of the name is made for them.
fn set(names: &mut HashMap<Box<str>, Holder>, name: &str, holder: Holder) {
    match names.get_mut(name) {
        Some(known) => *known = holder,
        None => {
            names.insert(name.into(), holder);
        }
    }
}
