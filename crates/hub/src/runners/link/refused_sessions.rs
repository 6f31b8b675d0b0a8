//! Sessions of which this link takes nothing, because their names belong to another runner or are out of bounds. The
//! runner is told once for each; repeating it for every event would cost more than the events.

use std::collections::HashSet;
use std::sync::Arc;

use qd_wire::link::{LinkLine, RefusedSession};
use qd_wire::{CodedError, ErrorCode};

use super::{RunnerIdentity, RunnerLink, line_of};

/// Names of refused sessions that are remembered, so that each is told and logged once. A runner that names more
/// than these is told nothing about the rest; none of it is taken either way.
const REFUSED_MAX: usize = 4096;

/// The sessions of which this link takes nothing.
pub(super) struct RefusedSessions {
    link: Arc<RunnerLink>,
    identity: RunnerIdentity,
    sessions: HashSet<Box<str>>,
}

impl RefusedSessions {
    pub(super) fn new(link: Arc<RunnerLink>, identity: RunnerIdentity) -> Self {
        Self { link, identity, sessions: HashSet::new() }
    }

    pub(super) fn has(&self, session_id: &str) -> bool {
        !self.sessions.is_empty() && self.sessions.contains(session_id)
    }

    /// The session is gone; what comes under its name is another one.
    pub(super) fn forget(&mut self, session_id: &str) {
        self.sessions.remove(session_id);
    }

    /// Refuses a session, and tells the runner so if it does not know it yet.
    pub(super) fn refuse(&mut self, session_id: &str, error: CodedError) {
        if !self.note(session_id, &error.message) {
            return;
        }
        let line = LinkLine::SessionRefused(refused_session(session_id, error));
        if let Err(error) = self.link.send_queue.push(&line_of(&line)) {
            tracing::debug!(%error, "a runner cannot be told of a refused session");
        }
    }

    /// The same for one that the runner is told of in its welcome. True if that is news.
    pub(super) fn note(&mut self, session_id: &str, reason: &str) -> bool {
        if self.sessions.contains(session_id) || self.sessions.len() >= REFUSED_MAX {
            return false;
        }
        self.sessions.insert(session_id.into());
        let RunnerIdentity { runner_id, peer, .. } = &self.identity;
        tracing::warn!(runner = %runner_id, %peer, session = session_id, reason, "a session is refused");
        true
    }
}

/// What a runner is told of a session that is not taken.
pub(super) fn refused_session(session_id: &str, error: CodedError) -> RefusedSession {
    RefusedSession { session_id: session_id.to_owned(), reason: error.message, code: Some(error.code) }
}

/// Why a session is not this runner's.
pub(super) fn belongs_to(session_id: &str, owner: &str) -> CodedError {
    ErrorCode::WrongRunner.with(format!(
        "Session {session_id} belongs to runner {owner}; give this runner's session another name"
    ))
}
