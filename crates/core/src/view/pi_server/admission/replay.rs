//! The door (sections 7.4 and 8): answered from an earlier outcome, joined to the same command in flight, refused,
//! or admitted as a new one.

use std::sync::Arc;

use qd_wire::{CodedError, ErrorCode};

use super::command::{Command, Joined, scoped_key};
use super::identities::Holder;
use super::kept::{Record, Slot};
use super::rate::Exceeded;
use super::timers::{Timer, after};
use super::{Admission, Effect, Outcome, Submission, Token, words};

/// What an identity says about a submission.
enum Known {
    /// Nothing: it is a new command.
    No,
    /// It was used for something else.
    Conflict(CodedError),
    /// The same command is in flight.
    Join(Token),
    /// The same command is over.
    Replay(Arc<Outcome>),
    /// The same command was cut off.
    InDoubt(Slot),
    /// The same command was cut off so long ago that it cannot be taken up.
    TooOld,
}

impl Admission {
    pub(super) fn admit(&mut self, now: i64, submission: Submission, effects: &mut Vec<Effect>) {
        let busy = self.is_busy(&submission.principal);
        let in_doubt = match self.known(now, &submission) {
            Known::No => None,
            Known::InDoubt(slot) => Some(slot),
            Known::Conflict(error) => return reject(submission.token, error, effects),
            Known::Replay(outcome) => return self.replay(now, submission, outcome, effects),
            Known::TooOld => {
                let outcome = Arc::new(words::too_old(submission.spec.name));
                let token = submission.token;
                return effects.push(Effect::Announce { token, outcome, replayed: true });
            }
            Known::Join(_) if busy => return self.reject_busy(submission.token, effects),
            Known::Join(token) => return self.join(submission, token),
        };
        let (principal, bucket) = (&submission.principal, submission.spec.bucket);
        if let Err(exceeded) = self.rates.admit(now, principal, bucket, submission.named_session(), !busy) {
            match exceeded {
                Exceeded::Bucket { .. } => self.counters.rate += 1,
                Exceeded::Global { .. } => self.counters.global_rate += 1,
                Exceeded::UiResponse { .. } => self.counters.ui_rate += 1,
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
    fn known(&self, now: i64, submission: &Submission) -> Known {
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
        Known::No
    }

    fn compare(&self, now: i64, submission: &Submission, holder: Holder, what: &str, name: &str) -> Known {
        let (fingerprint, before, same) = match holder {
            Holder::InFlight(token) => match self.commands.get(&token) {
                Some(command) => {
                    let submission = &command.submission;
                    (&submission.fingerprint, submission.spec.name, Known::Join(token))
                }
                None => return Known::No,
            },
            Holder::Kept(slot) => match self.identities.record(slot) {
                Some(record) => {
                    let same = match &record.outcome {
                        Some(outcome) => Known::Replay(outcome.clone()),
                        None if record.is_too_old(now) => Known::TooOld,
                        None => Known::InDoubt(slot),
                    };
                    (&record.fingerprint, record.command.as_ref(), same)
                }
                None => return Known::No,
            },
        };
        if *fingerprint == submission.fingerprint {
            same
        } else {
            Known::Conflict(words::conflict(what, name, before, submission.spec.name))
        }
    }

    fn replay(&mut self, now: i64, submission: Submission, outcome: Arc<Outcome>, effects: &mut Vec<Effect>) {
        let token = submission.token;
        if self.id_is_unused(&submission) {
            self.keep_alias(now, &submission, &outcome, effects);
        }
        effects.push(Effect::Announce { token, outcome, replayed: true });
    }

    /// Waits for the same command in flight. An id nobody has used stands for it from now on.
    fn join(&mut self, submission: Submission, token: Token) {
        let id_is_new = self.id_is_unused(&submission);
        if let Some(id) = submission.id.as_ref().filter(|_| id_is_new) {
            self.identities.set_id(&submission.principal, id, token);
        }
        let Some(command) = self.commands.get_mut(&token) else { return };
        let principal = submission.principal.clone();
        command.joined.push(Joined { submission, id_is_new });
        self.in_flight += 1;
        *self.in_flight_of.entry(principal).or_default() += 1;
    }

    fn id_is_unused(&self, submission: &Submission) -> bool {
        let id = submission.id.as_ref();
        id.is_some_and(|id| self.identities.id(&submission.principal, id).is_none())
    }

    /// Keeps an outcome under a further id, so that other commands can depend on it. The key keeps standing for the
    /// command that was executed.
    pub(super) fn keep_alias(
        &mut self,
        now: i64,
        submission: &Submission,
        outcome: &Arc<Outcome>,
        effects: &mut Vec<Effect>,
    ) {
        let (token, uid) = (submission.token, submission.uid.clone());
        effects.push(Effect::Store { token, uid, outcome: outcome.clone(), wait: false });
        self.identities.keep(now, Record::of(submission, now, now, Some(outcome)));
    }

    fn register(&mut self, now: i64, submission: Submission, in_doubt: Option<Slot>) {
        let token = submission.token;
        let deadline = submission.timeout_ms.map(|ms| after(now, ms));
        let taken_up = in_doubt.and_then(|slot| self.identities.take_up(slot, token)).map(Box::new);
        let mut command = Command::new(now, submission, deadline, taken_up);
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

    fn reject_busy(&mut self, token: Token, effects: &mut Vec<Effect>) {
        self.counters.busy += 1;
        reject(token, words::busy(), effects);
    }
}

/// Refused at the door: nothing is stored, and the identity stays free.
fn reject(token: Token, error: CodedError, effects: &mut Vec<Effect>) {
    let outcome = Arc::new(words::failure(error));
    effects.push(Effect::Announce { token, outcome, replayed: false });
}
