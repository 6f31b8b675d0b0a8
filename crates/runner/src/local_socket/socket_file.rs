//! The socket's file: for our user only from its first moment, and gone when we are.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixListener;

use super::LocalError;

pub(super) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket's file, known by its inode: a later runner may have put its own in its place.
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    pub(super) fn remove(&self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|file| file.dev() == self.device && file.ino() == self.inode);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "the local socket could not be removed");
        }
    }
}

/// Binds inside a directory that only we may enter, sets the mode there and moves the socket into place: so there
/// is no moment in which another user could connect, whatever the umask.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), LocalError> {
    let failed = |error: Error| LocalError::Io { path: path.to_owned(), error };
    check_free(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = parent.join(format!(".qd{}", std::process::id()));
    // A runner killed between these lines may have left one of the same number.
    let _absent = fs::remove_dir_all(&private);
    fs::DirBuilder::new().mode(0o700).create(&private).map_err(failed)?;
    let bound = bind_in(&private, path);
    if let Err(error) = fs::remove_dir_all(&private) {
        tracing::warn!(%error, path = %private.display(), "a temporary directory could not be removed");
    }
    bound.map_err(failed)
}

fn bind_in(private: &Path, path: &Path) -> Result<(UnixListener, SocketFile), Error> {
    let temporary = private.join("s");
    let listener = UnixListener::bind(&temporary)?;
    fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
    let file = fs::symlink_metadata(&temporary)?;
    fs::rename(&temporary, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), device: file.dev(), inode: file.ino() }))
}

/// A socket nobody listens at is left from a dead runner; anything else is not ours to replace.
fn check_free(path: &Path) -> Result<(), LocalError> {
    match UnixStream::connect(path) {
        Ok(_) => Err(LocalError::Taken(path.to_owned())),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Ok(()),
            ErrorKind::ConnectionRefused if is_socket(path) => Ok(()),
            // Its queue of callers is full, so somebody is there.
            ErrorKind::WouldBlock => Err(LocalError::Taken(path.to_owned())),
            _ => Err(LocalError::Io { path: path.to_owned(), error }),
        },
    }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}
