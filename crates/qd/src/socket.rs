//! Where the runner of this machine listens for local commands.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::error::CliError;
use crate::settings::Settings;

/// What the system takes as the path of a socket, in bytes.
const PATH_BYTES_MAX: usize = 107;

/// Somebody who listens is asked this often again, this long apart, before the place is taken.
const TRIES_MAX: u32 = 20;
const RETRY: Duration = Duration::from_millis(25);

/// The place for the socket, and what a person should know about it.
#[derive(Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) notice: Option<String>,
}

/// The first place that can be used; `None` when there shall be no socket.
pub(crate) fn choose(settings: &Settings) -> Result<Option<Place>, CliError> {
    let mut problems: Vec<String> = Vec::new();
    for path in &settings.runner_sockets {
        if settings.runner_sockets.last() == Some(path) {
            let_it_die(path);
        }
        match problem(path) {
            None => {
                let notice = (!problems.is_empty()).then(|| {
                    format!("{}; local commands find this runner at {}", problems.join("; "), path.display())
                });
                return Ok(Some(Place { path: path.clone(), notice }));
            }
            Some(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() {
        return Ok(None);
    }
    Err(CliError::failed(format!("there is no place for the runner's socket: {}", problems.join("; ")))
        .hint("name another with --runner-socket PATH, or do without it: --runner-socket off"))
}

/// A runner that was killed a moment ago may still hold the last place there is.
fn let_it_die(path: &Path) {
    let mut tries = 0;
    while tries < TRIES_MAX && UnixStream::connect(path).is_ok() {
        tries += 1;
        std::thread::sleep(RETRY);
    }
}

/// Why a socket cannot be here.
fn problem(path: &Path) -> Option<String> {
    let shown = path.display();
    if path.as_os_str().as_bytes().len() > PATH_BYTES_MAX {
        return Some(format!("{shown} is longer than the {PATH_BYTES_MAX} bytes a socket's path may have"));
    }
    if UnixStream::connect(path).is_ok() {
        return Some(format!("another runner listens on {shown}"));
    }
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match access(directory, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => None,
        Err(error) => Some(format!("{shown} cannot be made: {}", std::io::Error::from(error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Environment, Flags, load};
    use std::os::unix::net::UnixListener;

    fn settings(sockets: Vec<PathBuf>) -> Settings {
        let environment = Environment::from([("HOME", "/h")]);
        Settings { runner_sockets: sockets, ..load(&environment, None, Flags::default()).unwrap() }
    }

    #[test]
    fn a_living_runner_keeps_its_place_and_a_dead_one_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let (first, second) = (directory.path().join("a.sock"), directory.path().join("b.sock"));
        let both = settings(vec![first.clone(), second.clone()]);
        let living = UnixListener::bind(&first).unwrap();
        let place = choose(&both).unwrap().unwrap();
        assert_eq!(place.path, second);
        assert!(place.notice.unwrap().contains("another runner listens"));
        let alone = choose(&settings(vec![first.clone()])).unwrap_err();
        assert!(alone.hint.unwrap().contains("--runner-socket"));
        drop(living);
        assert_eq!(
            choose(&both).unwrap(),
            Some(Place { path: first, notice: None }),
            "left behind by a crash"
        );
    }

    #[test]
    fn impossible_places_are_said() {
        assert_eq!(choose(&settings(Vec::new())).unwrap(), None);
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(choose(&settings(vec![long])).unwrap_err().message.contains("107"));
        let nowhere = choose(&settings(vec!["/no/such/directory/s".into()])).unwrap_err();
        assert!(nowhere.message.contains("cannot be made"), "{}", nowhere.message);
    }
}
