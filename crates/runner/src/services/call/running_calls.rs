//! The calls under way, so that they can be ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use qd_link::mutex::Mutex;
use qd_wire::command_table::CommandClass;
use qd_wire::{CodedError, Command};

use super::Cancellation;
use crate::session::{IncomingCommand, RunnerContext};

/// Calls under way at once, those included that wait for their turn or for a person; more are refused.
const CALLS_MAX: usize = 1024;

/// By the connection a command came by, its id, and a number of ours: ids may be repeated.
type CallName = (u64, String, u64);

/// All calls of a runner.
#[derive(Default)]
pub(crate) struct RunningCalls(Mutex<CallTable>);

#[derive(Default)]
struct CallTable {
    next: u64,
    calls: BTreeMap<CallName, RunningCall>,
}

struct RunningCall {
    cancel: Cancellation,
    kind: CancelRule,
    /// A person is asked.
    is_waiting: bool,
}

/// What ends a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CancelRule {
    /// Nobody needs what nobody hears.
    Read,
    /// It finishes what it has begun.
    Change,
    /// A shell command: its own client ends it, a lost link to the hub does not.
    Shell,
}

/// A call's place in the list, given back on drop.
pub(crate) struct CallRegistration {
    shared: Arc<RunnerContext>,
    name: CallName,
    cancel: Cancellation,
}

impl RunningCalls {
    pub(crate) fn register(
        &self,
        shared: &Arc<RunnerContext>,
        incoming: &IncomingCommand,
        command: &Command,
    ) -> Result<CallRegistration, CodedError> {
        let mut state = self.0.lock();
        if state.calls.len() >= CALLS_MAX {
            refuse!(Busy, "The runner has {CALLS_MAX} service calls under way. Please retry later.");
        }
        state.next += 1;
        let name = (incoming.origin, incoming.link_id.clone(), state.next);
        let cancel = Cancellation::default();
        let kind = match command.spec().class {
            CommandClass::Execute => CancelRule::Shell,
            CommandClass::Change => CancelRule::Change,
            _ => CancelRule::Read,
        };
        let known = RunningCall { cancel: cancel.clone(), kind, is_waiting: false };
        state.calls.insert(name.clone(), known);
        Ok(CallRegistration { shared: Arc::clone(shared), name, cancel })
    }

    /// Ends the calls with this id; a question to a person is taken back only if the asker wants that.
    pub(crate) fn cancel(&self, origin: u64, target: &str, withdraw: bool) -> bool {
        let state = self.0.lock();
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
        let state = self.0.lock();
        for (_, known) in state.calls.range((origin, String::new(), 0)..(origin + 1, String::new(), 0)) {
            let is_unwanted = match known.kind {
                CancelRule::Read => true,
                CancelRule::Shell => is_asker,
                CancelRule::Change => false,
            };
            if is_unwanted && !known.is_waiting {
                known.cancel.cancel();
            }
        }
    }
}

impl CallRegistration {
    pub(crate) fn cancel(&self) -> &Cancellation {
        &self.cancel
    }

    /// The call waits for a person, or no more.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        if let Some(known) = self.shared.services.calls.0.lock().calls.get_mut(&self.name) {
            known.is_waiting = is_waiting;
        }
    }
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        self.shared.services.calls.0.lock().calls.remove(&self.name);
    }
}
