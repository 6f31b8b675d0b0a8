//! A runner as the hub knows it. Connections of the same runner can overlap for a moment: the newest has the claim,
//! an older one may still be committing what it has read, and only one that was welcomed gets commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::RunnerRow;
use qd_wire::data::{RunnerInfo, RunnerStatus, SessionStatus};
use qd_wire::link::{RunnerHeartbeat, RunnerHello};

use crate::runners::link::RunnerLink;

/// One runner, whether it is connected or not. Its connections come and go.
pub(crate) struct Runner {
    pub(crate) id: Arc<str>,
    /// Unix milliseconds of its last line; 0 when there was none since the hub started.
    last_seen: AtomicI64,
    state: Mutex<RunnerState>,
}

struct RunnerState {
    /// What it said of itself and what the store knows; its status and its sessions are filled in when asked for.
    about: RunnerInfo,
    status: RunnerStatus,
    /// The newest connection, welcomed or not: all others are over or about to be.
    claim: Option<Arc<RunnerLink>>,
    /// The newest connection, also when it is over: what it read may not be committed yet.
    last: Option<Arc<RunnerLink>>,
    /// The connection that was welcomed.
    link: Option<Arc<RunnerLink>>,
    /// Agents running or starting, from its last heartbeat.
    agents: u64,
    /// Sessions created since that heartbeat.
    creates: u64,
}

/// What routing looks at.
#[derive(Debug, Clone)]
pub(crate) struct RunnerStanding {
    pub(crate) status: RunnerStatus,
    pub(crate) harnesses: Vec<String>,
    pub(crate) max_sessions: u64,
    /// Agents it runs or is about to run.
    pub(crate) agents: u64,
    /// Processes that want a core, per core.
    pub(crate) machine_load: f64,
}

impl Runner {
    pub(crate) fn new(runner_id: &str) -> Self {
        let about = RunnerInfo {
            runner_id: runner_id.to_owned(),
            hostname: String::new(),
            os: String::new(),
            version: String::new(),
            status: RunnerStatus::Offline,
            harnesses: Vec::new(),
            max_sessions: 0,
            session_count: 0,
            last_seen: None,
            joined_at: None,
            rotated_at: None,
            revoked_at: None,
            load: None,
            sessions: Vec::new(),
        };
        let state = RunnerState {
            about,
            status: RunnerStatus::Offline,
            claim: None,
            last: None,
            link: None,
            agents: 0,
            creates: 0,
        };
        Self { id: Arc::from(runner_id), last_seen: AtomicI64::new(0), state: Mutex::new(state) }
    }

    /// Takes over what the store knows of a runner.
    pub(crate) fn apply_row(&self, row: &RunnerRow) {
        let mut state = self.state.lock();
        let about = &mut state.about;
        if about.hostname.is_empty() {
            about.hostname.clone_from(&row.hostname);
            about.os.clone_from(&row.os);
            about.version.clone_from(&row.version);
            // Written by us, so it can be read; if not, the runner tells it again when it comes.
            about.harnesses = serde_json::from_str(&row.harnesses_json).unwrap_or_default();
            about.max_sessions = row.max_sessions;
        }
        about.last_seen = row.last_seen_at;
        // The hub's own runner has no key: it never joined.
        about.joined_at = (!row.key_hash.is_empty()).then_some(row.joined_at);
        about.rotated_at = row.rotated_at;
        about.revoked_at = row.revoked_at;
    }

    /// This connection is the newest of the runner; gives the one before, which is to end.
    pub(crate) fn claim(&self, link: &Arc<RunnerLink>) -> Option<Arc<RunnerLink>> {
        let mut state = self.state.lock();
        state.claim = Some(Arc::clone(link));
        state.last.replace(Arc::clone(link))
    }

    /// Commands go to this connection from now on, unless a newer one has come meanwhile.
    pub(crate) fn open(&self, link: &Arc<RunnerLink>, hello: &RunnerHello) -> bool {
        let mut state = self.state.lock();
        if !state.claim.as_ref().is_some_and(|claim| Arc::ptr_eq(claim, link)) {
            return false;
        }
        let about = &mut state.about;
        about.hostname.clone_from(&hello.hostname);
        about.os.clone_from(&hello.os);
        about.version.clone_from(&hello.version);
        about.harnesses.clone_from(&hello.harnesses);
        about.max_sessions = hello.max_sessions;
        about.load = None;
        about.sessions = Vec::new();
        let runs =
            |status| matches!(status, SessionStatus::Starting | SessionStatus::Idle | SessionStatus::Working);
        let states = hello.sessions.iter().filter_map(|session| session.state.as_ref());
        state.agents = states.filter(|session| runs(session.status)).count() as u64;
        state.creates = 0;
        state.status = RunnerStatus::Online;
        state.link = Some(Arc::clone(link));
        true
    }

    /// A connection is over. True when the runner is gone with it and that is news; a connection that was replaced
    /// changes nothing.
    pub(crate) fn leave(&self, link: &Arc<RunnerLink>) -> bool {
        let mut state = self.state.lock();
        let is_same =
            |other: &Option<Arc<RunnerLink>>| other.as_ref().is_some_and(|it| Arc::ptr_eq(it, link));
        if is_same(&state.link) {
            state.link = None;
        }
        if is_same(&state.claim) {
            state.claim = None;
        }
        if state.claim.is_some() || state.status == RunnerStatus::Offline {
            return false;
        }
        state.status = RunnerStatus::Offline;
        state.about.load = None;
        state.about.sessions = Vec::new();
        true
    }

    /// Where commands go; `None` when the runner is away.
    pub(crate) fn link(&self) -> Option<Arc<RunnerLink>> {
        self.state.lock().link.clone()
    }

    /// The connection that came last, welcomed or not.
    pub(crate) fn newest_link(&self) -> Option<Arc<RunnerLink>> {
        self.state.lock().claim.clone()
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> RunnerStatus {
        self.state.lock().status
    }

    /// Whether it was heard of lately, as its connection sees it. True if that is news.
    pub(crate) fn set_healthy(&self, link: &Arc<RunnerLink>, is_healthy: bool) -> bool {
        let mut state = self.state.lock();
        if !state.link.as_ref().is_some_and(|current| Arc::ptr_eq(current, link)) {
            return false;
        }
        let status = if is_healthy { RunnerStatus::Online } else { RunnerStatus::Unhealthy };
        std::mem::replace(&mut state.status, status) != status
    }

    pub(crate) fn note_seen(&self) {
        self.last_seen.store(now_ms(), Ordering::Relaxed);
    }

    pub(crate) fn note_revoked(&self) {
        self.state.lock().about.revoked_at.get_or_insert_with(now_ms);
    }

    pub(crate) fn note_heartbeat(&self, heartbeat: RunnerHeartbeat) {
        let mut state = self.state.lock();
        state.agents = match &heartbeat.load {
            Some(load) => load.agents,
            None => heartbeat.sessions.iter().filter(|session| session.process.alive).count() as u64,
        };
        state.creates = 0;
        state.about.load = heartbeat.load;
        state.about.sessions = heartbeat.sessions;
    }

    pub(crate) fn note_create(&self) {
        self.state.lock().creates += 1;
    }

    pub(crate) fn note_failed_create(&self) {
        let mut state = self.state.lock();
        state.creates = state.creates.saturating_sub(1);
    }

    pub(crate) fn standing(&self) -> RunnerStanding {
        let state = self.state.lock();
        let load = state.about.load.as_ref();
        let per_core = |load_1m: f64, cores: u64| load_1m / (cores.max(1) as f64);
        let machine_load = load.and_then(|load| Some(per_core(load.load_1m?, load.cpu_count)));
        RunnerStanding {
            status: state.status,
            harnesses: state.about.harnesses.clone(),
            max_sessions: state.about.max_sessions,
            agents: state.agents + state.creates,
            machine_load: machine_load.unwrap_or(0.0),
        }
    }

    pub(crate) fn info(&self, session_count: usize) -> RunnerInfo {
        let state = self.state.lock();
        let seen = self.last_seen.load(Ordering::Relaxed);
        RunnerInfo {
            status: state.status,
            session_count: session_count as u64,
            last_seen: if seen == 0 { state.about.last_seen } else { Some(seen) },
            ..state.about.clone()
        }
    }
}
