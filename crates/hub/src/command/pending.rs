//! Commands on their way: sent to a runner and not answered yet.

use std::collections::HashMap;
use std::sync::Arc;

use qd_link::mutex::Mutex;
use qd_wire::{CodedError, ErrorCode};
use serde_json::value::RawValue;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use crate::access::audit::CommandNote;
use crate::command::ask::{CommandAnswer, OnAnswer, OnProgress};
use crate::command::reply::ReplyTo;
use crate::command::{WaitingCommand, id_text};
use crate::connection::{ConnectionMail, Mailbox};
use crate::hub::Hub;
use crate::runners::link::RunnerSendQueue;
use crate::sessions::reads::HubCommand;

/// Bytes of commands that may wait for their runners, all connections together.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// How often time limits are looked at while commands are on their way.
const SWEEP_INTERVAL: Duration = Duration::from_millis(500);

/// What may wait for a client when it is told how far its command is; what would be more is not told.
const PROGRESS_BACKLOG_MAX: usize = 1 << 20;

/// One command that a runner has to answer.
pub(crate) struct PendingCommand {
    pub(crate) to: AnswerTo,
    pub(crate) runner_id: Arc<str>,
    /// The link it went to; a runner that comes again has another one.
    pub(crate) link: Arc<RunnerSendQueue>,
    pub(crate) mutating: bool,
    /// A service of the machine: it may say how far it is, and is taken back when nobody waits for it any more.
    pub(crate) is_service: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) kind: PendingKind,
    /// Of a command that changes something: goes into the audit when it is known how it ended.
    pub(crate) note: Option<Box<CommandNote>>,
}

/// Who gets the answer.
pub(crate) enum AnswerTo {
    Client {
        mailbox: Arc<Mailbox>,
        reply: ReplyTo,
    },
    /// A face of the hub itself, which follows nothing by this.
    Face {
        cmd: &'static str,
        session_id: Option<Arc<str>>,
        on_answer: OnAnswer,
        on_progress: Option<OnProgress>,
    },
}

impl AnswerTo {
    fn cmd(&self) -> &str {
        match self {
            AnswerTo::Client { reply, .. } => &reply.cmd,
            AnswerTo::Face { cmd, .. } => cmd,
        }
    }
}

/// What to do with the answer.
pub(crate) enum PendingKind {
    /// Pass it on.
    Plain,
    Attach {
        after: Option<u64>,
    },
    Create,
    /// A face's: what the session said before is stored and told before the answer, whatever that takes.
    InOrder,
    Delete,
    /// The runner has checked the dependencies of a command the hub answers itself.
    Barrier(Box<HubCommand>),
    /// Asked by the hub for a client that fell behind; the client sent nothing.
    Resync {
        after: u64,
        generation: u64,
    },
    /// Asked by the hub when a runner is back; the answer is for all who follow the session.
    ResyncAll,
}

impl PendingKind {
    /// Whether its success gives the connection one more session to follow.
    pub(crate) fn attaches(&self) -> bool {
        matches!(self, PendingKind::Attach { .. } | PendingKind::Create)
    }

    /// The number after which the asker wants records, and the generation of a client that fell behind.
    pub(crate) fn cursor(&self) -> (Option<u64>, Option<u64>) {
        match *self {
            PendingKind::Attach { after } => (after, None),
            PendingKind::Resync { after, generation } => (Some(after), Some(generation)),
            PendingKind::Plain
            | PendingKind::Create
            | PendingKind::InOrder
            | PendingKind::Delete
            | PendingKind::Barrier(_)
            | PendingKind::ResyncAll => (None, None),
        }
    }
}

impl PendingCommand {
    /// The client that asked.
    pub(crate) fn client(&self) -> Option<(&Arc<Mailbox>, &ReplyTo)> {
        match &self.to {
            AnswerTo::Client { mailbox, reply } => Some((mailbox, reply)),
            AnswerTo::Face { .. } => None,
        }
    }

    /// Answers with a failure, in the way the asker expects.
    pub(crate) fn fail(self, hub: &Arc<Hub>, error: &CodedError, is_outcome_unknown: bool) {
        let why = if is_outcome_unknown { NoAnswerReason::LinkLost } else { NoAnswerReason::Refused };
        self.fail_as(hub, error, why);
    }

    /// The runner has answered, which says how the command ended.
    pub(crate) fn note_answer(&mut self, hub: &Arc<Hub>, session_id: Option<&str>, ok: bool) {
        if let Some(note) = self.note.take() {
            note.put(hub, session_id, Some(ok));
        }
    }

    fn fail_as(mut self, hub: &Arc<Hub>, error: &CodedError, why: NoAnswerReason) {
        // What never got to the runner has changed nothing; of the rest nobody knows.
        if let Some(note) = self.note.take().filter(|_| why != NoAnswerReason::Refused) {
            note.put(hub, None, None);
        }
        let indeterminate = why != NoAnswerReason::Refused && self.mutating;
        let error = &match indeterminate {
            true => ErrorCode::Indeterminate.with(error.message.as_str()),
            false => error.clone(),
        };
        match self.to {
            AnswerTo::Client { mailbox, reply } => {
                let frames = match self.kind {
                    PendingKind::Resync { generation, .. } => {
                        return mailbox
                            .put(ConnectionMail::ResyncFailed { generation, is_session_gone: false });
                    }
                    PendingKind::ResyncAll => return,
                    _ if indeterminate => reply.indeterminate(error),
                    PendingKind::Plain
                    | PendingKind::Attach { .. }
                    | PendingKind::Create
                    | PendingKind::InOrder
                    | PendingKind::Delete
                    | PendingKind::Barrier(_) => reply.error(error),
                };
                mailbox.send_answer(frames, self.kind.attaches());
            }
            AnswerTo::Face { session_id, on_answer, .. } => {
                let answered = CommandAnswer {
                    indeterminate,
                    timed_out: why == NoAnswerReason::TimedOut,
                    link_lost: why == NoAnswerReason::LinkLost,
                    session_id: session_id.map(|session_id| session_id.to_string()),
                    runner_id: Some(self.runner_id),
                    ..CommandAnswer::failure(error.clone())
                };
                on_answer(hub, answered);
            }
        }
    }
}

/// Why there is no answer of the runner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NoAnswerReason {
    /// It was not done.
    Refused,
    /// The runner may have done it, and can say so when it is back.
    LinkLost,
    TimedOut,
}

/// The number in an id of ours.
fn number_of(id: &str) -> Option<u64> {
    id.strip_prefix('h')?.parse().ok()
}

#[derive(Default)]
pub(crate) struct PendingCommands {
    state: Mutex<PendingCommandTable>,
    filled: Notify,
}

#[derive(Default)]
struct PendingCommandTable {
    last: u64,
    commands: HashMap<u64, PendingCommand>,
    /// Commands whose runner is away, in the order they came.
    waiting: Vec<WaitingCommand>,
}

impl PendingCommands {
    /// Keeps a command and gives the number its answer will name, as `h<number>`.
    pub(crate) fn insert(&self, pending: PendingCommand) -> u64 {
        let mut state = self.state.lock();
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

    pub(crate) fn remove(&self, number: u64) -> Option<PendingCommand> {
        self.state.lock().commands.remove(&number)
    }

    /// The command that an answer from this link belongs to, if it still waits. One of another link's is not given:
    /// a runner answers its own commands only.
    pub(crate) fn remove_answered(&self, id: &str, link: &Arc<RunnerSendQueue>) -> Option<PendingCommand> {
        let number = number_of(id)?;
        let mut state = self.state.lock();
        let is_own = |pending: &PendingCommand| Arc::ptr_eq(&pending.link, link);
        state.commands.get(&number).is_some_and(is_own).then(|| state.commands.remove(&number))?
    }

    /// Passes on how far a command has come, as long as its asker keeps up.
    pub(crate) fn progress(&self, hub: &Arc<Hub>, id: &str, link: &Arc<RunnerSendQueue>, data: &RawValue) {
        let told = {
            let state = self.state.lock();
            let pending = number_of(id).and_then(|number| state.commands.get(&number));
            let Some(pending) = pending.filter(|pending| Arc::ptr_eq(&pending.link, link)) else { return };
            match &pending.to {
                AnswerTo::Client { mailbox, reply } => {
                    mailbox.put_unless_full(reply.progress(data.get()), PROGRESS_BACKLOG_MAX);
                    return;
                }
                AnswerTo::Face { on_progress, .. } => on_progress.clone(),
            }
        };
        // Not under the lock: it may ask for something itself.
        if let Some(told) = told {
            told(hub, data);
        }
    }

    /// The number and the link of the command that this client sent under this id, if it waits for its answer.
    pub(crate) fn of_client(&self, mailbox: &Arc<Mailbox>, id: &str) -> Option<(u64, Arc<RunnerSendQueue>)> {
        let is_it = |pending: &PendingCommand| {
            pending.client().is_some_and(|(owner, reply)| {
                Arc::ptr_eq(owner, mailbox) && reply.id.as_deref().is_some_and(|it| id_text(it) == id)
            })
        };
        let state = self.state.lock();
        let mut found = state.commands.iter().filter(|(_, pending)| is_it(pending));
        found.next().map(|(number, pending)| (*number, Arc::clone(&pending.link)))
    }

    /// The link a command of a face went to, if it waits for its answer.
    pub(crate) fn link_of(&self, number: u64) -> Option<Arc<RunnerSendQueue>> {
        self.state.lock().commands.get(&number).map(|pending| Arc::clone(&pending.link))
    }

    /// Services that a client waits for which has gone.
    pub(crate) fn services_of(&self, mailbox: &Arc<Mailbox>) -> Vec<(u64, Arc<RunnerSendQueue>)> {
        let is_its = |pending: &PendingCommand| {
            pending.is_service && pending.client().is_some_and(|(owner, _)| Arc::ptr_eq(owner, mailbox))
        };
        let state = self.state.lock();
        let found = state.commands.iter().filter(|(_, pending)| is_its(pending));
        found.map(|(number, pending)| (*number, Arc::clone(&pending.link))).collect()
    }

    /// Whether an answer of this id, from this link, is one to a delete.
    pub(crate) fn is_delete(&self, id: &str, link: &Arc<RunnerSendQueue>) -> bool {
        let state = self.state.lock();
        let pending = number_of(id).and_then(|number| state.commands.get(&number));
        pending.is_some_and(|pending| {
            Arc::ptr_eq(&pending.link, link) && matches!(pending.kind, PendingKind::Delete)
        })
    }

    /// Keeps a command until its runner comes; false when too many bytes wait already.
    pub(crate) fn keep_waiting(&self, waiting: WaitingCommand) -> bool {
        let mut state = self.state.lock();
        let bytes: usize = state.waiting.iter().map(WaitingCommand::bytes).sum();
        if bytes + waiting.bytes() > WAITING_BYTES_MAX {
            return false;
        }
        state.waiting.push(waiting);
        drop(state);
        self.filled.notify_one();
        true
    }

    /// Takes out the waiting commands that pass the test, in their order.
    pub(crate) fn take_waiting(&self, mut test: impl FnMut(&WaitingCommand) -> bool) -> Vec<WaitingCommand> {
        self.state.lock().waiting.extract_if(.., |waiting| test(waiting)).collect()
    }

    /// Puts back those whose runner has not come after all; they stay in front.
    pub(crate) fn put_back(&self, mut waiting: Vec<WaitingCommand>) {
        let mut state = self.state.lock();
        waiting.append(&mut state.waiting);
        state.waiting = waiting;
    }

    /// All commands that will never be answered now that their link is over.
    pub(crate) fn remove_of_link(&self, link: &Arc<RunnerSendQueue>) -> Vec<PendingCommand> {
        self.remove_where(|pending| Arc::ptr_eq(&pending.link, link))
    }

    /// Fails commands whose time has passed, for ever. Sleeps without a timer while there is none with a limit.
    pub(crate) async fn sweep(&self, hub: &Arc<Hub>) {
        loop {
            self.filled.notified().await;
            while self.has_deadlines() {
                tokio::time::sleep(SWEEP_INTERVAL).await;
                let now = Instant::now();
                self.take_waiting(|waiting| waiting.mailbox.is_closed());
                for waiting in self.take_waiting(|waiting| waiting.deadline <= now) {
                    waiting.expire();
                }
                let late =
                    self.remove_where(|pending| pending.deadline.is_some_and(|deadline| deadline <= now));
                for pending in late {
                    let error = ErrorCode::TimedOut.with(format!(
                        "Runner {} did not answer '{}' in time; it may still do it: ask again or look at the session",
                        pending.runner_id,
                        pending.to.cmd()
                    ));
                    pending.fail_as(hub, &error, NoAnswerReason::TimedOut);
                }
            }
        }
    }

    fn has_deadlines(&self) -> bool {
        let state = self.state.lock();
        !state.waiting.is_empty() || state.commands.values().any(|pending| pending.deadline.is_some())
    }

    fn remove_where(&self, test: impl Fn(&PendingCommand) -> bool) -> Vec<PendingCommand> {
        let mut state = self.state.lock();
        state.commands.extract_if(|_, pending| test(pending)).map(|(_, pending)| pending).collect()
    }
}
