//! Sessions that were deleted while their runner was away.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use qd_link::mutex::RwLock;

use crate::hub::Hub;
use crate::runners::link::RunnerLink;

/// Deleted sessions that their runner still has. Their names are not free.
#[derive(Default)]
pub(crate) struct DeletedSessions(RwLock<HashMap<Arc<str>, DeletedSession>>);

struct DeletedSession {
    runner_id: Arc<str>,
    /// Its rows are gone and its tombstone stands. Before that the runner is told nothing: its answer would free the
    /// name while the tombstone is yet to come.
    is_stored: bool,
    /// Where the runner was told last. Once on each link: a second order could meet the name's next bearer.
    ordered_on: Weak<RunnerLink>,
}

impl DeletedSessions {
    pub(crate) fn stored(deleted: Vec<(String, String)>) -> Self {
        let deletion = |(session_id, runner_id): (String, String)| {
            let deletion =
                DeletedSession { runner_id: runner_id.into(), is_stored: true, ordered_on: Weak::new() };
            (session_id.into(), deletion)
        };
        Self(RwLock::new(deleted.into_iter().map(deletion).collect()))
    }
}

impl Hub {
    /// The session is being deleted while its runner is away: it does not come back with the runner.
    pub(crate) fn mark_deleted(&self, session_id: &Arc<str>, runner_id: &Arc<str>) {
        let deletion =
            DeletedSession { runner_id: Arc::clone(runner_id), is_stored: false, ordered_on: Weak::new() };
        self.deleted_sessions.0.write().insert(Arc::clone(session_id), deletion);
    }

    /// Its tombstone stands: the runner may be told.
    pub(crate) fn note_deletion_stored(&self, session_id: &str) {
        if let Some(deletion) = self.deleted_sessions.0.write().get_mut(session_id) {
            deletion.is_stored = true;
        }
    }

    pub(crate) fn forget_deleted(&self, session_id: &str) {
        self.deleted_sessions.0.write().remove(session_id);
    }

    /// The runner that still has a deleted session.
    pub(crate) fn deleted_on(&self, session_id: &str) -> Option<Arc<str>> {
        let deleted_sessions = self.deleted_sessions.0.read();
        deleted_sessions.get(session_id).map(|deletion| Arc::clone(&deletion.runner_id))
    }

    /// The deleted sessions that a runner may be told of.
    pub(crate) fn deleted_sessions_of(&self, runner_id: &str) -> Vec<Arc<str>> {
        let deleted_sessions = self.deleted_sessions.0.read();
        let of_runner = deleted_sessions
            .iter()
            .filter(|(_, deletion)| deletion.is_stored && *deletion.runner_id == *runner_id);
        of_runner.map(|(session_id, _)| Arc::clone(session_id)).collect()
    }

    /// Those of them that it was not told of on this link; it counts as told from now on.
    pub(crate) fn deleted_to_order(&self, runner_id: &str, link: &Arc<RunnerLink>) -> Vec<Arc<str>> {
        let mut deleted_sessions = self.deleted_sessions.0.write();
        let untold = deleted_sessions.iter_mut().filter(|(_, deletion)| {
            deletion.is_stored
                && *deletion.runner_id == *runner_id
                && !std::ptr::eq(deletion.ordered_on.as_ptr(), Arc::as_ptr(link))
        });
        let told = untold.map(|(session_id, deletion)| {
            deletion.ordered_on = Arc::downgrade(link);
            Arc::clone(session_id)
        });
        told.collect()
    }

    /// Whether the runner was told on this link to delete the session.
    pub(crate) fn is_deletion_ordered(&self, session_id: &str, link: &Arc<RunnerLink>) -> bool {
        let deleted_sessions = self.deleted_sessions.0.read();
        let deletion = deleted_sessions.get(session_id);
        deletion.is_some_and(|deletion| std::ptr::eq(deletion.ordered_on.as_ptr(), Arc::as_ptr(link)))
    }
}
