//! Where the runner of this machine listens for local commands.
//!
//! A place that cannot be used is skipped, and the person is told which one the runner took instead.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::error::{CliError, Result};
use crate::settings::Settings;

/// What the system takes as the path of a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;

/// Somebody who listens is asked this often again, this long apart, before the place is taken.
const TRIES_MAX: u32 = 20;
const RETRY: Duration = Duration::from_millis(25);

/// The place for the socket, and what a person should know about it.
#[derive(Debug, PartialEq)]
pub(crate) struct ChosenSocket {
    pub(crate) path: PathBuf,
    pub(crate) notice: Option<String>,
}

/// The first place that can be used; `None` when there shall be no socket. It may take a moment, so it is asked
/// before the threads that serve are there.
pub(crate) fn choose_socket(settings: &Settings) -> Result<Option<ChosenSocket>> {
    let mut problems: Vec<String> = Vec::new();
    for path in &settings.runner_sockets {
        // Only for the last one. A busy place before it is skipped at once, because there is another.
        if settings.runner_sockets.last() == Some(path) {
            wait_for_dying_runner(path);
        }
        match problem(path) {
            None => {
                let notice = (!problems.is_empty()).then(|| {
                    format!("{}; local commands find this runner at {}", problems.join("; "), path.display())
                });
                return Ok(Some(ChosenSocket { path: path.clone(), notice }));
            }
            Some(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        return Ok(None);
    }
    Err(CliError::failed(format!("cannot create the runner's socket: {}", problems.join("; ")))
        .hint("use another path with --runner-socket PATH, or disable it with --runner-socket off"))
}

/// A runner that was killed a moment ago may still hold the last place there is.
fn wait_for_dying_runner(path: &Path) {
    let mut tries = 0;
    while tries < TRIES_MAX && call(path).is_ok() {
        tries += 1;
        std::thread::sleep(RETRY);
    }
}

/// Why a socket cannot be here.
fn problem(path: &Path) -> Option<String> {
    let shown = path.display();
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The runner binds in a directory of its own first, which has this name.
    let temporary = directory.join(format!(".qd{}", std::process::id())).join("s");
    if [path, &temporary].iter().any(|path| path.as_os_str().as_bytes().len() > PATH_BYTES_MAX) {
        return Some(format!("{shown} is longer than the {PATH_BYTES_MAX} bytes a socket's path may have"));
    }
    match call(path) {
        // One whose queue of callers is full is there too.
        Ok(()) | Err(Errno::AGAIN) => return Some(format!("another runner listens on {shown}")),
        // Nobody is there; what is left of a dead runner may be replaced.
        Err(Errno::NOENT | Errno::CONNREFUSED) => {}
        Err(error) => return Some(format!("{shown} cannot be used: {}", std::io::Error::from(error))),
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| !file.file_type().is_socket()) {
        return Some(format!("{shown} is there already and is not a socket"));
    }
    match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => None,
        Err(error) => Some(format!("{shown} cannot be made: {}", std::io::Error::from(error))),
    }
}

/// Calls whoever listens there, and never waits.
fn call(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Flags, test_settings};
    use std::os::unix::net::UnixListener;

    fn settings(sockets: Vec<PathBuf>) -> Settings {
        Settings { runner_sockets: sockets, ..test_settings(Flags::default()) }
    }

    #[test]
    fn a_living_runner_keeps_its_place_and_a_dead_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("a.sock"), directory.path().join("b.sock"));
        let both = settings(vec![first.clone(), second.clone()]);
        let living = UnixListener::bind(&first).unwrap();
        let place = choose_socket(&both).unwrap().unwrap();
        assert_eq!(place.path, second);
        assert!(place.notice.unwrap().contains("another runner listens"));
        let alone = choose_socket(&settings(vec![first.clone()])).unwrap_err();
        assert!(alone.hint.unwrap().contains("--runner-socket"));
        drop(living);
        assert_eq!(
            choose_socket(&both).unwrap(),
            Some(ChosenSocket { path: first, notice: None }),
            "left behind by a crash"
        );
    }

    #[test]
    fn what_is_not_a_socket_stays_and_the_next_place_is_taken() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "notes").unwrap();
        drop(UnixListener::bind(at("dead")).unwrap());
        std::os::unix::fs::symlink(at("dead"), at("link")).unwrap();
        for name in ["file", "link"] {
            let refused = choose_socket(&settings(vec![at(name)])).unwrap_err();
            assert!(refused.message.contains("is not a socket"), "{}", refused.message);
            let place = choose_socket(&settings(vec![at(name), at("dead")])).unwrap().unwrap();
            assert_eq!(place.path, at("dead"));
        }
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "notes");
        let _other_kind = std::os::unix::net::UnixDatagram::bind(at("datagrams")).unwrap();
        assert!(
            choose_socket(&settings(vec![at("datagrams")])).unwrap_err().message.contains("cannot be used")
        );
    }

    #[test]
    fn a_runner_too_busy_to_accept_does_not_hold_us_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let _busy = UnixListener::bind(&path).unwrap();
        let mut calls = 0;
        let callers: Vec<_> = std::iter::from_fn(|| {
            calls += 1;
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let caller = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            connect(&caller, &SocketAddrUnix::new(&path).unwrap()).ok().map(|()| caller)
        })
        .take(10_000)
        .collect();
        assert_eq!(calls, callers.len() + 1, "its queue is full");
        assert!(problem(&path).unwrap().contains("another runner listens"));
    }

    #[test]
    fn impossible_places_are_said() {
        let deep = PathBuf::from(format!("/tmp/{}/s", "x".repeat(PATH_BYTES_MAX - 8)));
        assert!(deep.as_os_str().len() <= PATH_BYTES_MAX, "only the place it is first bound at is too long");
        assert!(choose_socket(&settings(vec![deep])).unwrap_err().message.contains("107"));
        assert_eq!(choose_socket(&settings(Vec::new())).unwrap(), None);
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(choose_socket(&settings(vec![long])).unwrap_err().message.contains("107"));
        let nowhere = choose_socket(&settings(vec!["/no/such/directory/s".into()])).unwrap_err();
        assert!(nowhere.message.contains("cannot be made"), "{}", nowhere.message);
    }
}
