//! The calls under way, so that they can be ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use qd_wire::command_table::CommandClass;
use qd_wire::{CodedError, Command, ErrorCode};

use super::error::Cancel;
use crate::session::{Incoming, Shared};

/// Calls under way at once, those included that wait for their turn or for a person; more are refused.
const CALLS_MAX: usize = 1024;

/// By the connection a command came by, its id, and a number of ours: ids may be repeated.
type Name = (u64, String, u64);

/// All calls of a runner.
#[derive(Default)]
pub(crate) struct Calls(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    calls: BTreeMap<Name, Known>,
}

struct Known {
    cancel: Cancel,
    kind: Kind,
    /// A person is asked.
    is_waiting: bool,
}

/// What ends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nobody needs what nobody hears.
    Read,
    /// It finishes what it has begun.
    Change,
    /// A shell command: its own client ends it, a lost link to the hub does not.
    Shell,
}

/// A call's place in the list, given back on drop.
pub(crate) struct Entry {
    shared: Arc<Shared>,
    name: Name,
    cancel: Cancel,
}

impl Calls {
    pub(crate) fn begin(
        &self,
        shared: &Arc<Shared>,
        incoming: &Incoming,
        command: &Command,
    ) -> Result<Entry, CodedError> {
        self.add(shared, incoming.origin, &incoming.link_id, command)
    }

    pub(crate) fn add(
        &self,
        shared: &Arc<Shared>,
        origin: u64,
        link_id: &str,
        command: &Command,
    ) -> Result<Entry, CodedError> {
        let mut state = self.lock();
        if state.calls.len() >= CALLS_MAX {
            let error = format!("The runner has {CALLS_MAX} service calls under way. Please retry later.");
            return Err(ErrorCode::Busy.with(error));
        }
        state.next += 1;
        let name = (origin, link_id.to_owned(), state.next);
        let cancel = Cancel::default();
        let kind = match command.spec().class {
            CommandClass::Execute => Kind::Shell,
            CommandClass::Change => Kind::Change,
            _ => Kind::Read,
        };
        let known = Known { cancel: cancel.clone(), kind, is_waiting: false };
        state.calls.insert(name.clone(), known);
        Ok(Entry { shared: Arc::clone(shared), name, cancel })
    }

    /// Ends the calls with this id; a question to a person is taken back only if the asker wants that.
    pub(crate) fn cancel(&self, origin: u64, target: &str, withdraw: bool) -> bool {
        let state = self.lock();
        let mut is_found = false;
        for (name, known) in state.calls.range((origin, target.to_owned(), 0)..) {
            if name.0 != origin || name.1 != target {
                break;
            }
            is_found = true;
            if withdraw || !known.is_waiting {
                known.cancel.cancel();
            }
        }
        is_found
    }

    /// The connection has ended. `is_asker`: whoever asked was at its other end.
    pub(crate) fn gone(&self, origin: u64, is_asker: bool) {
        let state = self.lock();
        for (_, known) in state.calls.range((origin, String::new(), 0)..(origin + 1, String::new(), 0)) {
            let is_unwanted = match known.kind {
                Kind::Read => true,
                Kind::Shell => is_asker,
                Kind::Change => false,
            };
            if is_unwanted && !known.is_waiting {
                known.cancel.cancel();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    pub(crate) fn cancel(&self) -> &Cancel {
        &self.cancel
    }

    /// The call waits for a person, or no more.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        if let Some(known) = self.shared.services.calls.lock().calls.get_mut(&self.name) {
            known.is_waiting = is_waiting;
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.services.calls.lock().calls.remove(&self.name);
    }
}
