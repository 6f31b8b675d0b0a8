//! Sessions that were deleted while their runner was away.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use qd_link::mutex::RwLock;

use crate::hub::Hub;
use crate::runners::link::Link;

/// Deleted sessions that their runner still has. Their names are not free.
#[derive(Default)]
pub(crate) struct Burials(RwLock<HashMap<Arc<str>, Burial>>);

struct Burial {
    runner_id: Arc<str>,
    /// Its rows are gone and its tombstone stands. Before that the runner is told nothing: its answer would free the
    /// name while the tombstone is yet to come.
    is_stored: bool,
    /// Where the runner was told last. Once on each link: a second order could meet the name's next bearer.
    told_on: Weak<Link>,
}

impl Burials {
    pub(crate) fn stored(buried: Vec<(String, String)>) -> Self {
        let burial = |(session_id, runner_id): (String, String)| {
            let burial = Burial { runner_id: runner_id.into(), is_stored: true, told_on: Weak::new() };
            (session_id.into(), burial)
        };
        Self(RwLock::new(buried.into_iter().map(burial).collect()))
    }
}

impl Hub {
    /// The session is being deleted while its runner is away: it does not come back with the runner.
    pub(crate) fn bury(&self, session_id: &Arc<str>, runner_id: &Arc<str>) {
        let burial = Burial { runner_id: Arc::clone(runner_id), is_stored: false, told_on: Weak::new() };
        self.burials.0.write().insert(Arc::clone(session_id), burial);
    }

    /// Its tombstone stands: the runner may be told.
    pub(crate) fn note_buried(&self, session_id: &str) {
        if let Some(burial) = self.burials.0.write().get_mut(session_id) {
            burial.is_stored = true;
        }
    }

    pub(crate) fn unbury(&self, session_id: &str) {
        self.burials.0.write().remove(session_id);
    }

    /// The runner that still has a deleted session.
    pub(crate) fn buried_at(&self, session_id: &str) -> Option<Arc<str>> {
        let burials = self.burials.0.read();
        burials.get(session_id).map(|burial| Arc::clone(&burial.runner_id))
    }

    /// The deleted sessions that a runner may be told of.
    pub(crate) fn buried_of(&self, runner_id: &str) -> Vec<Arc<str>> {
        let burials = self.burials.0.read();
        let of_runner =
            burials.iter().filter(|(_, burial)| burial.is_stored && *burial.runner_id == *runner_id);
        of_runner.map(|(session_id, _)| Arc::clone(session_id)).collect()
    }

    /// Those of them that it was not told of on this link; it counts as told from now on.
    pub(crate) fn buried_to_tell(&self, runner_id: &str, link: &Arc<Link>) -> Vec<Arc<str>> {
        let mut burials = self.burials.0.write();
        let untold = burials.iter_mut().filter(|(_, burial)| {
            burial.is_stored
                && *burial.runner_id == *runner_id
                && !std::ptr::eq(burial.told_on.as_ptr(), Arc::as_ptr(link))
        });
        let told = untold.map(|(session_id, burial)| {
            burial.told_on = Arc::downgrade(link);
            Arc::clone(session_id)
        });
        told.collect()
    }

    /// Whether the runner was told on this link to delete the session.
    pub(crate) fn is_burial_told(&self, session_id: &str, link: &Arc<Link>) -> bool {
        let burials = self.burials.0.read();
        let burial = burials.get(session_id);
        burial.is_some_and(|burial| std::ptr::eq(burial.told_on.as_ptr(), Arc::as_ptr(link)))
    }
}
