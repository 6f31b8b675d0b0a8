//! What the hub knows of now: sessions, runners, connections.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use qd_store::{HubSession, HubStore};
use qd_wire::data::{RunnerInfo, RunnerStatus, SessionStatus};
use qd_wire::link::RunnerHello;
use qd_wire::mux::{SessionChange, SystemEvent};
use tokio_util::task::TaskTracker;

use crate::config::HubConfig;
use crate::connection::{Mail, Mailbox};
use crate::pending::PendingTable;
use crate::reply;
use crate::ring::Ring;
use crate::runner_link::Outbox;

pub(crate) struct Hub {
    pub(crate) config: HubConfig,
    pub(crate) store: HubStore,
    pub(crate) pending: PendingTable,
    /// Connections and their reads; waited for at the end.
    pub(crate) tasks: TaskTracker,
    sessions: RwLock<HashMap<Arc<str>, Arc<SessionEntry>>>,
    runners: RwLock<BTreeMap<Arc<str>, Arc<Runner>>>,
    connections: Mutex<HashMap<u64, Arc<Mailbox>>>,
    last_connection: AtomicU64,
    is_stopping: AtomicBool,
}

/// One session: where it lives, its live events, and what lists show of it.
pub(crate) struct SessionEntry {
    pub(crate) id: Arc<str>,
    runner_id: Mutex<Arc<str>>,
    pub(crate) ring: Arc<Ring>,
    /// The last record read from the link. Written by the link's reader only.
    pub(crate) last_seq: AtomicU64,
    /// A record is missing: nothing is passed on until it comes. Written by the link's reader only.
    pub(crate) has_hole: AtomicBool,
    /// Pieces of the stream that wait for a commit; while there are any, later ones queue behind them.
    pub(crate) uncommitted: AtomicUsize,
    /// Its runner did not name it when it came. Written by the link's reader only.
    pub(crate) is_orphan: AtomicBool,
    /// It was deleted: who still follows it may stop.
    is_over: AtomicBool,
    status: AtomicU8,
    pending_inputs: AtomicU32,
}

/// One runner and the way to it.
pub(crate) struct Runner {
    pub(crate) id: Arc<str>,
    pub(crate) hello: RunnerHello,
    pub(crate) outbox: Arc<Outbox>,
    status: Mutex<RunnerStatus>,
}

impl Hub {
    pub(crate) fn new(config: HubConfig, store: HubStore, stored: Vec<HubSession>) -> Self {
        let ring_bytes_max = config.limits.ring_bytes_max;
        let sessions = stored
            .into_iter()
            .map(|row| {
                let entry = SessionEntry::stored(&row, ring_bytes_max);
                (Arc::clone(&entry.id), Arc::new(entry))
            })
            .collect();
        Self {
            config,
            store,
            pending: PendingTable::default(),
            tasks: TaskTracker::new(),
            sessions: RwLock::new(sessions),
            runners: RwLock::default(),
            connections: Mutex::default(),
            last_connection: AtomicU64::new(0),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn session(&self, session_id: &str) -> Option<Arc<SessionEntry>> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).get(session_id).cloned()
    }

    /// The session, made known if it was not.
    pub(crate) fn session_or_new(&self, session_id: &str, runner_id: &Arc<str>) -> Arc<SessionEntry> {
        if let Some(entry) = self.session(session_id) {
            entry.move_to(runner_id);
            return entry;
        }
        let entry = Arc::new(SessionEntry::new(session_id, runner_id, self.config.limits.ring_bytes_max));
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(sessions.entry(Arc::clone(&entry.id)).or_insert(entry))
    }

    /// Forgets a session, unless its name belongs to another one by now.
    pub(crate) fn forget_session(&self, entry: &Arc<SessionEntry>) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.get(&entry.id).is_some_and(|current| Arc::ptr_eq(current, entry)) {
            sessions.remove(&entry.id);
        }
    }

    pub(crate) fn sessions_of(&self, runner_id: &str) -> Vec<Arc<SessionEntry>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter(|entry| &*entry.runner_id() == runner_id).cloned().collect()
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub(crate) fn runner(&self, runner_id: &str) -> Option<Arc<Runner>> {
        self.runners.read().unwrap_or_else(PoisonError::into_inner).get(runner_id).cloned()
    }

    pub(crate) fn runners(&self) -> Vec<Arc<Runner>> {
        self.runners.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Makes a runner known and says so.
    pub(crate) fn add_runner(&self, runner: Arc<Runner>) {
        let id = Arc::clone(&runner.id);
        self.runners.write().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&runner));
        self.tell_runner(&runner.id, RunnerStatus::Online);
    }

    /// Changes how a runner is shown, and says so if that is news.
    pub(crate) fn set_runner_status(&self, runner: &Arc<Runner>, status: RunnerStatus) {
        let before = {
            let mut current = runner.status.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, status)
        };
        // A runner that came again on another link is shown as that one is.
        let is_current = self.runner(&runner.id).is_some_and(|current| Arc::ptr_eq(&current, runner));
        if is_current && before != status {
            self.tell_runner(&runner.id, status);
        }
    }

    fn tell_runner(&self, runner_id: &str, status: RunnerStatus) {
        self.broadcast(&reply::system(SystemEvent::RunnerChanged {
            runner_id: runner_id.to_owned(),
            status,
        }));
    }

    /// Tells every client that a session's line in a list has changed.
    pub(crate) fn tell_session(&self, entry: &SessionEntry, change: SessionChange) {
        self.broadcast(&reply::system(SystemEvent::SessionChanged {
            session_id: entry.id.to_string(),
            runner_id: entry.runner_id().to_string(),
            change,
        }));
    }

    /// A new connection's number and mailbox; `None` when there are too many.
    pub(crate) fn add_connection(&self) -> Option<(u64, Arc<Mailbox>)> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = connections.len() >= self.config.limits.connections_max;
        if is_full || self.is_stopping.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.last_connection.fetch_add(1, Ordering::Relaxed) + 1;
        let mailbox = Mailbox::new(format!("c{number}"), self.config.limits.mail_bounds());
        connections.insert(number, Arc::clone(&mailbox));
        Some((number, mailbox))
    }

    pub(crate) fn remove_connection(&self, number: u64) {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.remove(&number);
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Closes every connection and takes no more.
    pub(crate) fn say_goodbye(&self, frames: &Bytes) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        // Set under the lock: who is not in the list yet will not get in.
        self.is_stopping.store(true, Ordering::Relaxed);
        for mailbox in connections.values() {
            mailbox.put(Mail::Close { frames: frames.clone(), code: 1001, reason: "the hub stops" });
        }
    }

    pub(crate) fn broadcast(&self, frames: &Bytes) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.values().for_each(|mailbox| mailbox.put(Mail::Frames(frames.clone())));
    }
}

impl SessionEntry {
    fn new(session_id: &str, runner_id: &Arc<str>, ring_bytes_max: usize) -> Self {
        Self {
            id: Arc::from(session_id),
            runner_id: Mutex::new(Arc::clone(runner_id)),
            ring: Arc::new(Ring::new(ring_bytes_max)),
            last_seq: AtomicU64::new(0),
            has_hole: AtomicBool::new(false),
            uncommitted: AtomicUsize::new(0),
            is_orphan: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            status: AtomicU8::new(SessionStatus::Starting as u8),
            pending_inputs: AtomicU32::new(0),
        }
    }

    /// After a start the agent of a stored session does not run.
    fn stored(row: &HubSession, ring_bytes_max: usize) -> Self {
        let entry = Self::new(&row.session_id, &Arc::from(&*row.runner_id), ring_bytes_max);
        entry.last_seq.store(row.last_seq, Ordering::Relaxed);
        let status = if row.closed { SessionStatus::Closed } else { SessionStatus::Dormant };
        entry.status.store(status as u8, Ordering::Relaxed);
        entry
    }

    /// Nothing more will be published: those who follow it leave when they have taken all.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.ring.wake_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    pub(crate) fn runner_id(&self) -> Arc<str> {
        Arc::clone(&self.runner_id.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn move_to(&self, runner_id: &Arc<str>) {
        let mut current = self.runner_id.lock().unwrap_or_else(PoisonError::into_inner);
        if *current != *runner_id {
            *current = Arc::clone(runner_id);
        }
    }

    pub(crate) fn status(&self) -> SessionStatus {
        const ALL: [SessionStatus; 6] = [
            SessionStatus::Starting,
            SessionStatus::Idle,
            SessionStatus::Working,
            SessionStatus::Dormant,
            SessionStatus::Failed,
            SessionStatus::Closed,
        ];
        let code = self.status.load(Ordering::Relaxed);
        ALL.into_iter().find(|status| *status as u8 == code).unwrap_or(SessionStatus::Dormant)
    }

    /// True if that is news.
    pub(crate) fn set_status(&self, status: SessionStatus) -> bool {
        self.status.swap(status as u8, Ordering::Relaxed) != status as u8
    }

    pub(crate) fn pending_inputs(&self) -> u32 {
        self.pending_inputs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_pending_inputs(&self, count: usize) {
        self.pending_inputs.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// One step, because the reader of the link and the one who commits for it both call this.
    pub(crate) fn change_pending_inputs(&self, has_one_more: bool) {
        let change =
            |count: u32| Some(if has_one_more { count.saturating_add(1) } else { count.saturating_sub(1) });
        // The closure always gives a value, so the update cannot fail.
        let _ = self.pending_inputs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
    }
}

impl Runner {
    pub(crate) fn new(hello: RunnerHello, outbox: Arc<Outbox>) -> Self {
        Self { id: Arc::from(&*hello.runner_id), hello, outbox, status: Mutex::new(RunnerStatus::Online) }
    }

    pub(crate) fn status(&self) -> RunnerStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn info(&self, session_count: usize) -> RunnerInfo {
        RunnerInfo {
            runner_id: self.hello.runner_id.clone(),
            hostname: self.hello.hostname.clone(),
            os: self.hello.os.clone(),
            version: self.hello.version.clone(),
            status: self.status(),
            harnesses: self.hello.harnesses.clone(),
            max_sessions: self.hello.max_sessions,
            session_count: session_count as u64,
        }
    }
}
