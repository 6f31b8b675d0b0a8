//! How a program ends: by itself, asked, killed; and what is left of it.
//!
//! A program's last output is recorded before its exit, and the exit is its last record. The time between a polite end
//! and a kill is a setting, with a bound when the runner itself stops.

use std::time::Duration;

use qd_core::session::AgentEnd;
use qd_wire::ErrorCode;
use qd_wire::data::SessionStatus;
use qd_wire::run::{RunSignal, RunStopData, RunStopParams, TERMINAL_HARNESS};

use crate::clock::now_ms;
use crate::driver::{AgentFailure, AgentProgress, RunExit};
use crate::process::CloseMode;
use crate::session::actor::SessionActor;
use crate::session::agent::agent_state::AgentState;
use crate::session::commands::admission::AdmittedCommand;

/// After a kill, for the guard to report; longer than the guard itself waits.
const KILLED_WAIT: Duration = Duration::from_secs(8);

/// The runner itself must stop in time, so its programs have less.
const SHUTDOWN_GRACE_MAX: Duration = Duration::from_secs(3);

/// What a run is told that was alive when its runner was not.
const CUT_OFF: &str = "The runner stopped while the program ran; the program was killed and how it ended is not known. \
                       session.restart starts it again.";

impl SessionActor {
    /// `run.stop`, and `abort`, which is its interrupt.
    pub(crate) fn run_stop(&mut self, admitted: AdmittedCommand, params: &RunStopParams) {
        let signal = params.signal.unwrap_or_default();
        match self.run_handle() {
            Ok(handle) => {
                handle.signal(signal);
                if signal == RunSignal::Term {
                    let grace =
                        i64::try_from(self.shared.config.runs.kill_after.as_millis()).unwrap_or(i64::MAX);
                    let kill_at = now_ms().saturating_add(grace);
                    // Asking again gives no more time.
                    self.run.kill_at = Some(self.run.kill_at.map_or(kill_at, |known| known.min(kill_at)));
                }
                self.answer_with(admitted, &RunStopData { signal });
            }
            Err(error) => self.finish(admitted, Err(AgentFailure::refused(error))),
        }
    }

    /// The program has ended, and everything it wrote is recorded.
    pub(crate) fn run_ended(&mut self, exit: RunExit) {
        self.agent.driver = None;
        self.forget_agent();
        let now = now_ms();
        let RunExit { code, signal, error } = exit;
        // The exit is the last record of the program.
        self.update_branch();
        self.session.run_exited(now, code, signal, error, &mut self.out);
        self.run.program_ended();
        if self.config.harness == TERMINAL_HARNESS {
            self.schedule_deletion(now);
        }
        let error = ErrorCode::RunEnded.with("The run has ended; session.restart starts it again");
        self.refuse_waiting(&error);
    }

    /// A session of last time: its program died with its runner.
    pub(crate) fn run_cut_off(&mut self) {
        let now = now_ms();
        if self.session.is_run_up() {
            self.session.run_exited(now, -1, None, Some(CUT_OFF.to_owned()), &mut self.out);
        }
        if self.config.harness == TERMINAL_HARNESS {
            self.schedule_deletion(now);
        }
    }

    fn schedule_deletion(&mut self, now: i64) {
        let keep = i64::try_from(self.shared.config.runs.terminal_keep.as_millis()).unwrap_or(i64::MAX);
        self.run.delete_at = Some(now.saturating_add(keep));
    }

    /// Ends the program and waits for it; its exit is recorded last.
    pub(crate) async fn stop_run(&mut self, gone: AgentEnd) {
        let reason = match gone {
            AgentEnd::Closed { reason } => format!("The run was {reason}"),
            AgentEnd::Stopped | AgentEnd::Hung { .. } | AgentEnd::Died { .. } => {
                "The run was stopped".to_owned()
            }
        };
        if self.agent.state == AgentState::Ready {
            self.end_run(&reason).await;
        } else if let Some(driver) = self.agent.driver.take() {
            driver.close(CloseMode::Graceful).await;
        }
        self.forget_agent();
        if self.exists && self.session.status() != SessionStatus::Closed {
            // It was about to start again.
            self.session.gone(now_ms(), AgentEnd::Closed { reason: reason.clone() }, &mut self.out);
        }
        self.refuse_waiting(&ErrorCode::AgentGone.with(reason));
    }

    /// Takes the terminal away, and kills a program that does not end by that. What it writes meanwhile is recorded.
    pub(crate) async fn end_run(&mut self, reason: &str) {
        let Ok(handle) = self.run_handle() else { return };
        handle.hang_up();
        let kill_after = self.shared.config.runs.kill_after;
        let grace = if self.is_stopping() { kill_after.min(SHUTDOWN_GRACE_MAX) } else { kill_after };
        if self.record_until_exit(grace).await {
            return;
        }
        handle.signal(RunSignal::Kill);
        if self.record_until_exit(KILLED_WAIT).await {
            return;
        }
        let session_id = &self.session.identity().session_id;
        tracing::error!(session_id, reason, "a program could not be killed in time");
        let error = format!("{reason}, and its end was not reported in time");
        self.run_ended(RunExit { code: -1, signal: None, error: Some(error) });
    }

    /// Records what the program does until it ends, for so long. Returns whether it has ended.
    async fn record_until_exit(&mut self, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        let mut events = Vec::new();
        while let Some(driver) = &mut self.agent.driver {
            let Ok(progress) = tokio::time::timeout_at(deadline, driver.next(&mut events)).await else {
                return false;
            };
            match progress {
                AgentProgress::Output(texts) => self.run_output(texts),
                AgentProgress::Exited(exit) => self.run_ended(exit),
                AgentProgress::Events | AgentProgress::Gone { .. } => {}
            }
            self.publish().await;
            if self.finished {
                return true;
            }
        }
        true
    }

    /// A terminal leaves nothing behind. What it said last has been sent, or nobody wants it any more.
    pub(crate) async fn delete_terminal(&mut self) {
        self.run.delete_at = None;
        if self.agent.state != AgentState::None {
            return;
        }
        let session_id = self.session.identity().session_id.clone();
        if let Err(error) = self.shared.store.delete_session(&session_id).await {
            tracing::warn!(%error, session_id, "a terminal could not be deleted; it is tried again");
            return self.schedule_deletion(now_ms());
        }
        self.shared.hub_delivery.forget(&session_id);
        self.exists = false;
        self.finished = true;
    }
}
