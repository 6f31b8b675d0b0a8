//! What our extension inside pi has told the driver.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use qd_core::harness::pi::{BridgeWord, PiNavigated, PiTool};

/// Kept for whoever asks; the words themselves go to no session.
#[derive(Default)]
pub(super) struct Bridge {
    tools: Mutex<Option<Vec<PiTool>>>,
    /// Navigations under way, and what became of them.
    navigations: Mutex<BTreeMap<String, Option<Result<PiNavigated, String>>>>,
}

impl Bridge {
    /// Takes a word of the extension.
    pub(super) fn hear(&self, word: BridgeWord) {
        match word {
            BridgeWord::Tools(tools) => *lock(&self.tools) = Some(tools),
            BridgeWord::Navigated { id, result } => {
                // Only what we asked for is kept, so that nobody can fill the list.
                if let Some(place) = lock(&self.navigations).get_mut(&id) {
                    *place = Some(result);
                }
            }
        }
    }

    /// Whether the extension runs: it tells the tools as soon as it does.
    pub(super) fn is_loaded(&self) -> bool {
        lock(&self.tools).is_some()
    }

    pub(super) fn tools(&self) -> Option<Vec<PiTool>> {
        lock(&self.tools).clone()
    }

    /// Makes room for the result of a navigation; it is forgotten with the returned value.
    pub(super) fn expect(&self, id: String) -> Expected<'_> {
        lock(&self.navigations).insert(id.clone(), None);
        Expected { bridge: self, id }
    }
}

/// A navigation under way.
pub(super) struct Expected<'a> {
    bridge: &'a Bridge,
    id: String,
}

impl Expected<'_> {
    /// What became of it, if the extension has said so.
    pub(super) fn result(&self) -> Option<Result<PiNavigated, String>> {
        lock(&self.bridge.navigations).get_mut(&self.id)?.take()
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        lock(&self.bridge.navigations).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
