//! The data directory: one server or runner at a time, readable by its owner only.
//!
//! The lock is the system's lock on an open file: it goes with the process, however that ends, and no stale lock file
//! can keep a server from starting.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::clock;
use crate::error::{CliError, Result};
use crate::private_files::{self, SECRET_MODE};
use crate::process_memory::SecretText;
use crate::server::endpoint::{self, Endpoint};

const TOKEN_BYTES: usize = 32;
/// A directory that somebody has is tried this often again, this long apart, before that is an error.
const LOCK_TRIES_MAX: u32 = 40;
const LOCK_RETRY: Duration = Duration::from_millis(25);

/// Servers that may run beside each other without naming their directories.
const BESIDE_MAX: u32 = 16;

/// The directory, held as long as this lives.
pub(crate) struct DataDir {
    path: PathBuf,
    /// The lock ends when the file is closed, so also when the process dies.
    _lock: File,
}

/// Who has a directory.
enum LockAttempt {
    Ours(DataDir),
    /// Another process; the error says which.
    Theirs(CliError),
}

impl DataDir {
    /// Creates the directory where it is missing, and takes it.
    pub(crate) fn take(path: &Path) -> Result<DataDir> {
        match Self::try_take(path, LOCK_TRIES_MAX)? {
            LockAttempt::Ours(data_dir) => Ok(data_dir),
            LockAttempt::Theirs(error) => Err(error),
        }
    }

    /// The same, or the first one beside it that nobody has: `NAME-2`, `NAME-3`…
    pub(crate) fn take_free(path: &Path) -> Result<DataDir> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut first = None;
        for number in 1..=BESIDE_MAX {
            let (path, tries) = match number {
                1 => (path.to_path_buf(), LOCK_TRIES_MAX),
                number => (path.with_file_name(format!("{name}-{number}")), 0),
            };
            match Self::try_take(&path, tries)? {
                LockAttempt::Ours(data_dir) => return Ok(data_dir),
                LockAttempt::Theirs(error) => first = first.or(Some(error)),
            }
        }
        Err(first.unwrap_or_else(|| CliError::failed("there is no free data directory")))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn try_take(path: &Path, tries_max: u32) -> Result<LockAttempt> {
        let explain = |error: std::io::Error| {
            CliError::cannot("use the data directory", path, &error)
                .hint("use another one with --data-dir, or fix its owner and permissions")
        };
        private_files::make_private_dir(path).map_err(explain)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(SECRET_MODE)
            .open(path.join("lock"))
            .map_err(explain)?;
        let mut tries = 0;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            tries += 1;
            match error {
                rustix::io::Errno::WOULDBLOCK if tries > tries_max => {
                    return Ok(LockAttempt::Theirs(taken(path, &mut lock)));
                }
                // One that was killed a moment ago is still dying, or a child of its that had not become another
                // program yet.
                rustix::io::Errno::WOULDBLOCK => std::thread::sleep(LOCK_RETRY),
                error => return Err(explain(error.into())),
            }
        }
        // Who holds the lock, for the message above.
        lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id())).map_err(explain)?;
        Ok(LockAttempt::Ours(DataDir { path: path.to_path_buf(), _lock: lock }))
    }

    /// The owner's token; made at the first start. Whoever has it drops it as soon as the hub knows its hash.
    pub(crate) fn owner_token(&self) -> Result<SecretText> {
        let path = endpoint::token_path(&self.path);
        let explain = |error: std::io::Error| CliError::cannot("use the token", &path, &error);
        match std::fs::read_to_string(&path).map(SecretText::trimmed) {
            Ok(token) if !token.is_empty() => {
                std::fs::set_permissions(&path, Permissions::from_mode(SECRET_MODE)).map_err(explain)?;
                return Ok(token);
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(explain(error)),
        }
        let token = SecretText::trimmed(clock::random_hex(TOKEN_BYTES)?);
        private_files::write_private(&path, &token).map_err(explain)?;
        Ok(token)
    }

    /// Leaves the address for the command line.
    pub(crate) fn write_endpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let text = serde_json::to_string(endpoint).map_err(|error| CliError::failed(error.to_string()))?;
        let path = Endpoint::path(&self.path);
        private_files::write_private(&path, &text).map_err(|error| CliError::cannot("write", &path, &error))
    }

    /// A clean exit takes the address away; a leftover is recognised by its dead process.
    pub(crate) fn remove_endpoint(&self) {
        if let Err(error) = std::fs::remove_file(Endpoint::path(&self.path))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "endpoint.json could not be removed");
        }
    }
}

fn taken(path: &Path, lock: &mut File) -> CliError {
    let mut pid = String::new();
    // Without the number the message is still right.
    let _unknown = lock.rewind().and_then(|()| lock.take(32).read_to_string(&mut pid));
    let pid = if pid.trim().is_empty() { "unknown".to_owned() } else { pid.trim().to_owned() };
    CliError::failed(format!(
        "another server or runner (pid {pid}) already uses the data directory {}",
        path.display()
    ))
    .hint("use that server (`qd ls`), stop it first, or use another directory with --data-dir")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_directory_is_private_and_taken_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep/qd");
        let first = DataDir::take(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        let second = DataDir::take(&path).err().unwrap();
        assert!(second.message.contains(&format!("pid {}", std::process::id())), "{}", second.message);
        drop(first);
        assert!(DataDir::take(&path).is_ok());
    }

    #[test]
    fn the_token_is_made_once_and_private() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(directory.path()).unwrap();
        let token = data_dir.owner_token().unwrap();
        assert_eq!(token.len(), 64);
        assert_eq!(&*data_dir.owner_token().unwrap(), &*token);
        assert_eq!(mode(&endpoint::token_path(directory.path())), 0o600);
    }

    #[test]
    fn the_endpoint_comes_and_goes() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = DataDir::take(directory.path()).unwrap();
        let endpoint = Endpoint {
            url: "https://127.0.0.1:1".into(),
            pid: std::process::id(),
            fingerprint: Some("aa".into()),
            listen: None,
        };
        data_dir.write_endpoint(&endpoint).unwrap();
        assert_eq!(Endpoint::read(directory.path()), Some(endpoint));
        data_dir.remove_endpoint();
        data_dir.remove_endpoint();
        assert_eq!(Endpoint::read(directory.path()), None);
    }
}
