//! Kills and reaps everything below the guard.
//!
//! The guard is the child subreaper, so a process whose parent died becomes the guard's own child
//! at that instant. Hence "no children left" means "no descendants left", and that is the only
//! thing the loop here believes; what the scan of /proc finds merely makes it fast.

#[cfg(target_os = "linux")]
use std::collections::HashSet;
use std::io;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process_group, wait};

use super::cgroup::AgentCgroup;
use super::report::{ExitReport, GuardReport, LEFT_PIDS_MAX};
use super::signals::SignalReceiver;
use crate::clock;

/// After this long the guard reports what it could not kill yet, and goes on trying.
const KILL_WAIT_MAX: Duration = Duration::from_secs(5);
/// Pause between two rounds when no child has ended meanwhile.
const ROUND_WAIT: Duration = Duration::from_millis(10);
/// Pause between rounds once the report is out.
const LINGER_WAIT: Duration = Duration::from_secs(1);
/// How often one round looks for processes forked while it was stopping the others.
#[cfg(target_os = "linux")]
const STOP_PASSES_MAX: usize = 16;

/// Makes orphans of the agent children of this process.
pub(super) fn become_reaper() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// Collects the dead, and remembers how the agent ended.
pub(super) struct ChildReaper {
    agent: Pid,
    agent_status: Option<WaitStatus>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ReapResult {
    NoChildrenLeft,
    AgentEnded,
    AgentRuns,
}

impl ReapResult {
    pub(super) fn agent_ended(self) -> bool {
        self != Self::AgentRuns
    }
}

impl ChildReaper {
    pub(super) fn new(agent: Pid) -> Self {
        Self { agent, agent_status: None }
    }

    pub(super) fn has_agent_ended(&self) -> bool {
        self.agent_status.is_some()
    }

    /// Reaps every child that has ended, without waiting.
    pub(super) fn reap(&mut self) -> ReapResult {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.agent => self.agent_status = Some(status),
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) if self.has_agent_ended() => return ReapResult::AgentEnded,
                Ok(None) => return ReapResult::AgentRuns,
                Err(_) => return ReapResult::NoChildrenLeft,
            }
        }
    }

    pub(super) fn exit_report(&self, mut left: Vec<i32>) -> GuardReport {
        left.truncate(LEFT_PIDS_MAX);
        let exit = self.agent_status.map_or_else(ExitReport::default, |status| ExitReport {
            code: status.exit_status(),
            signal: status.terminating_signal(),
        });
        GuardReport::Exit { exit, left }
    }
}

/// Kills all descendants; returns those that would not die within `KILL_WAIT_MAX`.
pub(super) fn kill_everything(
    reaper: &mut ChildReaper,
    cgroup: Option<&AgentCgroup>,
    signals: &SignalReceiver,
) -> Vec<i32> {
    let deadline = clock::monotonic_now() + KILL_WAIT_MAX;
    loop {
        let seen = kill_round(reaper, cgroup);
        if reaper.reap() == ReapResult::NoChildrenLeft {
            return Vec::new();
        }
        if clock::monotonic_now() >= deadline {
            return seen;
        }
        signals.wait(ROUND_WAIT);
        if reaper.reap() == ReapResult::NoChildrenLeft {
            return Vec::new();
        }
    }
}

/// Goes on until the last descendant is gone, however long that takes.
pub(super) fn linger(reaper: &mut ChildReaper, cgroup: Option<&AgentCgroup>, signals: &SignalReceiver) {
    while reaper.reap() != ReapResult::NoChildrenLeft {
        kill_round(reaper, cgroup);
        signals.wait(LINGER_WAIT);
    }
}

/// Stops all descendants before killing the first, so that none forks in answer to a death.
#[cfg(target_os = "linux")]
fn kill_round(_reaper: &ChildReaper, cgroup: Option<&AgentCgroup>) -> Vec<i32> {
    if let Some(cgroup) = cgroup {
        cgroup.kill();
    }
    let mut seen = StoppedProcesses::default();
    for _ in 0..STOP_PASSES_MAX {
        if !seen.stop_new() {
            break;
        }
    }
    seen.signal_all(Signal::KILL);
    seen.pids.into_iter().collect()
}

/// Elsewhere there is no subreaper: the process group is all that can be reached.
#[cfg(not(target_os = "linux"))]
fn kill_round(reaper: &ChildReaper, _cgroup: Option<&AgentCgroup>) -> Vec<i32> {
    // A group that is gone already is what was asked for.
    let _ = kill_process_group(reaper.agent, Signal::KILL);
    vec![reaper.agent.as_raw_nonzero().get()]
}

/// Descendants found in one round, with their process groups.
///
/// A group is signalled as a whole because that is atomic in the kernel: a process that forks and
/// exits faster than /proc can be read keeps its group. All groups but the guard's own consist of
/// descendants, since the guard leads a session of its own. Process ids are handed out in a cycle,
/// so none is reused in the milliseconds between reading and signalling.
#[cfg(target_os = "linux")]
#[derive(Default)]
struct StoppedProcesses {
    pids: HashSet<i32>,
    groups: HashSet<i32>,
}

#[cfg(target_os = "linux")]
impl StoppedProcesses {
    /// Stops the descendants not seen before; false if there were none.
    fn stop_new(&mut self) -> bool {
        let guard = rustix::process::getpid().as_raw_nonzero().get();
        let own_group = rustix::process::getpgrp().as_raw_nonzero().get();
        let mut found_new = false;
        for process in crate::process::procfs::descendants(guard) {
            if process.is_dead() || !self.pids.insert(process.pid) {
                continue;
            }
            found_new = true;
            if process.group != own_group && self.groups.insert(process.group) {
                signal_group(process.group, Signal::STOP);
            }
            signal_process(process.pid, Signal::STOP);
        }
        found_new
    }

    fn signal_all(&self, signal: Signal) {
        for &group in &self.groups {
            signal_group(group, signal);
        }
        for &pid in &self.pids {
            signal_process(pid, signal);
        }
    }
}

#[cfg(target_os = "linux")]
fn signal_process(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // Gone already is fine; not permitted (a set-uid program) ends in the `left` report.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

#[cfg(target_os = "linux")]
fn signal_group(group: i32, signal: Signal) {
    // Group 0 would be the guard's own, and 1 in a container may be everybody's.
    if let Some(group) = Pid::from_raw(group).filter(|_| group > 1) {
        // As for single processes.
        let _ = kill_process_group(group, signal);
    }
}
