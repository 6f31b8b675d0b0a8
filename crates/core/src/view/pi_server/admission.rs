//! The rules of sections 7 to 11 of the pi-server document, for all clients of a process: a command is accepted,
//! answered from an earlier outcome or refused, gets its turn, waits for its dependencies, is executed or runs out
//! of time, and its outcome is stored before it is announced, exactly once.
//!
//! Pure: time comes in, effects go out. Whenever several commands can go on, the one that came first does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use qd_wire::ErrorCode;
use qd_wire::pi_server::{CommandSpec, ReplayMetrics};

use super::rate;

mod command;
mod dependencies;
mod error_texts;
mod flow;
mod identities;
mod lanes;
mod remembered_commands;
mod replay;
mod timers;

use command::AdmittedCommand;
use identities::Identities;
use lanes::Lanes;
use timers::Timers;

/// A submission in the caller's books; later ones are higher.
pub type SubmissionToken = u64;

/// Bounds and times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Outcomes kept for replay, all principals together.
    pub outcomes_max: usize,
    /// What the kept outcomes may weigh.
    pub outcome_bytes_max: usize,
    /// Commands admitted and not yet finished.
    pub in_flight_max: usize,
    /// Those of one principal, so that nobody can keep all others out.
    pub in_flight_per_principal_max: usize,
    /// How long an idempotency key replays; after that the command is a new one.
    pub key_ttl_ms: i64,
    /// How long one command waits for all its dependencies together.
    pub dependency_wait_ms: u64,
    pub rate: rate::RateLimits,
}

impl Default for AdmissionLimits {
    fn default() -> Self {
        AdmissionLimits {
            outcomes_max: 10_000,
            outcome_bytes_max: 64 * 1024 * 1024,
            in_flight_max: 10_000,
            in_flight_per_principal_max: 5_000,
            key_ttl_ms: 10 * 60 * 1000,
            dependency_wait_ms: 30_000,
            rate: rate::RateLimits::default(),
        }
    }
}

/// A validated command that asks for admission.
#[derive(Debug, Clone)]
pub struct PiServerSubmission {
    /// Increasing.
    pub token: SubmissionToken,
    pub principal: Arc<str>,
    pub spec: &'static CommandSpec,
    pub id: Option<String>,
    pub key: Option<String>,
    /// The session it is about, a freshly minted one included.
    pub session_id: Option<String>,
    /// Whether the client named the session itself: the scope of key and rate bucket.
    pub names_session: bool,
    pub depends_on: Vec<String>,
    pub if_session_version: Option<u64>,
    pub fingerprint: [u8; 32],
    /// From admission, waiting included.
    pub timeout_ms: Option<u64>,
    /// The name under which the runner does it at most once.
    pub uid: Arc<str>,
    /// Whether it gives its lane up as soon as it is carried out: nobody knows how long it takes, because it may ask
    /// a person.
    pub frees_lane: bool,
}

impl PiServerSubmission {
    /// The session, if the client named it.
    fn named_session(&self) -> Option<&str> {
        self.session_id.as_deref().filter(|_| self.names_session)
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PiServerOutcome {
    pub success: bool,
    /// JSON text.
    pub data: Option<Arc<str>>,
    pub error: Option<Arc<str>>,
    /// Beside every error, except of outcomes that were stored before there were codes.
    pub code: Option<ErrorCode>,
    pub session_version: Option<u64>,
    pub timed_out: bool,
    /// The process died between write and answer: nobody can know.
    pub indeterminate: bool,
    /// Whether this is the last word. It is not when the link to the runner was lost: the command is then in doubt,
    /// and whoever repeats it asks the runner again.
    pub settled: bool,
}

impl Default for PiServerOutcome {
    fn default() -> Self {
        PiServerOutcome {
            success: false,
            data: None,
            error: None,
            code: None,
            session_version: None,
            timed_out: false,
            indeterminate: false,
            settled: true,
        }
    }
}

/// What the caller has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionEffect {
    /// Broadcast `command_accepted`.
    Accepted(SubmissionToken),
    /// Broadcast `command_started`.
    Started(SubmissionToken),
    /// Store the row of an identified mutation as in flight, then call [`Admission::journaled`]; if the store
    /// fails, call [`Admission::refuse`] instead. Commands are to be reported in the order of their tokens, or they
    /// are not executed in the order in which they came.
    Journal(SubmissionToken),
    /// Do it, then call [`Admission::finish`]. The uid differs from the submission's own when one that was left in
    /// doubt is taken up again; it is then about the session of that one, which is given if its row named one.
    Execute { token: SubmissionToken, uid: Arc<str>, session_id: Option<Arc<str>> },
    /// Its time is over: stop the underlying work if possible. Comes before its outcome is stored and announced, so
    /// that the caller still knows the command; what the work ends with is ignored.
    Cancel { token: SubmissionToken, uid: Arc<str> },
    /// Store the outcome in the row of this uid. It is the submission's own (the row may be new: of a read, a command
    /// that failed before its execution, or another id for an outcome known by its key), or that of the one in
    /// doubt which it took up (the row is there, no `Journal` was asked for). With `wait` nothing is announced
    /// until [`Admission::stored`] is called, even if the store fails.
    Store { token: SubmissionToken, uid: Arc<str>, outcome: Arc<PiServerOutcome>, wait: bool },
    /// Broadcast `command_finished`, then answer the asker; the token is over.
    Announce { token: SubmissionToken, outcome: Arc<PiServerOutcome>, replayed: bool },
}

/// A row read back at start.
#[derive(Debug, Clone)]
pub struct RestoredSubmission {
    pub token: SubmissionToken,
    pub principal: Arc<str>,
    pub id: Option<String>,
    pub key: Option<String>,
    /// The scope of the key: the session, or [`SERVER_SCOPE`].
    pub scope: String,
    pub command: String,
    pub fingerprint: [u8; 32],
    pub uid: Arc<str>,
    /// When it finished; a key's time counts from here.
    pub finished_at: Option<i64>,
    /// `None` for a command that was cut off.
    pub outcome: Option<PiServerOutcome>,
    /// The session it is about, a minted one included.
    pub session_id: Option<String>,
    pub accepted_at: i64,
}

/// Figures for `get_metrics`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdmissionMetrics {
    /// Commands that were handed out for execution.
    pub executed: u64,
    pub rate_limit_rejections: u64,
    pub global_rate_limit_rejections: u64,
    pub ui_rate_limit_rejections: u64,
    /// Commands of this principal in the last minute, and how many it may send; 0 is no limit.
    pub global_count: u64,
    pub global_limit: u64,
    pub lane_count: u64,
    pub replay: ReplayMetrics,
}

/// How long a command in doubt can be taken up again: runners remember for 24 hours what they have done, and one that
/// they have forgotten would be done twice. The rest is for clocks that differ.
pub const IN_DOUBT_MAX_MS: i64 = 23 * 60 * 60 * 1000;

/// The scope of keys of commands that name no session.
pub const SERVER_SCOPE: &str = "_server_";

/// The machine.
#[derive(Debug)]
pub struct Admission {
    limits: AdmissionLimits,
    /// Accepted and not yet announced.
    commands: HashMap<SubmissionToken, AdmittedCommand>,
    /// How many `commands` there are with the repeats that wait for one of them, in all and of each principal.
    in_flight: usize,
    in_flight_of: HashMap<Arc<str>, usize>,
    identities: Identities,
    rates: rate::RateWindows,
    lanes: Lanes,
    timers: Timers,
    /// Commands that may be able to go on, looked at in order of arrival.
    ready: BTreeSet<SubmissionToken>,
    /// Commands waiting for one that came after them.
    forward_waiters: usize,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    executed: u64,
    busy: u64,
    rate: u64,
    global_rate: u64,
    ui_rate: u64,
}

impl Admission {
    pub fn new(limits: AdmissionLimits) -> Self {
        Admission {
            limits,
            commands: HashMap::new(),
            in_flight: 0,
            in_flight_of: HashMap::new(),
            identities: Identities::new(&limits),
            rates: rate::RateWindows::new(limits.rate),
            lanes: Lanes::default(),
            timers: Timers::default(),
            ready: BTreeSet::new(),
            forward_waiters: 0,
            counters: Counters::default(),
        }
    }

    /// The scope in which a submission's key is unique: the session the client named, or [`SERVER_SCOPE`].
    pub fn scope(submission: &PiServerSubmission) -> &str {
        submission.named_session().unwrap_or(SERVER_SCOPE)
    }

    /// Takes in a row of an earlier life, oldest first: done ones replay; those cut off are in doubt until somebody
    /// repeats them, and are then executed under the uid they had and in the session they were about.
    pub fn restore(&mut self, row: RestoredSubmission) {
        self.identities.restore(row);
    }

    /// A validated command arrives while the server is not shutting down.
    pub fn submit(&mut self, now: i64, submission: PiServerSubmission, effects: &mut Vec<AdmissionEffect>) {
        effects.push(AdmissionEffect::Accepted(submission.token));
        self.admit(now, submission, effects);
        self.run(now, effects);
    }

    /// The row asked for by [`AdmissionEffect::Journal`] is stored.
    pub fn journaled(&mut self, now: i64, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        self.begin_execution(token, effects);
        self.run(now, effects);
    }

    /// The work is over, or could not be begun. Ignored if the command has an outcome already: it timed out.
    pub fn finish(
        &mut self,
        now: i64,
        token: SubmissionToken,
        outcome: PiServerOutcome,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        self.conclude(now, token, outcome, effects);
        self.run(now, effects);
    }

    /// The row asked for by [`AdmissionEffect::Journal`] cannot be stored: the command fails without being done, and its names
    /// are free again. Ignored if it is being done or has an outcome already.
    pub fn refuse(
        &mut self,
        now: i64,
        token: SubmissionToken,
        error: &str,
        effects: &mut Vec<AdmissionEffect>,
    ) {
        self.abandon(now, token, &ErrorCode::StoreUnavailable.with(error), effects);
        self.run(now, effects);
    }

    /// A principal may do nothing any more: what it has sent and has not begun is refused.
    pub fn principal_revoked(&mut self, now: i64, principal: &str, effects: &mut Vec<AdmissionEffect>) {
        for token in self.tokens_of(principal) {
            self.abandon(now, token, &error_texts::revoked(), effects);
        }
        self.run(now, effects);
    }

    /// The outcome of a [`AdmissionEffect::Store`] with `wait` is stored.
    pub fn stored(&mut self, now: i64, token: SubmissionToken, effects: &mut Vec<AdmissionEffect>) {
        self.announce(now, token, command::CommandFate::Kept, effects);
        self.run(now, effects);
    }

    /// Ends what has run out of time; to be called at [`Admission::next_deadline`].
    pub fn tick(&mut self, now: i64, effects: &mut Vec<AdmissionEffect>) {
        while let Some((token, timer)) = self.timers.pop(now) {
            self.run_out(now, token, timer, effects);
            self.run(now, effects);
        }
    }

    /// When [`Admission::tick`] has something to do.
    pub fn next_deadline(&self) -> Option<i64> {
        self.timers.next()
    }

    /// The uids whose outcomes left the bounds since the last call: rows to delete.
    pub fn evicted(&mut self) -> Vec<Arc<str>> {
        self.identities.take_evicted()
    }

    /// Figures for `get_metrics`, as this principal may see them.
    pub fn metrics(&self, principal: &str, now: i64) -> AdmissionMetrics {
        AdmissionMetrics {
            executed: self.counters.executed,
            rate_limit_rejections: self.counters.rate,
            global_rate_limit_rejections: self.counters.global_rate,
            ui_rate_limit_rejections: self.counters.ui_rate,
            global_count: self.rates.global_count(principal, now),
            global_limit: u64::from(self.limits.rate.global_per_minute),
            lane_count: self.lanes.count() as u64,
            replay: ReplayMetrics {
                in_flight_count: self.in_flight as u64,
                outcome_count: self.identities.outcome_count() as u64,
                idempotency_cache_size: self.identities.key_count() as u64,
                max_in_flight_commands: self.limits.in_flight_max as u64,
                max_command_outcomes: self.limits.outcomes_max as u64,
                in_flight_rejections: self.counters.busy,
            },
        }
    }
}

#[cfg(test)]
mod model_tests;

#[cfg(test)]
mod rule_tests;
