//! Watching over the agent: doing what the health machine orders.
//!
//! Whether an agent hangs is decided by the pure machine (`core/health`) from what it is told; here are the looks at
//! the process, the probes, and the kill.

use qd_core::agent::AgentRequest;
use qd_core::health::{HealthAction, ProcessSample, SessionActivity};
use qd_core::session::AgentEnd;
use qd_wire::ErrorCode;
use qd_wire::command_table::Lane;
use qd_wire::data::ProcessStats;
use qd_wire::event::NotifyLevel;

use crate::clock::now_ms;
use crate::process::CloseMode;
use crate::session::SessionInput;
use crate::session::actor::SessionActor;

impl SessionActor {
    /// Tells the health machine how things stand and does what it asks for.
    pub(crate) async fn supervise(&mut self) {
        let now = now_ms();
        let activity = self.session.activity();
        // A request without an answer is work, whatever the agent says. A person's shell command is not the agent's.
        let is_shell = |token| {
            self.commands.get(token).is_some_and(|command| command.command.spec().lane == Lane::Shell)
        };
        let has_request = self.commands.queue().running().any(|(token, _)| !is_shell(token));
        // A program in a terminal owes nobody a word.
        let is_busy = (activity.is_busy || has_request) && !self.is_run();
        self.agent.health.activity(now, SessionActivity { is_busy, ..activity });
        for order in self.agent.health.due(now) {
            self.carry_out_order(now, order).await;
        }
    }

    async fn carry_out_order(&mut self, now: i64, order: HealthAction) {
        match order {
            HealthAction::Sample => self.sample(),
            HealthAction::Heartbeat => {
                if let Some(process) = self.agent.stats.clone() {
                    self.session.heartbeat(now, process, &mut self.out);
                }
            }
            HealthAction::Probe => self.probe(now),
            HealthAction::Warn(message) => {
                tracing::warn!(session_id = self.session.identity().session_id, message, "supervision");
                self.session.notify(now, NotifyLevel::Warning, message, &mut self.out);
            }
            HealthAction::Status(text) => self.session.health_text(now, text, &mut self.out),
            HealthAction::Restart(reason) => self.restart_hung(reason).await,
            HealthAction::Kill(reason) => {
                if let Some(driver) = &mut self.agent.driver {
                    driver.kill_with_reason(reason);
                }
            }
        }
    }

    /// An agent was started; if it is a process, it is looked at from now on.
    pub(crate) fn watch_process(&mut self) {
        self.sample();
        if self.agent.stats.is_some() {
            self.agent.health.process_started(now_ms());
        }
    }

    /// The figures of the last look, which is not old while supervision runs.
    pub(crate) fn process_stats(&self) -> Option<ProcessStats> {
        self.agent.stats.clone()
    }

    fn sample(&mut self) {
        let Some(driver) = &self.agent.driver else { return };
        let Some(stats) = driver.stats() else { return };
        self.agent
            .health
            .sampled(ProcessSample { is_alive: stats.alive, is_stdout_open: driver.is_stdout_open() });
        let identity = self.session.identity();
        self.shared.process_table.put(&identity.session_id, &identity.harness, stats.clone());
        self.agent.stats = Some(stats);
    }

    fn probe(&mut self, now: i64) {
        let Some(handle) = self.handle() else { return };
        let sent = match handle.send_request(AgentRequest::GetState) {
            Ok(sent) => sent,
            Err(failure) => {
                tracing::debug!(error = failure.error, "a probe could not be sent");
                return self.agent.health.probe_refused(now);
            }
        };
        // An answer that comes after a restart is the old agent's and proves nothing about the new one.
        let generation = self.agent.generation;
        self.spawn_input(async move {
            let is_alive = !sent.reply().await.is_err_and(|failure| failure.lost);
            is_alive.then_some(SessionInput::Probed { generation })
        });
    }

    /// The agent hangs: it is killed, everybody is told, and it goes on from its session file.
    async fn restart_hung(&mut self, error: String) {
        // Without a chance to end by itself: it hangs, and would only use up the grace period.
        self.close_agent(CloseMode::Now).await;
        self.session.gone(now_ms(), AgentEnd::Hung { error: error.clone() }, &mut self.out);
        self.refuse_waiting(&ErrorCode::AgentHung.with(error));
        self.start_agent();
    }
}
