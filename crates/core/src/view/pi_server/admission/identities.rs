//! Who has used which id and key for what: commands in flight by their token, and what is kept. What is in flight is
//! never forgotten.
//!
//! Ids and keys are each principal's own. An id stands for one command; a key may come with several ids and stands
//! for the command that was executed, for a limited time.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::remembered_commands::{OutcomeSlot, RememberedCommand, RememberedCommands};
use super::{AdmissionLimits, RestoredSubmission, SubmissionToken, error_texts};

/// What an id or a key stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IdentityHolder {
    InFlight(SubmissionToken),
    Kept(OutcomeSlot),
}

/// The names of one principal.
#[derive(Debug, Default)]
struct PrincipalNames {
    ids: HashMap<Box<str>, IdentityHolder>,
    keys: HashMap<Box<str>, IdentityHolder>,
}

#[derive(Debug)]
pub(super) struct Identities {
    key_ttl_ms: i64,
    names: HashMap<Arc<str>, PrincipalNames>,
    kept: RememberedCommands,
    evicted: Vec<Arc<str>>,
}

impl Identities {
    pub(super) fn new(limits: &AdmissionLimits) -> Self {
        Identities {
            key_ttl_ms: limits.key_ttl_ms,
            names: HashMap::new(),
            kept: RememberedCommands::new(limits),
            evicted: Vec::new(),
        }
    }

    pub(super) fn id(&self, principal: &str, id: &str) -> Option<IdentityHolder> {
        self.names.get(principal)?.ids.get(id).copied()
    }

    /// What a key stands for, unless its time is over.
    pub(super) fn key(&self, now: i64, principal: &str, key: &str) -> Option<IdentityHolder> {
        let holder = self.names.get(principal)?.keys.get(key).copied()?;
        if let IdentityHolder::Kept(slot) = holder {
            let record = self.record(slot)?;
            // One in doubt does not expire: whether it ran is still to be found out.
            if record.outcome.is_some() && record.finished_at.saturating_add(self.key_ttl_ms) <= now {
                return None;
            }
        }
        Some(holder)
    }

    pub(super) fn record(&self, slot: OutcomeSlot) -> Option<&RememberedCommand> {
        self.kept.get(slot)
    }

    /// Takes up one that was in doubt: it is no longer kept but in flight, under both its names.
    pub(super) fn take_up(&mut self, slot: OutcomeSlot, token: SubmissionToken) -> Option<RememberedCommand> {
        let record = self.kept.remove(slot)?;
        let names = self.names.get_mut(&record.principal)?;
        let holders = [
            record.id.as_deref().and_then(|id| names.ids.get_mut(id)),
            record.key.as_deref().and_then(|key| names.keys.get_mut(key)),
        ];
        for holder in holders.into_iter().flatten().filter(|holder| **holder == IdentityHolder::Kept(slot)) {
            *holder = IdentityHolder::InFlight(token);
        }
        Some(record)
    }

    pub(super) fn set_id(&mut self, principal: &Arc<str>, id: &str, token: SubmissionToken) {
        self.names_of(principal).ids.insert(id.into(), IdentityHolder::InFlight(token));
    }

    pub(super) fn set_key(&mut self, principal: &Arc<str>, key: &str, token: SubmissionToken) {
        self.names_of(principal).keys.insert(key.into(), IdentityHolder::InFlight(token));
    }

    /// These names stand for nothing any more, if it was this holder they stood for.
    pub(super) fn free(
        &mut self,
        principal: &str,
        id: Option<&str>,
        key: Option<&str>,
        holder: IdentityHolder,
    ) {
        let Some(names) = self.names.get_mut(principal) else { return };
        if let Some(id) = id
            && names.ids.get(id) == Some(&holder)
        {
            names.ids.remove(id);
        }
        if let Some(key) = key
            && names.keys.get(key) == Some(&holder)
        {
            names.keys.remove(key);
        }
        if names.ids.is_empty() && names.keys.is_empty() {
            self.names.remove(principal);
        }
    }

    /// Keeps an outcome or one in doubt under its names, and forgets what there is no room for by that.
    pub(super) fn keep(&mut self, now: i64, record: RememberedCommand) {
        let (id, key, principal) = (record.id.clone(), record.key.clone(), record.principal.clone());
        let slot = self.kept.add(record);
        let names = self.names_of(&principal);
        if let Some(id) = id {
            names.ids.insert(id, IdentityHolder::Kept(slot));
        }
        if let Some(key) = key {
            names.keys.insert(key, IdentityHolder::Kept(slot));
        }
        while let Some((slot, record)) = self.kept.remove_excess(now) {
            self.free(
                &record.principal,
                record.id.as_deref(),
                record.key.as_deref(),
                IdentityHolder::Kept(slot),
            );
            self.evicted.push(record.uid);
        }
    }

    /// Keeps a row read back at start, as if it were the time it was written.
    pub(super) fn restore(&mut self, row: RestoredSubmission) {
        let mut key = row.key.map(|key| error_texts::scoped(&row.scope, &key));
        let finished_at = row.finished_at.unwrap_or_default();
        // A row that only repeated a key's outcome under another id must not make the key last longer.
        if let Some(name) = &key
            && row.outcome.is_some()
            && let Some(IdentityHolder::Kept(slot)) = self.key(finished_at, &row.principal, name)
            && self.record(slot).is_some_and(|record| record.outcome.is_some())
        {
            key = None;
        }
        let spec = qd_wire::pi_server::spec(&row.command);
        let record = RememberedCommand {
            principal: row.principal,
            id: row.id.map(Into::into),
            key,
            fingerprint: row.fingerprint,
            command: spec.map_or(Cow::Owned(row.command), |spec| Cow::Borrowed(spec.name)),
            is_read: spec.is_some_and(|spec| !spec.is_journaled()),
            uid: row.uid,
            session_id: row.session_id.map(Into::into),
            accepted_at: row.accepted_at,
            finished_at,
            outcome: row.outcome.map(Arc::new),
        };
        self.keep(row.finished_at.unwrap_or(row.accepted_at), record);
    }

    /// The row of this uid is to be deleted, if there is one.
    pub(super) fn evict(&mut self, uid: Arc<str>) {
        self.evicted.push(uid);
    }

    pub(super) fn take_evicted(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.evicted)
    }

    pub(super) fn outcome_count(&self) -> usize {
        self.kept.count()
    }

    pub(super) fn key_count(&self) -> usize {
        self.names.values().map(|names| names.keys.len()).sum()
    }

    fn names_of(&mut self, principal: &Arc<str>) -> &mut PrincipalNames {
        self.names.entry(principal.clone()).or_default()
    }
}
