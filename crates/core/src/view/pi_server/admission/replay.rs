//! Admission (sections 7.4 and 8): a submission is answered from an earlier outcome, joined to the same command in
//! flight, refused, or admitted as a new one.

use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::command::{AdmittedCommand, JoinedRepeat, scoped_key};
use super::identities::IdentityHolder;
use super::rate::ExceededRate;
use super::remembered_commands::{OutcomeSlot, RememberedCommand};
use super::timers::{Timer, after};
use super::{Admission, AdmissionEffect, PiServerOutcome, PiServerSubmission, SubmissionToken, error_texts};

/// What an identity says about a submission.
enum IdentityMatch {
    /// Nothing: it is a new command.
    No,
    /// It was used for something else.
    Conflict(CodedError),
    /// The same command is in flight.
    Join(SubmissionToken),
    /// The same command is over.
    Replay(Arc<PiServerOutcome>),
    /// The same command was cut off.
    InDoubt(OutcomeSlot),
    /// The same command was cut off so long ago that it cannot be taken up.
    TooOld,
}

impl Admission {
    pub(super) fn admit(
        &mut self,
        now: i64,
        submission: PiServerSubmission,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        // Only used further down: a replay costs nothing, so it is answered also when everything is busy.
        let busy = self.is_busy(&submission.principal);
        // Before the rates too: a client that repeats because it was not answered must not be punished for it.
        let in_doubt = match self.known(now, &submission) {
            IdentityMatch::No => None,
            IdentityMatch::InDoubt(slot) => Some(slot),
            IdentityMatch::Conflict(error) => return reject(submission.token, error, effects),
            IdentityMatch::Replay(outcome) => return self.replay(now, submission, outcome, effects),
            IdentityMatch::TooOld => {
                let outcome = Arc::new(error_texts::too_old(submission.spec.name));
                let token = submission.token;
                return effects.push(AdmissionEffect::Announce { token, outcome, replayed: true });
            }
            IdentityMatch::Join(_) if busy => return self.reject_busy(submission.token, effects),
            IdentityMatch::Join(token) => return self.join(submission, token),
        };
        let (principal, bucket) = (&submission.principal, submission.spec.bucket);
        if let Err(exceeded) = self.rates.admit(now, principal, bucket, submission.named_session(), !busy) {
            match exceeded {
                ExceededRate::Bucket { .. } => self.counters.rate += 1,
                ExceededRate::Global { .. } => self.counters.global_rate += 1,
                ExceededRate::UiResponse { .. } => self.counters.ui_rate += 1,
            }
            let error = ErrorCode::RateLimited.with(exceeded.to_string());
            return reject(submission.token, error, effects);
        }
        if busy {
            return self.reject_busy(submission.token, effects);
        }
        self.register(now, submission, in_doubt);
    }

    /// Looks at the key first, then at the id.
    fn known(&self, now: i64, submission: &PiServerSubmission) -> IdentityMatch {
        let principal = &submission.principal;
        if let (Some(key), Some(name)) = (scoped_key(submission), &submission.key)
            && let Some(holder) = self.identities.key(now, principal, &key)
        {
            return self.compare(now, submission, holder, "idempotencyKey", name);
        }
        if let Some(id) = &submission.id
            && let Some(holder) = self.identities.id(principal, id)
        {
            return self.compare(now, submission, holder, "id", id);
        }
        IdentityMatch::No
    }

    fn compare(
        &self,
        now: i64,
        submission: &PiServerSubmission,
        holder: IdentityHolder,
        what: &str,
        name: &str,
    ) -> IdentityMatch {
        let (fingerprint, before, same) = match holder {
            IdentityHolder::InFlight(token) => match self.commands.get(&token) {
                Some(command) => {
                    let submission = &command.submission;
                    (&submission.fingerprint, submission.spec.name, IdentityMatch::Join(token))
                }
                None => return IdentityMatch::No,
            },
            IdentityHolder::Kept(slot) => match self.identities.record(slot) {
                Some(record) => {
                    let same = match &record.outcome {
                        Some(outcome) => IdentityMatch::Replay(outcome.clone()),
                        None if record.is_too_old(now) => IdentityMatch::TooOld,
                        None => IdentityMatch::InDoubt(slot),
                    };
                    (&record.fingerprint, record.command.as_ref(), same)
                }
                None => return IdentityMatch::No,
            },
        };
        if *fingerprint == submission.fingerprint {
            same
        } else {
            IdentityMatch::Conflict(error_texts::conflict(what, name, before, submission.spec.name))
        }
    }

    fn replay(
        &mut self,
        now: i64,
        submission: PiServerSubmission,
        outcome: Arc<PiServerOutcome>,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let token = submission.token;
        if self.id_is_unused(&submission) {
            self.keep_alias(now, &submission, &outcome, effects);
        }
        effects.push(AdmissionEffect::Announce { token, outcome, replayed: true });
    }

    /// Waits for the same command in flight. An id nobody has used stands for it from now on.
    fn join(&mut self, submission: PiServerSubmission, token: SubmissionToken) {
        let id_is_new = self.id_is_unused(&submission);
        if let Some(id) = submission.id.as_ref().filter(|_| id_is_new) {
            self.identities.set_id(&submission.principal, id, token);
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        let principal = submission.principal.clone();
        command.joined.push(JoinedRepeat { submission, id_is_new });
        self.in_flight += 1;
        *self.in_flight_of.entry(principal).or_default() += 1;
    }

    fn id_is_unused(&self, submission: &PiServerSubmission) -> bool {
        let id = submission.id.as_ref();
        id.is_some_and(|id| self.identities.id(&submission.principal, id).is_none())
    }

    /// Keeps an outcome under a further id, so that other commands can depend on it. The key keeps standing for the
    /// command that was executed.
    pub(super) fn keep_alias(
        &mut self,
        now: i64,
        submission: &PiServerSubmission,
        outcome: &Arc<PiServerOutcome>,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        let (token, uid) = (submission.token, submission.uid.clone());
        effects.push(AdmissionEffect::Store { token, uid, outcome: outcome.clone(), wait: false });
        self.identities.keep(now, RememberedCommand::of(submission, now, now, Some(outcome)));
    }

    fn register(&mut self, now: i64, submission: PiServerSubmission, in_doubt: Option<OutcomeSlot>) {
        let token = submission.token;
        let deadline = submission.timeout_ms.map(|ms| after(now, ms));
        let taken_up = in_doubt.and_then(|slot| self.identities.take_up(slot, token)).map(Box::new);
        let mut command = AdmittedCommand::new(now, submission, deadline, taken_up);
        let principal = &command.submission.principal;
        if let Some(id) = &command.submission.id
            && (in_doubt.is_none() || self.identities.id(principal, id).is_none())
        {
            command.id_is_alias = in_doubt.is_some();
            self.identities.set_id(principal, id, token);
        }
        if let Some(key) = &command.key
            && in_doubt.is_none()
        {
            self.identities.set_key(principal, key, token);
        }
        if let Some(at) = deadline {
            self.timers.set(at, token, Timer::Command);
        }
        self.in_flight += 1;
        *self.in_flight_of.entry(principal.clone()).or_default() += 1;
        self.lanes.enter(&command.place, token, command.is_birth());
        self.commands.insert(token, command);
        self.ready.insert(token);
    }

    fn is_busy(&self, principal: &str) -> bool {
        let own = self.in_flight_of.get(principal).copied().unwrap_or_default();
        self.in_flight >= self.limits.in_flight_max || own >= self.limits.in_flight_per_principal_max
    }

    fn reject_busy(&mut self, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        self.counters.busy += 1;
        reject(token, error_texts::busy(), effects);
    }
}

/// Refused before it is admitted: nothing is stored, and the identity stays free.
fn reject(token: SubmissionToken, error: CodedError, effects: &mut Vec<AdmissionEffect>) {
    let outcome = Arc::new(error_texts::failure(error));
    effects.push(AdmissionEffect::Announce { token, outcome, replayed: false });
}
