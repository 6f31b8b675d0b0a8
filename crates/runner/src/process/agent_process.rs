//! A running agent.

use std::ops::Deref;
use std::time::Duration;

use tokio::process::ChildStdout;

use super::agent_stdin::AgentStdin;
use super::exit_status::ExitStatus;
use super::guarded_process::GuardedProcess;
use super::spawn::ProcessConfig;
use super::stderr_tail::StderrTail;

/// How to end an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseMode {
    /// End its input, then ask with SIGTERM, then kill; each step only if the one before failed.
    Graceful,
    /// Kill at once.
    Now,
}

/// A running agent under its guard. Dropping it kills the agent and everything it started.
#[derive(Debug)]
pub struct AgentProcess {
    pub(super) guarded: GuardedProcess,
    pub(super) stdin: AgentStdin,
    pub(super) stdout: Option<ChildStdout>,
    pub(super) stderr: StderrTail,
    pub(super) config: ProcessConfig,
}

impl AgentProcess {
    /// Where to send the agent its input.
    pub fn stdin(&self) -> &AgentStdin {
        &self.stdin
    }

    /// The agent's output, once; it must be read on, or the agent blocks.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.stdout.take()
    }

    /// The last lines of stderr; complete when `exited` has resolved.
    pub fn stderr(&self) -> &StderrTail {
        &self.stderr
    }

    /// Sends SIGTERM to the agent's process group.
    pub fn terminate(&self) {
        self.guarded.send_order(b"term\n");
    }

    /// Ends the agent. Cancelling this kills it.
    pub async fn close(self, how: CloseMode) -> ExitStatus {
        self.stdin.close();
        if how == CloseMode::Graceful {
            if let Some(status) = self.exited_within(self.config.stdin_grace).await {
                return status;
            }
            self.terminate();
            if let Some(status) = self.exited_within(self.config.term_grace).await {
                return status;
            }
        }
        self.kill();
        match self.exited_within(self.config.kill_wait_max).await {
            Some(status) => status,
            None => {
                tracing::error!(
                    pid = self.guarded.pid,
                    "the guard did not report the end of its agent in time"
                );
                ExitStatus::Unknown
            }
        }
    }

    async fn exited_within(&self, limit: Duration) -> Option<ExitStatus> {
        tokio::time::timeout(limit, self.exited()).await.ok()
    }
}

/// What every process under a guard has: its id, its figures and its end.
impl Deref for AgentProcess {
    type Target = GuardedProcess;

    fn deref(&self) -> &GuardedProcess {
        &self.guarded
    }
}
