//! Finds and ends processes whose guard was itself killed.
//!
//! A guard killed with SIGKILL takes its agent along, but the agent's own children lose their
//! reaper. They become children of the runner, and are found so: whatever they have done to their environment and to
//! their place among processes. Those of an earlier runner are found by their cgroup and the key in their environment.

use std::collections::HashSet;
use std::fs;
#[cfg(target_os = "linux")]
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::process::WaitOptions;
use rustix::process::{Pid, Signal, kill_process};

#[cfg(target_os = "linux")]
use super::guard_table;
use super::procfs;
#[cfg(target_os = "linux")]
use super::procfs::ProcessStat;
use crate::guard::cgroup::{self, AgentCgroup};
use crate::guard::owner_key::{KEY_VARIABLE, KeyOwner};

/// How often the scan is repeated for processes that were forked meanwhile.
const SWEEP_PASSES_MAX: usize = 64;

/// How often orphans are looked for that are still there: two seconds, which only one that resists SIGKILL takes.
#[cfg(target_os = "linux")]
const ORPHAN_PASSES_MAX: usize = 400;
#[cfg(target_os = "linux")]
const ORPHAN_PAUSE: Duration = Duration::from_millis(5);

/// Ends the agents of runners that no longer exist, and returns how many processes that took.
///
/// Only a runner and its guards killed within the same moment leave any. Reads /proc, so call it
/// off the async threads, once when the runner starts.
pub fn sweep_abandoned() -> usize {
    let Some(current) = KeyOwner::current() else { return 0 };
    cgroup::sweep_abandoned();
    kill_marked(|key| KeyOwner::of_key(key).is_some_and(|owner| current.sees_dead(&owner)))
}

/// Makes what a killed guard leaves behind children of this process, where nobody takes them for programs of a person.
pub(crate) fn become_reaper() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
        tracing::warn!(%error, "what a killed guard leaves behind will not be recognised");
    }
}

/// Ends what one dead guard has left behind.
pub(crate) fn sweep_agent(key: Option<&str>, cgroup: Option<AgentCgroup>) -> usize {
    if let Some(cgroup) = &cgroup {
        cgroup.kill();
    }
    let count = end_orphans() + key.map_or(0, |wanted| kill_marked(|key| key == wanted));
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    count
}

/// Kills and reaps the children of this process that lead a life of their own and are no guards. Guards are the only
/// ones we start in sessions of processes of their own, and whatever is below one stays out of ours for ever.
#[cfg(target_os = "linux")]
fn end_orphans() -> usize {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let Some(own_session) = procfs::read_stat(own).map(|stat| stat.session) else { return 0 };
    let mut killed = HashSet::new();
    for _ in 0..ORPHAN_PASSES_MAX {
        let is_left = guard_table::with_all(|is_guard| {
            let is_orphan =
                |stat: &ProcessStat| stat.parent == own && stat.session != own_session && !is_guard(stat.pid);
            let orphans: Vec<ProcessStat> =
                procfs::all_pids().filter_map(procfs::read_stat).filter(is_orphan).collect();
            for pid in orphans.iter().filter_map(|stat| Pid::from_raw(stat.pid)) {
                // It may be gone by itself, or not ours to kill; then it is found again until the passes are over.
                if kill_process(pid, Signal::KILL).is_ok() {
                    killed.insert(pid.as_raw_nonzero().get());
                }
                let _reaped = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
            }
            !orphans.is_empty()
        });
        if !is_left {
            break;
        }
        // What was killed needs a moment to end, and its own children one to become ours.
        std::thread::sleep(ORPHAN_PAUSE);
    }
    killed.len()
}

/// Elsewhere they become nobody's.
#[cfg(not(target_os = "linux"))]
fn end_orphans() -> usize {
    0
}

/// Kills until a whole pass over /proc finds nothing more that lives.
fn kill_marked(matches: impl Fn(&str) -> bool) -> usize {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut killed = HashSet::new();
    for _ in 0..SWEEP_PASSES_MAX {
        let mut found = false;
        for pid in procfs::all_pids().filter(|pid| *pid != own) {
            if !key_of(pid).is_some_and(|key| matches(&key)) {
                continue;
            }
            if procfs::read_stat(pid).is_none_or(|stat| stat.is_dead()) {
                continue;
            }
            // A failure means that it is gone, or not ours to kill; the passes are bounded.
            if Pid::from_raw(pid).is_some_and(|target| kill_process(target, Signal::KILL).is_ok()) {
                found = true;
                killed.insert(pid);
            }
        }
        if !found {
            break;
        }
    }
    killed.len()
}

fn key_of(pid: i32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(KEY_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        String::from_utf8(value.to_vec()).ok()
    })
}
