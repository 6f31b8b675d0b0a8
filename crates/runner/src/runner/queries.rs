//! What the runner answers itself: how it is, what sessions it has, what session files lie on its machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use qd_wire::data::{RunnerHealthData, RunnerSessionsData, SessionState, StoredSessionsData};
use qd_wire::{Command, ErrorCode};
use serde::Serialize;

use super::RunnerTask;
use super::routing::respond;
use super::stored_sessions;
use crate::clock::now_ms;
use crate::session::{IncomingCommand, RunnerContext};
use crate::uplink::describe_all;

impl RunnerTask {
    /// Answers without waiting: sessions and disks have their own pace.
    pub(super) fn answer_for_runner(&self, incoming: IncomingCommand) {
        let command = match Command::parse(&incoming.cmd, incoming.text()) {
            Ok(command) => command,
            Err(error) => return respond(&self.shared, "", &incoming, Err(&error.into())),
        };
        let shared = Arc::clone(&self.shared);
        // Answered here and now: it must also work while sessions are too busy to describe themselves.
        if matches!(command, Command::RunnerHealth(_)) {
            return answer(&shared, &incoming, &health(&shared));
        }
        tokio::spawn(async move {
            let states: Vec<SessionState> =
                describe_all(&shared).await.into_values().map(|state| *state).collect();
            if matches!(command, Command::RunnerSessions(_)) {
                return answer(&shared, &incoming, &RunnerSessionsData { sessions: states });
            }
            let sessions = stored_sessions::list(&shared.config.harnesses, &states).await;
            answer(&shared, &incoming, &StoredSessionsData { sessions });
        });
    }
}

fn health(shared: &RunnerContext) -> RunnerHealthData {
    let now = now_ms();
    // One lock for both figures, so that they are of the same moment.
    let breakers = shared.breakers.lock();
    RunnerHealthData {
        breakers: breakers.providers(now),
        bash: breakers.bash(now),
        max_sessions: shared.config.max_sessions as u64,
        agents: shared.agents.load(Ordering::Acquire) as u64,
    }
}

fn answer<T: Serialize>(shared: &RunnerContext, incoming: &IncomingCommand, data: &T) {
    match serde_json::to_string(data) {
        Ok(data) => respond(shared, "", incoming, Ok(Some(&data))),
        Err(error) => {
            respond(shared, "", incoming, Err(&ErrorCode::Internal.with(error.to_string())));
        }
    }
}
