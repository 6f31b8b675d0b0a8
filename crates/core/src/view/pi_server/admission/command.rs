//! A command in flight.
//!
//! The phases follow each other in `flow`; this is what is known of a command in each of them, and what its end means
//! for those who repeat it.

use std::collections::BTreeSet;
use std::sync::Arc;

use qd_wire::CodedError;

use super::lanes::{LanePlace, is_birth};
use super::remembered_commands::RememberedCommand;
use super::{Admission, PiServerOutcome, PiServerSubmission, SubmissionToken, error_texts};

/// How far a command is.
#[derive(Debug)]
pub(super) enum CommandPhase {
    /// It waits for its turn.
    Queued,
    /// It had its turn, and waits for other commands where it is in nobody's way.
    Outside,
    /// Its row is being stored.
    Journaling,
    /// It is being done.
    Executing,
    /// Its outcome is decided and being stored.
    Storing { outcome: Arc<PiServerOutcome>, finished_at: i64 },
}

/// A command another one waits for.
#[derive(Debug)]
pub(super) struct DependencyWait {
    /// Its name in `depends_on`.
    pub(super) name: usize,
    pub(super) on: SubmissionToken,
    pub(super) state: WaitState,
}

#[derive(Debug)]
pub(super) enum WaitState {
    Pending,
    Met,
    Failed(Arc<str>),
}

/// What becomes of a command that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommandFate {
    /// Its outcome is stored and replayed.
    Kept,
    /// Whoever repeats it takes it up again.
    InDoubt,
    /// As if it had never been sent.
    Forgotten,
}

/// The same command sent again while it is in flight.
#[derive(Debug)]
pub(super) struct JoinedRepeat {
    pub(super) submission: PiServerSubmission,
    /// Whether it has an id that nobody had used.
    pub(super) id_is_new: bool,
}

/// One admitted command that is not announced yet.
#[derive(Debug)]
pub(super) struct AdmittedCommand {
    pub(super) submission: PiServerSubmission,
    /// With its scope, as [`error_texts::scoped`] writes it.
    pub(super) key: Option<Box<str>>,
    pub(super) place: LanePlace,
    pub(super) phase: CommandPhase,
    pub(super) started: bool,
    pub(super) accepted_at: i64,
    /// Whether it has a lane for itself.
    pub(super) holds_lane: bool,
    /// Whether its dependencies are known to be met or waited for.
    pub(super) evaluated: bool,
    pub(super) waits: Vec<DependencyWait>,
    /// When its time is over, in whatever phase.
    pub(super) deadline: Option<i64>,
    pub(super) wait_deadline: Option<i64>,
    /// The one in doubt that it takes up.
    pub(super) taken_up: Option<Box<RememberedCommand>>,
    /// Whether its own id is not that of the one it takes up.
    pub(super) id_is_alias: bool,
    pub(super) joined: Vec<JoinedRepeat>,
    pub(super) dependents: BTreeSet<SubmissionToken>,
}

impl AdmittedCommand {
    pub(super) fn new(
        now: i64,
        submission: PiServerSubmission,
        deadline: Option<i64>,
        taken_up: Option<Box<RememberedCommand>>,
    ) -> Self {
        let key = scoped_key(&submission);
        let is_identified = submission.id.is_some() || submission.key.is_some();
        let is_written_first = is_identified && submission.spec.is_journaled() && taken_up.is_none();
        // One that is taken up goes on where it was: a session minted for the repeat is not its own.
        let session = taken_up.as_ref().and_then(|record| record.session_id.as_deref());
        let session = session.or(submission.session_id.as_deref());
        let place = LanePlace::new(submission.spec, session, is_written_first);
        AdmittedCommand {
            submission,
            key,
            place,
            phase: CommandPhase::Queued,
            started: false,
            accepted_at: now,
            holds_lane: false,
            // The row of one that is taken up was stored when its dependencies had been met.
            evaluated: taken_up.is_some(),
            waits: Vec::new(),
            deadline,
            wait_deadline: None,
            taken_up,
            id_is_alias: false,
            joined: Vec::new(),
            dependents: BTreeSet::new(),
        }
    }

    /// Whether its outcome is kept under a name.
    pub(super) fn is_identified(&self) -> bool {
        self.submission.id.is_some() || self.submission.key.is_some()
    }

    /// Whether its row and outcome must be on disk before anybody hears of them.
    pub(super) fn is_durable(&self) -> bool {
        self.is_identified() && self.submission.spec.is_journaled()
    }

    /// Whether its row is written when its turn comes, before it is done.
    pub(super) fn is_written_first(&self) -> bool {
        self.is_durable() && self.taken_up.is_none()
    }

    /// What becomes of it with this outcome.
    pub(super) fn fate(&self, outcome: &PiServerOutcome) -> CommandFate {
        let is_executing = matches!(self.phase, CommandPhase::Executing);
        if !self.is_identified() {
            CommandFate::Forgotten
        } else if self.taken_up.is_some() && !(is_executing && outcome.settled) {
            // What it did before it was cut off is as little known as before.
            CommandFate::InDoubt
        } else if outcome.settled {
            CommandFate::Kept
        } else if self.is_durable() && is_executing {
            CommandFate::InDoubt
        } else {
            CommandFate::Forgotten
        }
    }

    pub(super) fn is_birth(&self) -> bool {
        is_birth(self.submission.spec)
    }

    /// The name under which the work is done and stored.
    pub(super) fn uid(&self) -> &Arc<str> {
        self.taken_up.as_ref().map_or(&self.submission.uid, |record| &record.uid)
    }

    /// The first dependency that failed, as an error.
    pub(super) fn failed_wait(&self) -> Option<CodedError> {
        self.waits.iter().find_map(|wait| match &wait.state {
            WaitState::Failed(error) => {
                Some(error_texts::dependency_failed(self.dependency(wait.name), error))
            }
            WaitState::Pending | WaitState::Met => None,
        })
    }

    /// The first dependency that is not over.
    pub(super) fn pending_wait(&self) -> Option<&str> {
        let wait = self.waits.iter().find(|wait| matches!(wait.state, WaitState::Pending))?;
        Some(self.dependency(wait.name))
    }

    /// Whether it waits for a command that came later: only then can waiting go round in a circle.
    pub(super) fn waits_forward(&self) -> bool {
        self.waits.iter().any(|wait| wait.on > self.submission.token)
    }

    fn dependency(&self, name: usize) -> &str {
        self.submission.depends_on.get(name).map_or("", String::as_str)
    }
}

/// A submission's key with its scope.
pub(super) fn scoped_key(submission: &PiServerSubmission) -> Option<Box<str>> {
    submission.key.as_deref().map(|key| error_texts::scoped(Admission::scope(submission), key))
}
