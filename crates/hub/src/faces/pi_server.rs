//! The pi-server document (`specs/pi-server-protocol.md`) as a face of the hub: clients written for it talk to the
//! same sessions as all others. The rules of admission are in `qd_core::view::pi_server`; here is what runs them.

mod client;
mod config;
mod counters;
mod desk;
mod execute;
mod followers;
mod history;
mod journal;
mod lifecycle;
mod messages;
mod metrics;
mod news;
mod order;
mod resync;
mod sessions;
mod speaker;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use qd_core::view::pi_server::admission::{Outcome, Token};
use qd_store::StoreError;
use qd_wire::data::SessionStatus;
use qd_wire::pi_server::ServerShutdown;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::registry::{Hub, SessionEntry};
pub use config::PiServerConfig;
use counters::Counters;
use desk::{After, Desk, Todo};
use followers::Followers;
use journal::{Entry, Journal, Recovery};
pub(crate) use news::SessionNews;
pub(crate) use speaker::PiSpeaker;

/// The timer never sleeps longer; a clock that was set is noticed by then.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The face: one for the whole hub.
pub(crate) struct PiServer {
    config: PiServerConfig,
    /// The first frame of every connection.
    ready: Bytes,
    /// Unix milliseconds.
    started_at: i64,
    /// What the names of this life's rows begin with: they grow with time, and no two lives have the same.
    uid_prefix: String,
    /// The name of a command that has none yet.
    no_uid: Arc<str>,
    desk: Mutex<Desk>,
    followers: Arc<Followers>,
    journal: Arc<Journal>,
    recovery: Mutex<Recovery>,
    counters: Counters,
    /// The timer has to look earlier than it thinks.
    alarm: Notify,
    /// The last command has its answer, when the hub stops.
    idle: Notify,
    /// Cancelled when the hub stops.
    stopping: CancellationToken,
}

impl PiServer {
    pub(crate) fn new(config: PiServerConfig) -> Self {
        let started_at = now_ms();
        let journal = Arc::<Journal>::default();
        Self {
            ready: speaker::ready(&config.server_version, &config.transports),
            started_at,
            uid_prefix: format!("{started_at:012x}-{}", random_hex()),
            no_uid: Arc::from(""),
            desk: Mutex::new(Desk::new(&config, Arc::clone(&journal))),
            followers: Arc::default(),
            journal,
            recovery: Mutex::default(),
            counters: Counters::default(),
            alarm: Notify::new(),
            idle: Notify::new(),
            stopping: CancellationToken::new(),
            config,
        }
    }

    /// Takes over what the store knows: outcomes that are replayed, and commands that were cut off. Called before
    /// the first connection.
    pub(crate) async fn open(&self, hub: &Hub) -> Result<(), StoreError> {
        let recovery = journal::restore(self, hub).await?;
        *self.recovery.lock().unwrap_or_else(PoisonError::into_inner) = recovery;
        let sessions = open_sessions(hub).into_iter().map(|entry| Arc::clone(&entry.id));
        self.desk().know(sessions);
        Ok(())
    }

    /// Keeps time limits and writes behind, for ever.
    pub(crate) async fn keep_going(&self, hub: &Arc<Hub>) {
        tokio::join!(self.keep_time(hub), self.keep_journal(hub), self.journal.keep_writing(hub));
    }

    /// The last rows are written; after that nothing is.
    pub(crate) async fn close(&self, hub: &Hub) {
        self.journal.write(hub).await;
    }

    /// Whole frames (WebSocket text, each an `event` of the document) of a watched session, in stream order.
    pub(crate) fn native(&self, entry: &SessionEntry, frames: &Bytes, count: u64) {
        self.followers.tell(&entry.id, frames, count);
    }

    /// A runner is back: it is told which of its sessions are followed here; what they said while it was away is lost.
    pub(crate) fn runner_is_back(&self, hub: &Arc<Hub>, runner_id: &str) {
        self.followers.watch_all(hub, runner_id);
        for resync in self.followers.catch_up_all(runner_id) {
            self.resync(hub, resync);
        }
    }

    /// A runner is away. Who follows its sessions hears of them again when it is back.
    pub(crate) fn runner_gone(&self, _hub: &Arc<Hub>, _runner_id: &str) {}

    /// The hub stops: tells every connection of this face; no command is taken any more.
    pub(crate) fn goodbye(&self) {
        let timeout_ms = u64::try_from(self.config.shutdown_timeout.as_millis()).unwrap_or(u64::MAX);
        let shutdown = ServerShutdown { reason: "graceful_shutdown".to_owned(), timeout_ms };
        let frames = lifecycle::message("server_shutdown", &lifecycle::json(&shutdown));
        self.stopping.cancel();
        self.desk().say_goodbye(&frames);
    }

    /// The access of a principal was taken back: nothing of it is done any more, and nothing is kept that another one
    /// of its name could find.
    pub(crate) async fn revoke(&self, hub: &Arc<Hub>, principal: &str) -> Result<(), StoreError> {
        let (done, is_done) = oneshot::channel();
        let todo = {
            let mut desk = self.desk();
            let todo = desk.revoke(now_ms(), principal);
            self.journal.push(Entry::Purge { principal: principal.into(), done });
            todo
        };
        self.run(hub, todo);
        is_done.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits until every command has its answer. Called when no new ones are taken.
    pub(crate) async fn when_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.desk().is_idle() {
                return;
            }
            idle.await;
        }
    }

    async fn keep_time(&self, hub: &Arc<Hub>) {
        loop {
            let now = now_ms();
            let todo = {
                let mut desk = self.desk();
                // The timer is awake and needs no alarm.
                desk.alarm_at = Some(i64::MIN);
                let todo = desk.step(now, |admission, effects| admission.tick(now, effects));
                desk.alarm_at = desk.admission.next_deadline();
                todo
            };
            let alarm_at = self.desk().alarm_at;
            self.run(hub, todo);
            match alarm_at {
                None => self.alarm.notified().await,
                Some(at) => {
                    let rest = u64::try_from(at.saturating_sub(now_ms())).unwrap_or(0);
                    let rest = Duration::from_millis(rest.max(1)).min(SLEEP_MAX);
                    tokio::select! {
                        () = sleep(rest) => {}
                        () = self.alarm.notified() => {}
                    }
                }
            }
        }
    }

    /// A command is done.
    fn finish(&self, hub: &Arc<Hub>, token: Token, outcome: Outcome, after: After) {
        let todo = self.desk().finish(now_ms(), token, outcome, after);
        self.run(hub, todo);
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the desk wants done.
    fn run(&self, hub: &Arc<Hub>, todo: Vec<Todo>) {
        if todo.is_empty() {
            return;
        }
        // What cannot be sent is answered at once, which may let the next command of a lane go, and so on for
        // thousands: they are done one after the other here and not one within the other.
        let is_nested = QUEUE.with_borrow_mut(|queue| {
            let is_nested = queue.is_some();
            let queue = queue.get_or_insert_default();
            queue.extend(todo.into_iter().map(|todo| (Arc::clone(hub), todo)));
            is_nested
        });
        if is_nested {
            return;
        }
        let _end = EndOfQueue;
        while let Some((hub, todo)) = QUEUE.with_borrow_mut(|queue| queue.as_mut()?.pop_front()) {
            hub.pi_server.run_one(&hub, todo);
        }
    }

    fn run_one(&self, hub: &Arc<Hub>, todo: Todo) {
        match todo {
            Todo::Execute(job) => execute::execute(hub, job),
            Todo::Cancel(job) => execute::cancel(hub, &job),
            Todo::StoreBehind(row) => self.journal.write_behind(*row),
            Todo::Forget(uids) => self.journal.forget(uids),
            Todo::FollowAgain(job) => sessions::follow_again(hub, &job),
            Todo::EndSession(session_id) => self.followers.end_session(hub, &session_id),
            Todo::LookFor(session_id) => self.look_for(hub, &session_id),
            Todo::Alarm => self.alarm.notify_one(),
            Todo::Idle => self.idle.notify_waiters(),
        }
    }

    fn mint_session_id(&self) -> Arc<str> {
        format!("session-{}-{}", base36(now_ms()), random_hex()).into()
    }
}

/// What a thread has to do yet, and for which hub.
type Queue = VecDeque<(Arc<Hub>, Todo)>;

thread_local! {
    /// `None` when this thread is not at it.
    static QUEUE: RefCell<Option<Queue>> = const { RefCell::new(None) };
}

/// The thread is not at it any more, however it ended.
struct EndOfQueue;

impl Drop for EndOfQueue {
    fn drop(&mut self) {
        QUEUE.with_borrow_mut(|queue| *queue = None);
    }
}

/// Sessions that are not closed: those that this face shows.
fn open_sessions(hub: &Hub) -> Vec<Arc<SessionEntry>> {
    let runners = hub.runners();
    let sessions = runners.iter().flat_map(|runner| hub.sessions_of(&runner.id));
    sessions.filter(|entry| is_open(entry)).collect()
}

/// Sessions that have an agent: those that are limited. Others wait for nothing but their next prompt.
fn running_count(hub: &Hub) -> usize {
    let runs =
        |status| matches!(status, SessionStatus::Starting | SessionStatus::Idle | SessionStatus::Working);
    open_sessions(hub).iter().filter(|entry| runs(entry.status())).count()
}

fn is_open(entry: &SessionEntry) -> bool {
    entry.status() != SessionStatus::Closed && !entry.is_over() && !entry.is_doomed()
}

/// Eight hex digits.
fn random_hex() -> String {
    let mut bytes = [0; 4];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // The time in front of it still tells names apart.
        tracing::error!(%error, "the system has no randomness");
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base36(number: i64) -> String {
    let mut rest = number.unsigned_abs();
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(u32::try_from(rest % 36).unwrap_or(0), 36).unwrap_or('0'));
        rest /= 36;
        if rest == 0 {
            break;
        }
    }
    digits.iter().rev().collect()
}
