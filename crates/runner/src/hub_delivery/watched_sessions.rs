//! Which sessions the hub watches in the form of a watching face.

use std::collections::BTreeMap;

/// Sessions that may be watched; the hub can name any, also such as are not there yet.
const WATCHED_MAX: usize = 65_536;

/// The hub's word on each session. Words are numbered: a session that hears them in another order than they were said
/// obeys the last.
#[derive(Default)]
pub(super) struct WatchedSessions {
    sessions: BTreeMap<String, u64>,
    last: u64,
}

impl WatchedSessions {
    /// Takes the hub's word and numbers it.
    pub(super) fn set(&mut self, session_id: &str, on: bool) -> u64 {
        self.last += 1;
        if !on {
            self.sessions.remove(session_id);
        } else if self.sessions.len() < WATCHED_MAX || self.sessions.contains_key(session_id) {
            self.sessions.insert(session_id.to_owned(), self.last);
        }
        self.last
    }

    /// The number of the word by which a session is watched.
    pub(super) fn number_of(&self, session_id: &str) -> Option<u64> {
        self.sessions.get(session_id).copied()
    }

    pub(super) fn forget(&mut self, session_id: &str) {
        self.sessions.remove(session_id);
    }

    /// Ends all of it; says by which word, and for whom.
    pub(super) fn clear(&mut self) -> (u64, Vec<String>) {
        self.last += 1;
        (self.last, std::mem::take(&mut self.sessions).into_keys().collect())
    }
}
