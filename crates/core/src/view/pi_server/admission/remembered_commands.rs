//! The kept outcomes and the commands in doubt, bounded in count and bytes.
//!
//! A read that is forgotten is read again, but a mutation that is forgotten may be done twice. So reads have a share
//! of their own, in which large ones go first; mutations stay as long as their keys are valid, and when there is no
//! room for that the principal that has the most gives way: first what it has finished, then what is in doubt.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{AdmissionLimits, IN_DOUBT_MAX_MS, PiServerOutcome, PiServerSubmission};

/// A kept outcome's place; later ones are higher.
pub(super) type OutcomeSlot = u64;

/// One row.
#[derive(Debug, Clone)]
pub(super) struct RememberedCommand {
    pub(super) principal: Arc<str>,
    pub(super) id: Option<Box<str>>,
    /// With its scope, as [`super::error_texts::scoped`] writes it.
    pub(super) key: Option<Box<str>>,
    pub(super) fingerprint: [u8; 32],
    pub(super) command: Cow<'static, str>,
    /// Whether it counts among the reads: it can be done again.
    pub(super) is_read: bool,
    pub(super) uid: Arc<str>,
    pub(super) session_id: Option<Arc<str>>,
    pub(super) accepted_at: i64,
    pub(super) finished_at: i64,
    /// `None`: in doubt.
    pub(super) outcome: Option<Arc<PiServerOutcome>>,
}

impl RememberedCommand {
    /// What is kept of a submission under its id.
    pub(super) fn of(
        submission: &PiServerSubmission,
        accepted_at: i64,
        finished_at: i64,
        outcome: Option<&Arc<PiServerOutcome>>,
    ) -> RememberedCommand {
        RememberedCommand {
            principal: submission.principal.clone(),
            id: submission.id.as_deref().map(Into::into),
            key: None,
            fingerprint: submission.fingerprint,
            command: Cow::Borrowed(submission.spec.name),
            is_read: !submission.spec.is_journaled(),
            uid: submission.uid.clone(),
            session_id: submission.session_id.as_deref().map(Into::into),
            accepted_at,
            finished_at,
            outcome: outcome.cloned(),
        }
    }

    /// Whether nobody remembers any more if it was done.
    pub(super) fn is_too_old(&self, now: i64) -> bool {
        self.outcome.is_none() && self.accepted_at.saturating_add(IN_DOUBT_MAX_MS) <= now
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

/// How many there are and what they weigh: a bound, or what there is.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    count: usize,
    bytes: usize,
}

impl Load {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn remove(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }

    fn exceeds(&self, bound: Load) -> bool {
        self.count > bound.count || self.bytes > bound.bytes
    }
}

/// The mutations of one principal, oldest first.
#[derive(Debug, Default)]
struct PrincipalShare {
    finished: BTreeSet<OutcomeSlot>,
    in_doubt: BTreeSet<OutcomeSlot>,
    load: Load,
}

impl PrincipalShare {
    fn shelf(&mut self, record: &RememberedCommand) -> &mut BTreeSet<OutcomeSlot> {
        if record.outcome.is_some() { &mut self.finished } else { &mut self.in_doubt }
    }
}

#[derive(Debug)]
pub(super) struct RememberedCommands {
    reads_max: Load,
    mutations_max: Load,
    /// A read that weighs more is a large one.
    small_read_bytes_max: usize,
    key_ttl_ms: i64,
    records: HashMap<OutcomeSlot, RememberedCommand>,
    next: OutcomeSlot,
    small_reads: BTreeSet<OutcomeSlot>,
    large_reads: BTreeSet<OutcomeSlot>,
    reads: Load,
    owners: BTreeMap<Arc<str>, PrincipalShare>,
    mutations: Load,
}

impl RememberedCommands {
    pub(super) fn new(limits: &AdmissionLimits) -> Self {
        let all = Load { count: limits.outcomes_max, bytes: limits.outcome_bytes_max };
        let reads_max = Load { count: all.count / 4, bytes: all.bytes / 4 };
        RememberedCommands {
            reads_max,
            mutations_max: Load { count: all.count - reads_max.count, bytes: all.bytes - reads_max.bytes },
            // With the bounds as they come this is 1 MiB.
            small_read_bytes_max: reads_max.bytes / 16,
            key_ttl_ms: limits.key_ttl_ms,
            records: HashMap::new(),
            next: 0,
            small_reads: BTreeSet::new(),
            large_reads: BTreeSet::new(),
            reads: Load::default(),
            owners: BTreeMap::new(),
            mutations: Load::default(),
        }
    }

    pub(super) fn get(&self, slot: OutcomeSlot) -> Option<&RememberedCommand> {
        self.records.get(&slot)
    }

    pub(super) fn count(&self) -> usize {
        self.records.len()
    }

    pub(super) fn add(&mut self, record: RememberedCommand) -> OutcomeSlot {
        let slot = self.next;
        self.next += 1;
        let bytes = record.bytes();
        if record.is_read {
            self.read_shelf(bytes).insert(slot);
            self.reads.add(bytes);
        } else {
            if !self.owners.contains_key(&record.principal) {
                self.owners.insert(record.principal.clone(), PrincipalShare::default());
            }
            if let Some(owner) = self.owners.get_mut(&record.principal) {
                owner.shelf(&record).insert(slot);
                owner.load.add(bytes);
            }
            self.mutations.add(bytes);
        }
        self.records.insert(slot, record);
        slot
    }

    pub(super) fn remove(&mut self, slot: OutcomeSlot) -> Option<RememberedCommand> {
        let record = self.records.remove(&slot)?;
        let bytes = record.bytes();
        if record.is_read {
            self.read_shelf(bytes).remove(&slot);
            self.reads.remove(bytes);
            return Some(record);
        }
        self.mutations.remove(bytes);
        if let Some(owner) = self.owners.get_mut(&record.principal) {
            owner.shelf(&record).remove(&slot);
            owner.load.remove(bytes);
            if owner.load.count == 0 {
                self.owners.remove(&record.principal);
            }
        }
        Some(record)
    }

    /// Takes out one that there is no room for.
    pub(super) fn remove_excess(&mut self, now: i64) -> Option<(OutcomeSlot, RememberedCommand)> {
        let slot = self.excess_read().or_else(|| self.excess_mutation(now))?;
        Some((slot, self.remove(slot)?))
    }

    fn read_shelf(&mut self, bytes: usize) -> &mut BTreeSet<OutcomeSlot> {
        if bytes > self.small_read_bytes_max { &mut self.large_reads } else { &mut self.small_reads }
    }

    fn excess_read(&self) -> Option<OutcomeSlot> {
        if !self.reads.exceeds(self.reads_max) {
            return None;
        }
        self.large_reads.first().or(self.small_reads.first()).copied()
    }

    /// There are few principals, so that they are looked at one by one.
    fn excess_mutation(&self, now: i64) -> Option<OutcomeSlot> {
        if !self.mutations.exceeds(self.mutations_max) {
            return None;
        }
        let oldest_in_doubt = self.owners.values().filter_map(|owner| owner.in_doubt.first()).min();
        let oldest = self.owners.values().filter_map(|owner| owner.finished.first()).min();
        let is_over = |slot: &&OutcomeSlot| {
            self.get(**slot).is_some_and(|record| match record.outcome {
                Some(_) => record.finished_at.saturating_add(self.key_ttl_ms) <= now,
                None => record.is_too_old(now),
            })
        };
        if let Some(slot) = oldest_in_doubt.filter(is_over).or(oldest.filter(is_over)) {
            return Some(*slot);
        }
        let by_bytes = self.mutations.bytes > self.mutations_max.bytes;
        let has = |owner: &&PrincipalShare| if by_bytes { owner.load.bytes } else { owner.load.count };
        // Of several that have as much the first by name; `max_by_key` alone would take the last.
        let owner = self.owners.values().rev().max_by_key(has)?;
        owner.finished.first().or(owner.in_doubt.first()).copied()
    }
}
