//! The machine: where data goes, how much fits, how agents are held.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statvfs};

use super::Check;

/// Below this the server still starts but will soon stop storing.
const DISK_BYTES_WARNING: u64 = 1024 * 1024 * 1024;
const DISK_BYTES_MIN: u64 = 50 * 1024 * 1024;

pub(super) fn data_dir(path: &Path) -> Check {
    const NAME: &str = "data directory";
    // `qd up` creates the directory, so what counts is whether it may.
    let existing = nearest_existing(path);
    let writable = access(&existing, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match (writable, existing == path) {
        (true, true) => Check::ok(NAME, format!("{} is writable", path.display())),
        (true, false) => Check::ok(NAME, format!("{} will be created by `qd up`", path.display())),
        (false, _) => Check::failed(
            NAME,
            format!("{} is not writable", existing.display()),
            "repair its owner and permissions, or name another with --data-dir",
        ),
    }
}

pub(super) fn disk_space(path: &Path) -> Check {
    const NAME: &str = "disk space";
    let Ok(stat) = statvfs(nearest_existing(path)) else {
        return Check::warning(NAME, "cannot be measured", "check with `df`");
    };
    // `f_bavail` leaves out what is reserved for root, which the server cannot use.
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{} MB free", free / (1024 * 1024));
    let advice = "make room, or move the data directory with --data-dir";
    match free {
        0..DISK_BYTES_MIN => Check::failed(NAME, found, advice),
        DISK_BYTES_MIN..DISK_BYTES_WARNING => Check::warning(NAME, found, advice),
        _ => Check::ok(NAME, found),
    }
}

/// How agent processes are held together; both ways leave none behind.
pub(super) fn containment() -> Check {
    const NAME: &str = "process groups";
    match own_cgroup() {
        Some(path) if access(&path, Access::WRITE_OK).is_ok() => {
            Check::ok(NAME, format!("cgroup v2, {} is writable", path.display()))
        }
        Some(_) => {
            Check::ok(NAME, "cgroup v2 is not writable; agents run under a supervisor process instead")
        }
        None => Check::ok(NAME, "no cgroup v2; agents run under a supervisor process instead"),
    }
}

/// The directory of this process in cgroup v2, whose line in `/proc/self/cgroup` begins with `0::`.
fn own_cgroup() -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = Path::new("/sys/fs/cgroup").join(path);
    directory.join("cgroup.procs").exists().then_some(directory)
}

fn nearest_existing(path: &Path) -> PathBuf {
    path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(Path::new("/")).to_path_buf()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Health;

    #[test]
    fn a_directory_to_be_made_is_fine_and_a_file_in_the_way_is_not() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(data_dir(directory.path()).health, Health::Ok);
        assert!(data_dir(&directory.path().join("new/qd")).found.contains("will be created"));
        let file = directory.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(data_dir(&file.join("qd")).health, Health::Failed);
    }
}
