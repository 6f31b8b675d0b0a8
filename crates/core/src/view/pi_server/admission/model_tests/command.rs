//! What the model keeps lists of.

use std::sync::Arc;

use qd_wire::command_table::Lane;
use qd_wire::pi_server::CommandSpec;

use super::super::{PiServerOutcome, PiServerSubmission, SubmissionToken};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelPhase {
    InLine,
    Aside,
    Writing,
    Working,
    Keeping(PiServerOutcome, i64),
    /// A repeat of a command in flight; whether its id is a new one.
    Echo(SubmissionToken, bool),
}

#[derive(Debug, Clone)]
pub(super) struct ModelCommand {
    pub(super) submission: PiServerSubmission,
    pub(super) accepted_at: i64,
    pub(super) state: ModelPhase,
    pub(super) at_turn: bool,
    pub(super) started: bool,
    pub(super) checked: bool,
    pub(super) awaited: Vec<(String, SubmissionToken)>,
    pub(super) ends: Option<i64>,
    pub(super) waits_until: Option<i64>,
    pub(super) again: Option<ModelRow>,
    pub(super) own_id_is_new: bool,
}

#[derive(Debug, Clone)]
pub(super) struct ModelRow {
    pub(super) uid: Arc<str>,
    pub(super) principal: Arc<str>,
    pub(super) id: Option<String>,
    pub(super) key: Option<(String, String)>,
    pub(super) fingerprint: [u8; 32],
    pub(super) command: String,
    pub(super) may_be_lost: bool,
    pub(super) session: Option<String>,
    pub(super) accepted_at: i64,
    pub(super) done: Option<(i64, PiServerOutcome)>,
}

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ending {
    Kept,
    InDoubt,
    Gone,
}

/// Whether a command may be lost: it changes nothing, or is an abort.
pub(super) fn may_be_lost(spec: &CommandSpec) -> bool {
    !spec.mutating || ["abort", "abort_compaction", "abort_retry", "abort_bash"].contains(&spec.name)
}

pub(super) fn scope(submission: &PiServerSubmission) -> String {
    match (&submission.session_id, submission.names_session) {
        (Some(session), true) => session.clone(),
        _ => "_server_".into(),
    }
}

pub(super) fn key_of(submission: &PiServerSubmission) -> Option<(String, String)> {
    submission.key.clone().map(|key| (scope(submission), key))
}

pub(super) fn failed(error: String) -> PiServerOutcome {
    PiServerOutcome { error: Some(error.into()), ..PiServerOutcome::default() }
}

impl ModelCommand {
    pub(super) fn identified(&self) -> bool {
        self.submission.id.is_some() || self.submission.key.is_some()
    }

    pub(super) fn durable(&self) -> bool {
        self.identified() && !may_be_lost(self.submission.spec)
    }

    pub(super) fn session(&self) -> Option<&str> {
        let before = self.again.as_ref().and_then(|row| row.session.as_deref());
        before.or(self.submission.session_id.as_deref())
    }

    /// Whether it is one that must not overtake commands which are still being written down.
    pub(super) fn follows_rows(&self) -> bool {
        self.submission.spec.lane != Lane::Read && (!self.durable() || self.again.is_some())
    }

    pub(super) fn is_birth(&self) -> bool {
        ["create_session", "load_session"].contains(&self.submission.spec.name)
    }

    pub(super) fn is_end(&self) -> bool {
        self.submission.spec.name == "delete_session"
    }

    /// Whether it is at its turn or waits for it, and not for others.
    pub(super) fn is_there(&self) -> bool {
        self.state == ModelPhase::InLine || self.at_turn
    }

    pub(super) fn ending(&self, outcome: &PiServerOutcome) -> Ending {
        let settled = outcome.settled && (self.again.is_none() || self.state == ModelPhase::Working);
        let may_have_begun = self.again.is_some() || (self.durable() && self.state == ModelPhase::Working);
        match self.identified() {
            true if settled => Ending::Kept,
            true if may_have_begun => Ending::InDoubt,
            _ => Ending::Gone,
        }
    }

    pub(super) fn lane(&self) -> Option<(bool, &str)> {
        match self.submission.spec.lane {
            Lane::Session | Lane::Shell => Some((true, self.session()?)),
            Lane::Control | Lane::Read | Lane::Service => None,
        }
    }

    pub(super) fn undecided(&self) -> bool {
        !matches!(self.state, ModelPhase::Keeping(..) | ModelPhase::Echo(..))
    }

    pub(super) fn uid(&self) -> Arc<str> {
        self.again.as_ref().map_or(self.submission.uid.clone(), |row| row.uid.clone())
    }

    /// Whether this id or key stands for this command now.
    pub(super) fn has_id(&self, principal: &str, id: &str) -> bool {
        let own = self.submission.id.as_deref() == Some(id);
        *self.submission.principal == *principal
            && match (&self.state, &self.again) {
                (ModelPhase::Echo(_, id_is_new), _) => own && *id_is_new,
                (_, Some(row)) => row.id.as_deref() == Some(id) || (own && self.own_id_is_new),
                _ => own,
            }
    }

    pub(super) fn has_key(&self, principal: &str, key: &(String, String)) -> bool {
        *self.submission.principal == *principal
            && match (&self.state, &self.again) {
                (ModelPhase::Echo(..), _) => false,
                (_, Some(row)) => row.key.as_ref() == Some(key),
                _ => key_of(&self.submission).as_ref() == Some(key),
            }
    }
}

impl ModelRow {
    pub(super) fn bytes(&self) -> usize {
        let outcome = self.done.as_ref().map_or(0, |(_, outcome)| {
            outcome.data.as_ref().map_or(0, |data| data.len())
                + outcome.error.as_ref().map_or(0, |error| error.len())
        });
        // A key is written with its scope before it, and the length of that.
        let key = self.key.as_ref();
        let key = key.map_or(0, |(scope, key)| 2 + usize::from(scope.len() > 9) + scope.len() + key.len());
        outcome + self.id.as_ref().map_or(0, |id| id.len()) + key
    }
}

pub(super) fn item(now: i64, submission: PiServerSubmission, state: ModelPhase) -> ModelCommand {
    ModelCommand {
        submission,
        accepted_at: now,
        state,
        at_turn: false,
        started: false,
        checked: false,
        awaited: Vec::new(),
        ends: None,
        waits_until: None,
        again: None,
        own_id_is_new: false,
    }
}

pub(super) fn row(
    submission: &PiServerSubmission,
    accepted_at: i64,
    done: Option<(i64, PiServerOutcome)>,
) -> ModelRow {
    ModelRow {
        uid: submission.uid.clone(),
        principal: submission.principal.clone(),
        id: submission.id.clone(),
        key: key_of(submission),
        fingerprint: submission.fingerprint,
        command: submission.spec.name.to_owned(),
        may_be_lost: may_be_lost(submission.spec),
        session: submission.session_id.clone(),
        accepted_at,
        done,
    }
}
