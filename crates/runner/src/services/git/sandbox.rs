//! A second wall around git where the kernel has landlock: it reads beneath the repository and where programs are, runs
//! no other program and connects nowhere. Without it git runs all the same: the first wall is that it gets nothing to run.

use std::path::PathBuf;
use std::process::Command;

/// What git may open.
#[derive(Debug, Default, Clone)]
pub(super) struct GitPlaces {
    pub(super) read: Vec<PathBuf>,
    pub(super) write: Vec<PathBuf>,
}

/// Finds out whether git can be confined here; that starts it once, so it is done on a thread that may block.
pub(super) fn prepare() {
    #[cfg(target_os = "linux")]
    linux::programs();
}

/// Confines a command that has not been started yet. False where that cannot be done.
pub(super) fn confine(command: &mut Command, places: &GitPlaces) -> bool {
    #[cfg(target_os = "linux")]
    {
        linux::confine(command, places)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (command, places);
        false
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{OsStr, c_int, c_long, c_ulong};
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::sync::OnceLock;

    use rustix::fs::{CWD, Mode, OFlags};

    use super::{Command, GitPlaces, PathBuf};

    /// The numbers are the same on all architectures.
    const CREATE_RULESET: c_long = 444;
    const ADD_RULE: c_long = 445;
    const RESTRICT_SELF: c_long = 446;
    const CREATE_RULESET_VERSION: c_ulong = 1;
    const RULE_PATH_BENEATH: c_ulong = 1;
    const SET_NO_NEW_PRIVS: c_int = 38;

    /// Rights on files, by the bits of the kernel's interface.
    const EXECUTE: u64 = 1;
    const WRITE_FILE: u64 = 1 << 1;
    const READ_FILE: u64 = 1 << 2;
    const READ_DIR: u64 = 1 << 3;
    /// All of the first version: with removing and making of files of every kind.
    const FIRST_RIGHTS: u64 = (1 << 13) - 1;
    /// Since the second version: moving between directories. Since the third: cutting off.
    const REFER: u64 = 1 << 13;
    const TRUNCATE: u64 = 1 << 14;
    /// Since the fourth version: listening and connecting by TCP.
    const ALL_OF_NETWORK: u64 = 3;

    /// Where programs and their libraries are; what is not there is left out.
    const SYSTEM: [&str; 10] = [
        "/usr",
        "/lib",
        "/lib32",
        "/lib64",
        "/bin",
        "/nix",
        "/gnu",
        "/opt",
        "/dev/urandom",
        "/etc/ld.so.cache",
    ];

    /// Files that say who the user is and what time it is.
    const FACTS: [&str; 4] = ["/etc/passwd", "/etc/nsswitch.conf", "/etc/localtime", "/etc/ld.so.preload"];

    #[repr(C)]
    struct RulesetAttributes {
        fs: u64,
        network: u64,
    }

    #[repr(C, packed)]
    struct PathBeneath {
        allowed: u64,
        parent: c_int,
    }

    #[allow(unsafe_code, reason = "landlock has no wrapper in the libraries we use")]
    mod calls {
        use super::*;

        unsafe extern "C" {
            fn syscall(number: c_long, ...) -> c_long;
            fn prctl(option: c_int, ...) -> c_int;
        }

        fn checked(result: c_long) -> io::Result<c_long> {
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
        }

        /// The version of landlock that the kernel has.
        pub(super) fn version() -> io::Result<c_long> {
            let none = std::ptr::null::<RulesetAttributes>();
            // SAFETY: without attributes and with this flag the call only returns a number.
            checked(unsafe { syscall(CREATE_RULESET, none, 0usize, CREATE_RULESET_VERSION) })
        }

        pub(super) fn create(attributes: &RulesetAttributes, bytes: usize) -> io::Result<OwnedFd> {
            // SAFETY: the attributes live during the call and have at least that many bytes.
            let made = checked(unsafe {
                syscall(CREATE_RULESET, std::ptr::from_ref(attributes), bytes, 0 as c_ulong)
            })?;
            // SAFETY: the call has returned a new descriptor, which is nobody else's.
            Ok(unsafe { OwnedFd::from_raw_fd(made as c_int) })
        }

        pub(super) fn add(ruleset: &OwnedFd, rule: &PathBeneath) -> io::Result<()> {
            let rule = std::ptr::from_ref(rule);
            // SAFETY: the rule lives during the call, and both descriptors are open.
            checked(unsafe { syscall(ADD_RULE, ruleset.as_raw_fd(), RULE_PATH_BENEATH, rule, 0 as c_ulong) })
                .map(drop)
        }

        /// Confines the process between fork and exec.
        pub(super) fn confine_at_exec(command: &mut Command, ruleset: OwnedFd) {
            // SAFETY: the closure runs between fork and exec. It makes only two raw system calls on a descriptor it
            // owns, and neither allocates nor locks.
            unsafe {
                command.pre_exec(move || {
                    checked(c_long::from(prctl(
                        SET_NO_NEW_PRIVS,
                        1 as c_ulong,
                        0 as c_ulong,
                        0 as c_ulong,
                        0 as c_ulong,
                    )))?;
                    checked(syscall(RESTRICT_SELF, ruleset.as_raw_fd(), 0 as c_ulong)).map(drop)
                });
            }
        }
    }

    pub(super) fn confine(command: &mut Command, places: &GitPlaces) -> bool {
        let programs = programs();
        if programs.is_empty() {
            return false;
        }
        match ruleset(programs, places) {
            Ok(ruleset) => {
                calls::confine_at_exec(command, ruleset);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "git runs without landlock");
                false
            }
        }
    }

    /// Git's own programs and what loads them, if git runs when nothing else may be run.
    pub(super) fn programs() -> &'static [PathBuf] {
        static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
        PROGRAMS.get_or_init(|| {
            let programs = find_programs().unwrap_or_default();
            let works = || -> io::Result<bool> {
                let mut probe = super::super::program::program();
                probe.arg("--version").current_dir("/").stdin(std::process::Stdio::null());
                probe.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
                calls::confine_at_exec(&mut probe, ruleset(&programs, &GitPlaces::default())?);
                Ok(probe.output()?.status.success())
            };
            if matches!(works(), Ok(true)) {
                return programs;
            }
            tracing::info!("git runs without landlock on this machine");
            Vec::new()
        })
    }

    fn find_programs() -> Option<Vec<PathBuf>> {
        let mut command = super::super::program::program();
        let output = command.arg("--exec-path").current_dir("/").output().ok()?;
        let exec_path = PathBuf::from(std::str::from_utf8(&output.stdout).ok()?.trim());
        let path = std::env::var_os("PATH")?;
        let git = std::env::split_paths(&path)
            .map(|place| place.join("git"))
            .find(|git| git.is_absolute() && git.is_file())?;
        let mut programs = vec![exec_path.canonicalize().ok()?, git.canonicalize().ok()?];
        for place in ["/lib64", "/lib", "/usr/lib64", "/usr/lib"] {
            let Ok(entries) = std::fs::read_dir(place) else { continue };
            let is_loader = |name: &OsStr| name.to_str().is_some_and(|name| name.starts_with("ld-"));
            let loaders = entries.flatten().filter(|entry| is_loader(&entry.file_name()));
            programs.extend(loaders.filter_map(|entry| entry.path().canonicalize().ok()));
        }
        Some(programs)
    }

    fn ruleset(programs: &[PathBuf], places: &GitPlaces) -> io::Result<OwnedFd> {
        let version = calls::version()?;
        let mut all = FIRST_RIGHTS;
        for (since, right) in [(2, REFER), (3, TRUNCATE)] {
            all |= if version >= since { right } else { 0 };
        }
        let bytes = if version >= 4 { size_of::<RulesetAttributes>() } else { size_of::<u64>() };
        let ruleset = calls::create(&RulesetAttributes { fs: all, network: ALL_OF_NETWORK }, bytes)?;
        let read = READ_FILE | READ_DIR;
        for place in SYSTEM.iter().chain(&FACTS) {
            allow(&ruleset, Path::new(place), read)?;
        }
        for place in programs {
            allow(&ruleset, place, read | EXECUTE)?;
        }
        allow(&ruleset, Path::new("/dev/null"), READ_FILE | WRITE_FILE | (TRUNCATE & all))?;
        for place in &places.read {
            allow(&ruleset, place, read)?;
        }
        for place in &places.write {
            allow(&ruleset, place, all & !EXECUTE)?;
        }
        Ok(ruleset)
    }

    /// What is not there is left out. A file can have fewer rights than a directory.
    fn allow(ruleset: &OwnedFd, path: &Path, rights: u64) -> io::Result<()> {
        let Ok(opened) = rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) else {
            return Ok(());
        };
        let is_directory = rustix::fs::fstat(&opened)
            .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir());
        let of_files = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;
        let allowed = if is_directory { rights } else { rights & of_files };
        calls::add(ruleset, &PathBeneath { allowed, parent: opened.as_raw_fd() })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::services::git::program::program;

    /// Where the kernel has no landlock there is nothing to see.
    #[test]
    fn git_reads_where_it_may_and_runs_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (inside, outside) = (place.path().join("inside"), place.path().join("outside"));
        for directory in [&inside, &outside] {
            std::fs::create_dir(directory).unwrap();
            std::fs::write(directory.join("file"), "text").unwrap();
        }
        let run = |places: &GitPlaces, arguments: &[&str]| {
            let mut command = program();
            command.args(arguments).current_dir(&inside).stdin(Stdio::null());
            command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
            confine(&mut command, places).then(|| command.output().unwrap().status.success())
        };
        let places = GitPlaces { read: vec![inside.clone()], write: Vec::new() };
        let Some(is_read) = run(&places, &["hash-object", "file"]) else { return };
        assert!(is_read, "what is inside");
        assert_eq!(run(&places, &["hash-object", "../outside/file"]), Some(false));
        let mark = inside.join("mark");
        let alias = format!("alias.x=!touch '{}'", mark.display());
        let writing = GitPlaces { write: vec![inside.clone()], ..GitPlaces::default() };
        for places in [&places, &writing] {
            assert_eq!(run(places, &["-c", &alias, "x"]), Some(false));
            assert!(!mark.exists());
        }
        let clone = ["init", "-q", "made"];
        assert_eq!((run(&places, &clone), run(&writing, &clone)), (Some(false), Some(true)));
    }
}
