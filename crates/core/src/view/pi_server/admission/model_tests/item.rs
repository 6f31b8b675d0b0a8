//! What the model keeps lists of.

use std::sync::Arc;

use qd_wire::command_table::Lane;

use super::super::{Outcome, Submission, Token};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    InLine,
    Aside,
    Writing,
    Working,
    Keeping(Outcome, i64),
    /// A repeat of a command in flight; whether its id is a new one.
    Echo(Token, bool),
}

#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) submission: Submission,
    pub(super) state: State,
    pub(super) at_turn: bool,
    pub(super) started: bool,
    pub(super) checked: bool,
    pub(super) awaited: Vec<(String, Token)>,
    pub(super) ends: Option<i64>,
    pub(super) waits_until: Option<i64>,
    pub(super) again: Option<Row>,
    pub(super) own_id_is_new: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) uid: Arc<str>,
    pub(super) principal: Arc<str>,
    pub(super) id: Option<String>,
    pub(super) key: Option<(String, String)>,
    pub(super) fingerprint: [u8; 32],
    pub(super) command: String,
    pub(super) done: Option<(i64, Outcome)>,
}

pub(super) fn scope(submission: &Submission) -> String {
    match (&submission.session_id, submission.names_session) {
        (Some(session), true) => session.clone(),
        _ => "_server_".into(),
    }
}

pub(super) fn key_of(submission: &Submission) -> Option<(String, String)> {
    submission.key.clone().map(|key| (scope(submission), key))
}

pub(super) fn failed(error: String) -> Outcome {
    Outcome { error: Some(error.into()), ..Outcome::default() }
}

impl Item {
    pub(super) fn identified(&self) -> bool {
        self.submission.id.is_some() || self.submission.key.is_some()
    }

    pub(super) fn durable(&self) -> bool {
        self.identified() && self.submission.spec.mutating
    }

    pub(super) fn lane(&self) -> Option<(bool, &str)> {
        let session = self.submission.session_id.as_deref();
        match self.submission.spec.lane {
            Lane::Session => Some((true, session.unwrap_or(""))),
            Lane::Shell => Some((false, session.unwrap_or(""))),
            Lane::Control | Lane::Read => None,
        }
    }

    pub(super) fn births(&self, session: &str) -> bool {
        ["create_session", "load_session"].contains(&self.submission.spec.name)
            && self.submission.session_id.as_deref() == Some(session)
            && (self.state == State::InLine || self.at_turn)
    }

    pub(super) fn undecided(&self) -> bool {
        !matches!(self.state, State::Keeping(..) | State::Echo(..))
    }

    pub(super) fn uid(&self) -> Arc<str> {
        self.again.as_ref().map_or(self.submission.uid.clone(), |row| row.uid.clone())
    }

    /// Whether this id or key stands for this command now.
    pub(super) fn has_id(&self, principal: &str, id: &str) -> bool {
        let own = self.submission.id.as_deref() == Some(id);
        *self.submission.principal == *principal
            && match (&self.state, &self.again) {
                (State::Echo(_, id_is_new), _) => own && *id_is_new,
                (_, Some(row)) => row.id.as_deref() == Some(id) || (own && self.own_id_is_new),
                _ => own,
            }
    }

    pub(super) fn has_key(&self, principal: &str, key: &(String, String)) -> bool {
        *self.submission.principal == *principal
            && match (&self.state, &self.again) {
                (State::Echo(..), _) => false,
                (_, Some(row)) => row.key.as_ref() == Some(key),
                _ => key_of(&self.submission).as_ref() == Some(key),
            }
    }
}

impl Row {
    pub(super) fn bytes(&self) -> usize {
        let outcome = self.done.as_ref().map_or(0, |(_, outcome)| {
            outcome.data.as_ref().map_or(0, |data| data.len())
                + outcome.error.as_ref().map_or(0, |error| error.len())
        });
        let key = self.key.as_ref().map(|(scope, key)| format!("{}:{scope}{key}", scope.len()));
        outcome + self.id.as_ref().map_or(0, |id| id.len()) + key.map_or(0, |key| key.len())
    }
}

pub(super) fn item(submission: Submission, state: State, ends: Option<i64>) -> Item {
    Item {
        submission,
        state,
        at_turn: false,
        started: false,
        checked: false,
        awaited: Vec::new(),
        ends,
        waits_until: None,
        again: None,
        own_id_is_new: false,
    }
}

pub(super) fn row(submission: &Submission, finished_at: i64, outcome: &Outcome) -> Row {
    Row {
        uid: submission.uid.clone(),
        principal: submission.principal.clone(),
        id: submission.id.clone(),
        key: key_of(submission),
        fingerprint: submission.fingerprint,
        command: submission.spec.name.to_owned(),
        done: Some((finished_at, outcome.clone())),
    }
}
