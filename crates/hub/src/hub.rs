//! What the hub knows of now: sessions, runners, connections.
//!
//! Everything here can be lost: it is rebuilt from the store at the start and from what runners say when they
//! connect. No lock is held while something is awaited.

mod announcements;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use qd_link::mutex::RwLock;
use qd_store::{HubSession, HubStore, RunnerRow, StoreError};
use qd_wire::data::SessionStatus;
use qd_wire::link::LinkLine;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::access::authenticate::Hash;
use crate::access::login::PasswordLogins;
use crate::access::principals::{Principal, Principals};
use crate::command::pending::PendingCommands;
use crate::config::HubConfig;
use crate::connection::{ConnectionTable, Mailbox};
use crate::faces::Faces;
use crate::runners::link::line_of;
use crate::runners::runner::Runner;
use crate::sessions::deleted_sessions::DeletedSessions;
use crate::sessions::presence::Presence;
use crate::sessions::session::SessionEntry;
use announcements::Announcements;

/// Bytes of all links that may wait for the store, in units; more make their runners wait.
const COMMIT_BYTES_MAX: usize = 32 << 20;
pub(crate) const COMMIT_UNIT_BYTES: usize = 4 << 10;
pub(crate) const COMMIT_UNITS_MAX: usize = COMMIT_BYTES_MAX / COMMIT_UNIT_BYTES;

/// Why connections are closed, as clients of the hub and of the run document read it.
pub(crate) const ACCESS_REVOKED: &str = "the access is revoked; log in again, or use another token";
pub(crate) const HUB_STOPS: &str = "the hub stops";

pub(crate) struct Hub {
    pub(crate) config: HubConfig,
    pub(crate) store: HubStore,
    pub(crate) pending: PendingCommands,
    pub(crate) principals: Principals,
    pub(crate) logins: PasswordLogins,
    pub(crate) faces: Faces,
    /// What people look at.
    pub(crate) presence: Arc<Presence>,
    /// Connections and their reads; waited for at the end.
    pub(crate) tasks: TaskTracker,
    sessions: RwLock<HashMap<Arc<str>, Arc<SessionEntry>>>,
    /// Room for what waits for the store, in units of `COMMIT_UNIT_BYTES`.
    pub(crate) commit_room: Arc<Semaphore>,
    pub(crate) deleted_sessions: DeletedSessions,
    announcements: Announcements,
    runners: RwLock<BTreeMap<Arc<str>, Arc<Runner>>>,
    connections: ConnectionTable,
}

/// What the store has when a hub starts.
#[derive(Default)]
pub(crate) struct StoredHub {
    pub(crate) sessions: Vec<HubSession>,
    pub(crate) runners: Vec<RunnerRow>,
    /// Deleted sessions and the runners that still have them.
    pub(crate) deleted: Vec<(String, String)>,
}

impl Hub {
    /// A hub that knows what its store knows: all sessions, and all runners as being away.
    pub(crate) async fn open(config: HubConfig, store: HubStore) -> Result<Self, StoreError> {
        let (sessions, runners) = (store.sessions().await?, store.runners().await?);
        let mut deleted = Vec::new();
        for runner in &runners {
            let of_runner = store.deleted_sessions_of(&runner.runner_id).await?;
            deleted.extend(of_runner.into_iter().map(|session_id| (session_id, runner.runner_id.clone())));
        }
        let stored = StoredHub { sessions, runners, deleted };
        Ok(Self::new(config, store, stored))
    }

    pub(crate) fn new(config: HubConfig, store: HubStore, stored: StoredHub) -> Self {
        let ring_bytes_max = config.limits.ring_bytes_max;
        let sessions = stored.sessions.into_iter().map(|row| {
            let entry = SessionEntry::stored(&row, ring_bytes_max);
            (Arc::clone(&entry.id), Arc::new(entry))
        });
        let runners = stored.runners.into_iter().map(|row| {
            let runner = Runner::new(&row.runner_id);
            runner.apply_row(&row);
            (Arc::clone(&runner.id), Arc::new(runner))
        });
        Self {
            faces: Faces::new(&config),
            presence: Arc::default(),
            config,
            store,
            pending: PendingCommands::default(),
            principals: Principals::default(),
            logins: PasswordLogins::default(),
            tasks: TaskTracker::new(),
            sessions: RwLock::new(sessions.collect()),
            commit_room: Arc::new(Semaphore::new(COMMIT_UNITS_MAX)),
            deleted_sessions: DeletedSessions::stored(stored.deleted),
            announcements: Announcements::default(),
            runners: RwLock::new(runners.collect()),
            connections: ConnectionTable::default(),
        }
    }

    pub(crate) fn session(&self, session_id: &str) -> Option<Arc<SessionEntry>> {
        self.sessions.read().get(session_id).cloned()
    }

    /// The session, made known if it was not. It may be another runner's.
    pub(crate) fn session_or_new(&self, session_id: &str, runner_id: &Arc<str>) -> Arc<SessionEntry> {
        if let Some(entry) = self.session(session_id) {
            return entry;
        }
        let entry = Arc::new(SessionEntry::new(session_id, runner_id, self.config.limits.ring_bytes_max, 0));
        let mut sessions = self.sessions.write();
        Arc::clone(sessions.entry(Arc::clone(&entry.id)).or_insert(entry))
    }

    /// Forgets a session, unless its name belongs to another one by now.
    pub(crate) fn forget_session(&self, entry: &Arc<SessionEntry>) {
        let mut sessions = self.sessions.write();
        if sessions.get(&entry.id).is_some_and(|current| Arc::ptr_eq(current, entry)) {
            sessions.remove(&entry.id);
        }
    }

    /// A session that could not be deleted after all is known again, unless another one has its name.
    pub(crate) fn remember_session(&self, entry: Arc<SessionEntry>) {
        let mut sessions = self.sessions.write();
        sessions.entry(Arc::clone(&entry.id)).or_insert(entry);
    }

    pub(crate) fn sessions_of(&self, runner_id: &str) -> Vec<Arc<SessionEntry>> {
        let sessions = self.sessions.read();
        sessions.values().filter(|entry| &*entry.runner_id == runner_id).cloned().collect()
    }

    pub(crate) fn session_count(&self) -> usize {
        self.sessions.read().len()
    }

    /// How many sessions wait for somebody: with a question, or because they have failed.
    pub(crate) fn needing_count(&self) -> u64 {
        let sessions = self.sessions.read();
        let needs = |entry: &SessionEntry| {
            let session = entry.projection();
            session.question_count() > 0 || session.status() == SessionStatus::Failed
        };
        sessions.values().filter(|entry| needs(entry)).count() as u64
    }

    /// How many sessions each runner has.
    pub(crate) fn session_counts(&self) -> HashMap<Arc<str>, usize> {
        let sessions = self.sessions.read();
        let mut counts = HashMap::new();
        for entry in sessions.values() {
            *counts.entry(Arc::clone(&entry.runner_id)).or_insert(0) += 1;
        }
        counts
    }

    pub(crate) fn runner(&self, runner_id: &str) -> Option<Arc<Runner>> {
        self.runners.read().get(runner_id).cloned()
    }

    /// Every known runner, connected or not.
    pub(crate) fn runners(&self) -> Vec<Arc<Runner>> {
        self.runners.read().values().cloned().collect()
    }

    /// The runner, made known if it was not.
    pub(crate) fn runner_or_new(&self, runner_id: &Arc<str>) -> Arc<Runner> {
        if let Some(runner) = self.runner(runner_id) {
            return runner;
        }
        let mut runners = self.runners.write();
        Arc::clone(runners.entry(Arc::clone(runner_id)).or_insert_with(|| Arc::new(Runner::new(runner_id))))
    }

    /// Whether nothing can be asked of a runner now.
    pub(crate) fn is_away(&self, runner_id: &str) -> bool {
        self.runner(runner_id).is_none_or(|runner| runner.link().is_none())
    }

    /// Ends a runner's connection at once, and tells it why.
    pub(crate) fn cut_off(&self, runner_id: &str, reason: &str) {
        let Some(runner) = self.runner(runner_id) else { return };
        runner.note_revoked();
        if let Some(link) = runner.newest_link() {
            tracing::warn!(runner = runner_id, reason, "a runner is cut off");
            link.refuse(ErrorCode::RunnerRevoked.with(reason));
        }
        self.announce_runner(&runner);
    }

    /// Asks a connected runner to make itself a new key.
    pub(crate) fn ask_rotation(&self, runner_id: &str) -> Result<(), CodedError> {
        let away = || {
            ErrorCode::RunnerOffline
                .with(format!("Runner {runner_id} is not connected; its key can be changed when it is back"))
        };
        let link = self.runner(runner_id).and_then(|runner| runner.link()).ok_or_else(away)?;
        link.send_queue.push(&line_of(&LinkLine::Rotate {})).map_err(|error| error.coded(runner_id))
    }

    /// A new connection's number and mailbox; `None` when there are too many, or its principal has no access any
    /// more.
    pub(crate) fn add_connection(&self, principal: &Principal) -> Option<(u64, Arc<Mailbox>)> {
        let limits = &self.config.limits;
        self.connections.add("c", principal, limits.connections_max, limits.mail_bounds()).ok()
    }

    pub(crate) fn remove_connection(&self, number: u64) {
        if let Some(mailbox) = self.connections.remove(number) {
            self.hide_sessions(&mailbox);
        }
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connections.count()
    }

    /// Ends what all accesses of a principal have opened, when the store knows them no more or not as they were.
    pub(crate) fn revoke_access(&self, name: &str) {
        // First this: who is not in the lists of connections by now will not get in.
        self.principals.revoke(name);
        self.close_revoked();
    }

    /// Ends what one login or token has opened, when the store knows it no more.
    pub(crate) fn end_access(&self, hash: &Hash) {
        self.principals.end(hash);
        self.close_revoked();
    }

    /// Closes the connections whose access was taken back or has ended.
    pub(crate) fn close_revoked(&self) {
        self.faces.close_revoked();
        self.connections.close_revoked(ACCESS_REVOKED);
    }

    /// Closes every connection and takes no more.
    pub(crate) fn close_connections(&self, frames: &Bytes) {
        self.faces.close_connections();
        self.connections.close(frames, HUB_STOPS);
    }

    pub(crate) fn broadcast(&self, frames: &Bytes) {
        self.connections.broadcast(frames);
    }

    /// Runs work that the hub waits for when it stops.
    pub(crate) fn spawn<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<Hub>) -> F,
    ) {
        self.tasks.spawn(work(Arc::clone(self)));
    }
}

/// A hub with an empty store for tests of its parts, and the directory of that store.
#[cfg(test)]
pub(crate) fn test_hub(configure: impl FnOnce(&mut HubConfig)) -> (Arc<Hub>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hub.db");
    let store = HubStore::open(&path, qd_store::StoreOptions::default()).unwrap();
    let mut config = HubConfig::new(crate::OwnerToken::new("t"), crate::LoginCodes::default());
    configure(&mut config);
    (Arc::new(Hub::new(config, store, StoredHub::default())), directory)
}

/// Lets other tasks run until something is so.
#[cfg(test)]
pub(crate) async fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::task::yield_now().await;
    }
}
