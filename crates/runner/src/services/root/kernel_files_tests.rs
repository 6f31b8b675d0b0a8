//! The real proc, sys and dev of the machine the tests run on.

use std::fs;

use serde_json::json;

use super::*;
use crate::services::call::Cancellation;
use crate::services::fs as files;
use crate::services::fs::fixture::{Fixture, call, refused_as};
use crate::services::root::own_data::OwnData;
use crate::services::root::{RelativePath, Root};
use crate::services::search::search;

fn assert_refused<T: std::fmt::Debug>(path: &str, result: ServiceResult<T>) {
    assert_eq!(refused_as(ErrorCode::PermissionDenied, result), REFUSED, "{path}");
}

#[test]
fn file_systems_of_the_kernel_are_no_roots() {
    let own = format!("/proc/{}", std::process::id());
    for path in ["/proc", "/proc/self", &own, "/proc/self/fd", "/proc/sys", "/sys", "/sys/kernel", "/dev"] {
        assert_refused(path, Root::open(Path::new(path)));
        assert_refused(path, OwnData::default().check_path(Path::new(path)));
        assert_eq!(check_directory(Path::new(path)).unwrap_err().message, REFUSED, "{path}");
    }
    // A link that leads out of them leads to where it says.
    for path in ["/", "/tmp", "/proc/self/cwd", "/proc/self/root"] {
        assert!(Root::open(Path::new(path)).is_ok(), "{path}");
        assert!(check_directory(Path::new(path)).is_ok(), "{path}");
    }
}

#[test]
fn file_systems_of_the_kernel_are_not_entered_from_above() {
    let root = Root::open(Path::new("/")).unwrap();
    let own = format!("proc/{}", std::process::id());
    for path in [&*format!("{own}/environ"), &format!("{own}/mem"), &format!("{own}/maps"), "dev/null"] {
        assert_refused(path, call(&root, files::read, json!({ "path": path })));
        assert_refused(path, call(&root, files::stat, json!({ "path": path, "hash": true })));
        assert_refused(path, call(&root, search, json!({ "query": "PATH", "path": path })));
        assert_refused(path, call(&root, files::copy, json!({ "from": path, "to": "tmp/stolen" })));
        assert_refused(path, call(&root, files::write, json!({ "path": path, "content": "" })));
        assert_refused(path, call(&root, files::delete, json!({ "path": path })));
    }
    for path in ["proc", &own, "sys", "sys/kernel", "dev"] {
        assert_refused(path, call(&root, files::list, json!({ "path": path })));
        assert_refused(path, call(&root, files::tree, json!({ "path": path })));
        assert_refused(path, call(&root, search, json!({ "query": "PATH", "path": path })));
        let path = json!({ "path": path, "include_hidden": true });
        let params = serde_json::from_value(path).unwrap();
        let watched = crate::services::watch::watch(&root, &params, &Cancellation::default(), &mut |_| {});
        assert_refused("watch", watched);
    }
}

#[test]
fn trees_end_where_the_kernel_begins() {
    let root = Root::open(Path::new("/")).unwrap();
    let tree = call(&root, files::tree, json!({ "depth": 2, "limit": 5000 })).unwrap();
    for name in ["proc", "sys", "dev"] {
        let node = tree.entries.iter().find(|node| node.name == name).unwrap();
        assert!(node.children.is_none(), "{name}");
    }
}

/// Files in memory are files, although /dev says the same of itself.
#[test]
fn files_in_memory_are_ordinary() {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() && fs::metadata(memory).is_ok_and(|found| !found.permissions().readonly()) {
        let temp = tempfile::TempDir::new_in(memory).unwrap();
        fs::write(temp.path().join("a"), "in memory").unwrap();
        let root = Root::open(temp.path()).unwrap();
        assert_eq!(call(&root, files::read, json!({ "path": "a" })).unwrap().content, "in memory");
    }
}

/// A mount of a single file, and of a directory, into a workspace. Where mounts are not allowed nobody can make these.
#[test]
fn what_is_mounted_into_a_workspace_is_checked_too() {
    let fixture = Fixture::new();
    for name in ["environ", "cpu", "plain"] {
        fixture.put(name, "");
    }
    for name in ["proc", "sys", "dev", "other"] {
        fs::create_dir(fixture.at(name)).unwrap();
    }
    fs::write(fixture.outside.join("plain"), "an ordinary file").unwrap();
    let root_path = fixture.root.path().to_owned();
    let outside = fixture.outside;
    let environ = format!("/proc/{}/environ", std::process::id());
    // Mounts of a thread's own: they end with it, and nobody else sees them.
    let checked = std::thread::spawn(move || {
        if !mounts::are_allowed() {
            return false;
        }
        for (from, to) in [
            (Path::new(&environ), "environ"),
            (Path::new("/sys/devices/system/cpu/online"), "cpu"),
            (&*outside.join("plain"), "plain"),
            (Path::new("/proc"), "proc"),
            (Path::new("/sys"), "sys"),
            (Path::new("/dev"), "dev"),
            (&*outside, "other"),
        ] {
            mounts::bind(from, &root_path.join(to));
        }
        let root = Root::open(&root_path).unwrap();
        for path in ["environ", "cpu", "proc/uptime", "sys/devices/system/cpu/online", "dev/null"] {
            assert_refused(path, root.open_file(&RelativePath::parse(path).unwrap()));
            assert_refused(path, call(&root, files::copy, json!({ "from": path, "to": "stolen" })));
        }
        for path in ["proc", "sys", "dev"] {
            assert_refused(path, root.open_dir(&RelativePath::parse(path).unwrap()));
            assert_refused(path, call(&root, files::copy, json!({ "from": path, "to": "stolen" })));
            let delete = json!({ "path": path, "recursive": true });
            assert_refused(path, call(&root, files::delete, delete));
        }
        assert_eq!(call(&root, files::read, json!({ "path": "plain" })).unwrap().content, "an ordinary file");
        assert!(call(&root, files::list, json!({ "path": "other" })).is_ok());
        let found = call(&root, search, json!({ "query": "PATH=", "include_hidden": true })).unwrap();
        assert_eq!(found.matches.len(), 0, "{:?}", found.matches);
        true
    });
    if !checked.join().unwrap() {
        eprintln!("mounts are not allowed here, so nobody can mount anything into a workspace either");
    }
}

mod mounts {
    use std::path::Path;
    use std::process::Command;

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    /// Gives this thread, and the programs it starts, mounts of their own.
    #[allow(unsafe_code)]
    pub(super) fn are_allowed() -> bool {
        // SAFETY: only the mounts and the current directory of this thread become its own. Both are named by paths, so
        // no memory or descriptor changes hands.
        let is_own = unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.is_ok();
        is_own && mount(&["--make-rprivate".as_ref(), "/".as_ref()])
    }

    pub(super) fn bind(from: &Path, to: &Path) {
        assert!(mount(&["--bind".as_ref(), from, to]), "{from:?}");
    }

    fn mount(arguments: &[&Path]) -> bool {
        Command::new("mount").args(arguments).status().is_ok_and(|status| status.success())
    }
}
