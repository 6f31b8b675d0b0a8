//! Finds and ends processes whose guard was itself killed.
//!
//! A guard killed with SIGKILL takes its agent along, but the agent's own children lose their
//! reaper. They are found by their cgroup, and by the key in their environment.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::procfs;
use crate::guard::cgroup::{self, AgentCgroup};
use crate::guard::owner_key::{KEY_VARIABLE, KeyOwner};

/// How often the scan is repeated for processes that were forked meanwhile.
const SWEEP_PASSES_MAX: usize = 64;

/// Ends the agents of runners that no longer exist, and returns how many processes that took.
///
/// Only a runner and its guards killed within the same moment leave any. Reads /proc, so call it
/// off the async threads, once when the runner starts.
pub fn sweep_abandoned() -> usize {
    let Some(current) = KeyOwner::current() else { return 0 };
    cgroup::sweep_abandoned();
    kill_marked(|key| KeyOwner::of_key(key).is_some_and(|owner| current.sees_dead(&owner)))
}

/// Ends what one dead guard has left behind.
pub(crate) fn sweep_agent(key: Option<&str>, cgroup: Option<AgentCgroup>) -> usize {
    if let Some(cgroup) = &cgroup {
        cgroup.kill();
    }
    let count = key.map_or(0, |wanted| kill_marked(|key| key == wanted));
    if let Some(cgroup) = cgroup {
        cgroup.remove();
    }
    count
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
