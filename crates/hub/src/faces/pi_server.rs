//! The pi-server document (`specs/pi-server-protocol.md`) as a face of the hub: clients written for it talk to the
//! same sessions as all others. The rules of admission are in `qd_core::view::pi_server`; here is what runs them.
//!
//! All commands of this face go through one state machine behind one lock (`pending`). A step of it only decides;
//! what it decided is done after the lock is released, because doing it may finish a command and need the lock again.

mod clients;
mod commands;
mod config;
mod counters;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use qd_core::encoding::{base36, hex};
use qd_core::view::pi_server::admission::{PiServerOutcome, SubmissionToken};
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::StoreError;
use qd_wire::data::SessionStatus;
use qd_wire::pi_server::ServerShutdown;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Duration, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Face, FaceFuture, RunnerUpdate, SessionUpdate};
use crate::config::HubConfig;
use crate::hub::Hub;
use crate::server::Server;
use crate::sessions::published::NativeEvents;
use crate::sessions::session::SessionEntry;
use clients::connections::PiConnections;
use clients::followers::SessionFollowers;
use clients::natives::NativeFrameWriter;
pub use clients::port::{PiConnector, PiConnectorClosed, PiConnectorEnd, PiServerPorts};
use clients::{handler, port};
use commands::journal::{CommandJournal, JournalEntry, JournalRecovery};
use commands::pending_commands::{AfterResponse, DeferredStep, PiPendingCommands};
use commands::{execute, journal, lifecycle, sessions};
pub use config::PiServerConfig;
use counters::PiCounters;

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
    pending: Mutex<PiPendingCommands>,
    followers: Arc<SessionFollowers>,
    connections: PiConnections,
    journal: Arc<CommandJournal>,
    recovery: Mutex<JournalRecovery>,
    counters: PiCounters,
    /// The timer has to look earlier than it thinks.
    alarm: Notify,
    /// The last command has its answer, when the hub stops.
    idle: Notify,
    /// Cancelled when the hub stops.
    stopping: CancellationToken,
}

impl PiServer {
    pub(super) fn new(config: &HubConfig) -> Self {
        let config = config.faces.pi_server.clone();
        let started_at = now_ms();
        let journal = Arc::<CommandJournal>::default();
        Self {
            ready: handler::ready(&config.server_version, &config.transports),
            started_at,
            uid_prefix: format!("{started_at:012x}-{}", random_hex()),
            no_uid: Arc::from(""),
            pending: Mutex::new(PiPendingCommands::new(&config, Arc::clone(&journal))),
            followers: Arc::default(),
            connections: PiConnections::default(),
            journal,
            recovery: Mutex::default(),
            counters: PiCounters::default(),
            alarm: Notify::new(),
            idle: Notify::new(),
            stopping: CancellationToken::new(),
            config,
        }
    }

    /// The hub stops: tells every connection of this face; no command is taken any more.
    fn announce_shutdown(&self) {
        let timeout_ms = u64::try_from(self.config.shutdown_timeout.as_millis()).unwrap_or(u64::MAX);
        let shutdown = ServerShutdown { reason: "graceful_shutdown".to_owned(), timeout_ms };
        let frames = lifecycle::message("server_shutdown", &lifecycle::json(&shutdown));
        self.stopping.cancel();
        self.pending.lock().announce_shutdown(&frames);
    }

    /// Waits until every command has its answer. Called when no new ones are taken.
    async fn when_idle(&self) {
        loop {
            // Before the look, or the notice of a command that ends in between would be missed.
            let idle = self.idle.notified();
            if self.pending.lock().is_idle() {
                return;
            }
            idle.await;
        }
    }

    async fn run_timer(&self, hub: &Arc<Hub>) {
        loop {
            let now = now_ms();
            let todo = {
                let mut pending = self.pending.lock();
                // The timer is awake and needs no alarm.
                pending.alarm_at = Some(i64::MIN);
                let todo = pending.step(now, |admission, effects| admission.tick(now, effects));
                pending.alarm_at = pending.admission.next_deadline();
                todo
            };
            let alarm_at = self.pending.lock().alarm_at;
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
    fn finish(&self, hub: &Arc<Hub>, token: SubmissionToken, outcome: PiServerOutcome, after: AfterResponse) {
        let todo = self.pending.lock().finish(now_ms(), token, outcome, after);
        self.run(hub, todo);
    }

    /// Does what a step of the pending commands left to do.
    fn run(&self, hub: &Arc<Hub>, todo: Vec<DeferredStep>) {
        if todo.is_empty() {
            return;
        }
        // What cannot be sent is answered at once, which may let the next command of a lane go, and so on for
        // thousands: they are done one after the other here and not one within the other.
        let is_nested = DEFERRED.with_borrow_mut(|queue| {
            let is_nested = queue.is_some();
            let queue = queue.get_or_insert_default();
            queue.extend(todo.into_iter().map(|todo| (Arc::clone(hub), todo)));
            is_nested
        });
        if is_nested {
            return;
        }
        let _end = DeferredWorkGuard;
        while let Some((hub, todo)) = DEFERRED.with_borrow_mut(|queue| queue.as_mut()?.pop_front()) {
            hub.faces.pi_server.run_one(&hub, todo);
        }
    }

    fn run_one(&self, hub: &Arc<Hub>, todo: DeferredStep) {
        match todo {
            DeferredStep::Execute(job) => execute::execute(hub, job),
            DeferredStep::Cancel(job) => execute::cancel(hub, &job),
            DeferredStep::StoreBehind(row) => self.journal.write_behind(*row),
            DeferredStep::Forget(uids) => self.journal.forget(uids),
            DeferredStep::FollowAgain(job) => sessions::follow_again(hub, &job),
            DeferredStep::EndSession(session_id) => self.followers.end_session(hub, &session_id),
            DeferredStep::AnnounceIfChanged(session_id) => self.announce_if_changed(hub, &session_id),
            DeferredStep::Alarm => self.alarm.notify_one(),
            DeferredStep::Idle => self.idle.notify_waiters(),
        }
    }

    fn mint_session_id(&self) -> Arc<str> {
        format!("session-{}-{}", base36(now_ms().unsigned_abs()), random_hex()).into()
    }
}

impl Face for PiServer {
    fn routes(&self) -> Router<Server> {
        Router::new().route("/ws/pi", any(port::upgrade))
    }

    /// Outcomes that are replayed, and commands that were cut off.
    fn open<'a>(&'a self, hub: &'a Arc<Hub>) -> FaceFuture<'a, Result<(), StoreError>> {
        Box::pin(async {
            let recovery = journal::restore(self, hub).await?;
            *self.recovery.lock() = recovery;
            let sessions = open_sessions(hub).into_iter().map(|entry| Arc::clone(&entry.id));
            self.pending.lock().note_known_sessions(sessions);
            Ok(())
        })
    }

    /// Keeps time limits and writes behind.
    fn run_background<'a>(&'a self, hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(async {
            tokio::join!(self.run_timer(hub), self.run_journal(hub), self.journal.run_behind_writer(hub));
        })
    }

    fn on_native_events(&self, _hub: &Arc<Hub>, entry: &SessionEntry, events: &NativeEvents) {
        if !self.followers.has(&entry.id) {
            return;
        }
        if let Some(natives) = NativeFrameWriter::of(&entry.id, events) {
            self.followers.send_events(&entry.id, &natives.frames, natives.count);
        }
    }

    /// What this face did itself it tells itself.
    fn on_session_update(&self, hub: &Arc<Hub>, session_id: &str, update: SessionUpdate) {
        match update {
            SessionUpdate::Created => self.note_there(hub, session_id),
            SessionUpdate::Closed | SessionUpdate::Deleted => self.note_gone(hub, session_id),
        }
    }

    /// A runner that is back is told which of its sessions are followed here; what they said while it was away is lost.
    fn on_runner_update(&self, hub: &Arc<Hub>, runner_id: &str, update: RunnerUpdate) {
        match update {
            RunnerUpdate::Came => {
                self.followers.watch_all(hub, runner_id);
                for resync in self.followers.catch_up_all(runner_id) {
                    self.resync(hub, resync);
                }
            }
            // Who follows its sessions hears of them again when it is back.
            RunnerUpdate::Gone => {}
        }
    }

    fn revoke<'a>(&'a self, hub: &'a Arc<Hub>, principal: &'a str) -> FaceFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let (done, is_done) = oneshot::channel();
            let todo = {
                let mut pending = self.pending.lock();
                let todo = pending.revoke(now_ms(), principal);
                self.journal.push(JournalEntry::Purge { principal: principal.into(), done });
                todo
            };
            self.run(hub, todo);
            is_done.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    fn close_revoked(&self) {
        self.connections.open.close_revoked("Access token revoked");
    }

    fn finish_work<'a>(&'a self, _hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(async {
            if !self.connections.open.stop() {
                // It has had its time.
                return;
            }
            self.announce_shutdown();
            if timeout(self.config.shutdown_timeout, self.when_idle()).await.is_err() {
                tracing::warn!("some commands of pi-server clients did not end in time");
            }
        })
    }

    fn close_connections(&self) {
        self.connections.open.close(&Bytes::new(), "Server shutting down");
    }

    /// The last rows are written; after that nothing is.
    fn close<'a>(&'a self, hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(self.journal.write(hub))
    }

    fn connection_count(&self) -> usize {
        self.connections.open.count()
    }
}

/// What a thread has to do yet, and for which hub.
type DeferredWork = VecDeque<(Arc<Hub>, DeferredStep)>;

thread_local! {
    /// `None` when this thread is not at it.
    static DEFERRED: RefCell<Option<DeferredWork>> = const { RefCell::new(None) };
}

/// The thread is not at it any more, however it ended.
struct DeferredWorkGuard;

impl Drop for DeferredWorkGuard {
    fn drop(&mut self) {
        DEFERRED.with_borrow_mut(|queue| *queue = None);
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
    entry.status() != SessionStatus::Closed && !entry.is_over() && !entry.is_being_deleted()
}

/// Eight hex digits.
fn random_hex() -> String {
    let mut bytes = [0; 4];
    if let Err(error) = getrandom::fill(&mut bytes) {
        // The time in front of it still tells names apart.
        tracing::error!(%error, "the system has no randomness");
    }
    hex(&bytes)
}
