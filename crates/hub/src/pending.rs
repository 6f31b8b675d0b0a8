//! Commands on their way: sent to a runner and not answered yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::connection::{Mail, Mailbox};
use crate::reads::HubCommand;
use crate::reply::ReplyTo;
use crate::runner_link::Outbox;

/// How often time limits are looked at while commands are on their way.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// One command that a runner has to answer.
pub(crate) struct Pending {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) reply: ReplyTo,
    pub(crate) runner_id: Arc<str>,
    /// The link it went to; a runner that comes again has another one.
    pub(crate) link: Arc<Outbox>,
    pub(crate) mutating: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) kind: PendingKind,
}

/// What to do with the answer.
pub(crate) enum PendingKind {
    /// Pass it on.
    Plain,
    Attach {
        after: Option<u64>,
    },
    Create,
    Delete,
    /// The runner has checked the dependencies of a command the hub answers itself.
    Barrier(Box<HubCommand>),
    /// Asked by the hub for a client that fell behind; the client sent nothing.
    Resync {
        after: u64,
        generation: u64,
    },
}

impl Pending {
    /// Answers with a failure, in the way the asker expects.
    pub(crate) fn fail(self, error: &str, is_outcome_unknown: bool) {
        let mail = match self.kind {
            PendingKind::Resync { generation, .. } => {
                return self.mailbox.put(Mail::ResyncFailed { generation, is_session_gone: false });
            }
            _ if is_outcome_unknown && self.mutating => Mail::Frames(self.reply.indeterminate(error)),
            _ => Mail::Frames(self.reply.error(error)),
        };
        self.mailbox.answer(mail);
    }
}

#[derive(Default)]
pub(crate) struct PendingTable {
    state: Mutex<PendingState>,
    filled: Notify,
}

#[derive(Default)]
struct PendingState {
    last: u64,
    commands: HashMap<u64, Pending>,
}

impl PendingTable {
    /// Keeps a command and gives the number its answer will name, as `h<number>`.
    pub(crate) fn insert(&self, pending: Pending) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        let number = state.last;
        let has_deadline = pending.deadline.is_some();
        state.commands.insert(number, pending);
        drop(state);
        if has_deadline {
            self.filled.notify_one();
        }
        number
    }

    pub(crate) fn remove(&self, number: u64) -> Option<Pending> {
        self.lock().commands.remove(&number)
    }

    /// The command an answer belongs to, if it still waits.
    pub(crate) fn remove_by_id(&self, id: &str) -> Option<Pending> {
        self.remove(id.strip_prefix('h')?.parse().ok()?)
    }

    /// Whether an answer of this id is one to a delete.
    pub(crate) fn is_delete(&self, id: &str) -> bool {
        let Some(number) = id.strip_prefix('h').and_then(|number| number.parse::<u64>().ok()) else {
            return false;
        };
        let state = self.lock();
        state.commands.get(&number).is_some_and(|pending| matches!(pending.kind, PendingKind::Delete))
    }

    /// All commands that will never be answered now that their link is over.
    pub(crate) fn remove_of_link(&self, link: &Arc<Outbox>) -> Vec<Pending> {
        self.remove_where(|pending| Arc::ptr_eq(&pending.link, link))
    }

    /// Fails commands whose time has passed, for ever. Sleeps without a timer while there is none with a limit.
    pub(crate) async fn sweep(&self) {
        loop {
            self.filled.notified().await;
            while self.lock().commands.values().any(|pending| pending.deadline.is_some()) {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let now = Instant::now();
                let late =
                    self.remove_where(|pending| pending.deadline.is_some_and(|deadline| deadline <= now));
                for pending in late {
                    let error = format!(
                        "Runner {} did not answer '{}' in time; it may still do it: ask again or look at the session",
                        pending.runner_id, pending.reply.cmd
                    );
                    pending.fail(&error, true);
                }
            }
        }
    }

    fn remove_where(&self, test: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut state = self.lock();
        state.commands.extract_if(|_, pending| test(pending)).map(|(_, pending)| pending).collect()
    }

    fn lock(&self) -> MutexGuard<'_, PendingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
