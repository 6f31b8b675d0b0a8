//! One cgroup v2 directory per agent, where the machine allows it.
//!
//! It is an addition to the subreaper, never a condition: every failure here means "go without".
//! What it adds is a kill that is atomic in the kernel, and one that still works when the guard
//! itself was killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::owner_key::KeyOwner;

/// How deep below an agent's cgroup directories are removed (an agent may run containers).
const NESTING_MAX: usize = 16;

/// A directory in the cgroup v2 tree that holds one agent and its descendants.
#[derive(Debug, Clone)]
pub(crate) struct AgentCgroup {
    path: PathBuf,
}

impl AgentCgroup {
    /// Makes a new directory below the caller's own cgroup, or none where that is not allowed.
    pub(crate) fn create(key: &str) -> Option<Self> {
        let path = own_directory()?.join(key);
        fs::create_dir(&path).ok()?;
        let cgroup = Self { path };
        // A mount that lets us make directories but not use them is of no use.
        if cgroup.open_membership().is_none() {
            cgroup.remove();
            return None;
        }
        Some(cgroup)
    }

    pub(super) fn existing(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file into which a process writes `0` to move itself here.
    pub(super) fn open_membership(&self) -> Option<File> {
        File::options().write(true).open(self.path.join("cgroup.procs")).ok()
    }

    /// Kills all members at once (Linux 5.14 and newer; before that the subreaper does it alone).
    pub(crate) fn kill(&self) {
        // Failure is the case "not supported", which the caller does not rely on.
        let _ = fs::write(self.path.join("cgroup.kill"), "1");
    }

    /// Removes the directory, which works once the last member is gone.
    pub(crate) fn remove(self) {
        remove_tree(&self.path, NESTING_MAX);
    }
}

/// Kills and removes the cgroups of runners that no longer exist.
///
/// Only SIGKILL of a runner and its guards within the same moment leaves any.
pub(crate) fn sweep_abandoned() {
    let (Some(parent), Some(current)) = (own_directory(), KeyOwner::current()) else { return };
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(KeyOwner::of_key);
        if owner.is_some_and(|owner| current.sees_dead(&owner)) {
            let cgroup = AgentCgroup { path: entry.path() };
            cgroup.kill();
            cgroup.remove();
        }
    }
}

/// Removes bottom-up; the files in a cgroup directory vanish with it.
fn remove_tree(path: &Path, depth: usize) {
    if let Ok(entries) = fs::read_dir(path)
        && depth > 0
    {
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_tree(&entry.path(), depth - 1);
        }
    }
    // A directory that is still busy is swept by the next runner that starts here.
    let _ = fs::remove_dir(path);
}

fn own_directory() -> Option<PathBuf> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    directory_of(&membership, &mounts)
}

/// Finds the directory of the caller's cgroup v2 from `/proc/self/cgroup` and `mountinfo`.
fn directory_of(membership: &str, mounts: &str) -> Option<PathBuf> {
    let own = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        if kind.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = fields.split(' ').skip(3);
        let (root, mount_point) = (unescape(fields.next()?), unescape(fields.next()?));
        // Inside a container the mount may show only a part of the tree.
        let below = Path::new(own).strip_prefix(&root).ok()?;
        Some(Path::new(&mount_point).join(below))
    })
}

/// Undoes the octal escapes of mountinfo, of which only these four exist.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_found_in_every_layout() {
        let unified = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let hybrid = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let part = "31 23 0:28 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let spaces = "31 23 0:28 / /mnt/c\\040g rw - cgroup2 cgroup rw\n";
        let none = "31 23 0:28 / /proc rw - proc proc rw\n";
        for (membership, mounts, expected) in [
            ("0::/\n", unified, Some("/sys/fs/cgroup")),
            ("0::/user.slice/a.scope\n", unified, Some("/sys/fs/cgroup/user.slice/a.scope")),
            ("4:memory:/x\n0::/y\n", hybrid, Some("/sys/fs/cgroup/unified/y")),
            ("0::/docker/abc/d\n", part, Some("/sys/fs/cgroup/d")),
            ("0::/elsewhere\n", part, None),
            ("0::/a\n", spaces, Some("/mnt/c g/a")),
            ("4:memory:/x\n", unified, None),
            ("0::/\n", none, None),
        ] {
            assert_eq!(
                directory_of(membership, mounts),
                expected.map(PathBuf::from),
                "{membership} in {mounts}"
            );
        }
    }
}
