//! The processes of this machine, found by a marker in their command line.
#![allow(clippy::expect_used, reason = "a broken fixture is a failed test")]

use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

/// How often a condition is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Far longer than a healthy machine needs.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The living processes with `marker` in one of their arguments, this one not counted.
pub fn with_marker(marker: &str) -> Vec<i32> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<i32>() else { continue };
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let has_marker = String::from_utf8_lossy(&command).contains(marker);
        if has_marker && name != own && !is_zombie(pid) {
            found.push(pid);
        }
    }
    found
}

/// Waits until a condition is true, looking again and again.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let poll = async {
        while !condition() {
            tokio::time::sleep(POLL).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_MAX, poll).await.is_ok(), "waited {WAIT_MAX:?} in vain: {what}");
}

/// SIGKILL to a process the test knows to be its own.
pub fn kill9(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process number");
    // It may have ended by itself; then there is nothing to kill.
    let _gone = kill_process(pid, Signal::KILL);
}

fn is_zombie(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which stands in brackets and may contain anything.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
}

/// Bytes of memory a process holds now; 0 when it is gone.
pub fn resident_bytes(pid: i32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// The most it has ever held.
pub fn peak_resident_bytes(pid: i32) -> u64 {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: i32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024
}

/// Lets this process open as many files and connections as it may; most systems start it with room for 1024.
pub fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a limit up to the hard one");
}
