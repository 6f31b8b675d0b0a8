//! The name of one agent on one machine: its cgroup has it, and its environment carries it.
//!
//! It says which runner started the agent, so that a later runner can tell what was abandoned.

use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that marks an agent and its descendants.
pub(crate) const KEY_VARIABLE: &str = "QD_GUARD_KEY";
const PREFIX: &str = "qd-agent-";

/// A runner process, told apart from later ones with the same process id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyOwner {
    /// A process id means nothing outside its own namespace.
    namespace: u64,
    pid: i32,
    start_ticks: u64,
}

impl KeyOwner {
    /// This process; none where there is no /proc.
    pub(crate) fn current() -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let namespace = std::fs::metadata("/proc/self/ns/pid").ok()?.ino();
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let start_ticks = crate::process::procfs::read_stat(pid)?.start_ticks;
        Some(Self { namespace, pid, start_ticks })
    }

    /// A new key for an agent of this owner.
    pub(crate) fn new_key(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        format!("{PREFIX}{}-{}-{}-{number}", self.namespace, self.pid, self.start_ticks)
    }

    /// The owner that a key names; none if it is not a key of ours.
    pub(crate) fn of_key(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix(PREFIX)?.split('-');
        let owner = Self {
            namespace: parts.next()?.parse().ok()?,
            pid: parts.next()?.parse().ok()?,
            start_ticks: parts.next()?.parse().ok()?,
        };
        parts.next()?.parse::<u64>().ok()?;
        parts.next().is_none().then_some(owner)
    }

    /// Whether `other` was a runner in our namespace and is no more.
    pub(crate) fn sees_dead(&self, other: &Self) -> bool {
        self.namespace == other.namespace
            && self != other
            && crate::process::procfs::read_stat(other.pid)
                .is_none_or(|stat| stat.start_ticks != other.start_ticks || stat.is_dead())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_owner() {
        let owner = KeyOwner { namespace: 4_026_531_836, pid: 42, start_ticks: 77 };
        assert_eq!(KeyOwner::of_key(&owner.new_key()), Some(owner));
        for other in ["qd-agent-", "qd-agent-1-2-3", "qd-agent-1-2-3-4-5", "system.slice", "qd-agent-a-2-3-4"]
        {
            assert_eq!(KeyOwner::of_key(other), None, "{other}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_runners_that_are_gone_are_dead() {
        let current = KeyOwner::current().unwrap();
        assert!(!current.sees_dead(&current));
        let parent_pid = crate::process::procfs::read_stat(current.pid).unwrap().parent;
        let parent_ticks = crate::process::procfs::read_stat(parent_pid).unwrap().start_ticks;
        let parent = KeyOwner { pid: parent_pid, start_ticks: parent_ticks, ..current };
        assert!(!current.sees_dead(&parent));
        assert!(current.sees_dead(&KeyOwner { start_ticks: parent_ticks + 1, ..parent }));
        assert!(!current.sees_dead(&KeyOwner { namespace: 1, pid: i32::MAX, start_ticks: 1 }));
    }
}
