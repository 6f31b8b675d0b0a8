//! The process figures of all agents that run, for the runner's heartbeat.

use std::collections::BTreeMap;

use qd_link::mutex::Mutex;
use qd_wire::data::ProcessStats;
use qd_wire::link::HeartbeatSession;

/// The latest process figures of each session with an agent.
#[derive(Default)]
pub(crate) struct ProcessTable(Mutex<BTreeMap<String, (String, ProcessStats)>>);

impl ProcessTable {
    pub(crate) fn put(&self, session_id: &str, harness: &str, process: ProcessStats) {
        self.0.lock().insert(session_id.to_owned(), (harness.to_owned(), process));
    }

    /// The session has no agent any more.
    pub(crate) fn remove(&self, session_id: &str) {
        self.0.lock().remove(session_id);
    }

    pub(crate) fn sessions(&self) -> Vec<HeartbeatSession> {
        let sessions = self.0.lock();
        let line = |(session_id, (harness, process)): (&String, &(String, ProcessStats))| HeartbeatSession {
            session_id: session_id.clone(),
            harness: harness.clone(),
            process: process.clone(),
        };
        sessions.iter().map(line).collect()
    }
}
