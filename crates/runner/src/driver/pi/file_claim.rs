//! One process per session file. pi has no lock of its own: two writers silently split the conversation.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use qd_link::mutex::Mutex;
use qd_wire::{CodedError, ErrorCode};
use rustix::fs::{FlockOperation, flock};

/// Files of this process, with the session that has each.
static CLAIMED: Mutex<Option<HashMap<PathBuf, ClaimHolder>>> = Mutex::new(None);

static NEXT_CLAIM: AtomicU64 = AtomicU64::new(0);

struct ClaimHolder {
    session_id: String,
    claim: u64,
}

/// Another has the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ClaimError {
    #[error("{} is open in session '{owner}'; close that session first", .path.display())]
    OpenInSession { path: PathBuf, owner: String },
    #[error("{} is open in another qd on this machine", .path.display())]
    OpenElsewhere { path: PathBuf },
}

impl From<ClaimError> for CodedError {
    fn from(error: ClaimError) -> Self {
        ErrorCode::Conflict.with(error.to_string())
    }
}

/// The right to run pi on a file; given back on drop.
#[derive(Debug)]
pub(super) struct FileClaim {
    path: PathBuf,
    /// A session that starts again takes its file before the old claim is dropped.
    number: u64,
    /// Keeps other Quarterdecks of this machine away; pi itself does not look at locks.
    lock: Option<File>,
}

impl FileClaim {
    /// Takes a file for a session, unless another has it.
    pub(super) fn take(path: &Path, session_id: &str) -> Result<FileClaim, ClaimError> {
        // Two paths may lead to the same file. One that does not exist yet is claimed as it is written.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut claimed = CLAIMED.lock();
        let files = claimed.get_or_insert_with(HashMap::new);
        if let Some(holder) = files.get(&path)
            && holder.session_id != session_id
        {
            let owner = holder.session_id.clone();
            return Err(ClaimError::OpenInSession { path, owner });
        }
        let lock = match lock_file(&path) {
            // With an entry of our own the lock is our old one: a session that starts again has not dropped it yet.
            LockResult::Elsewhere if !files.contains_key(&path) => {
                return Err(ClaimError::OpenElsewhere { path });
            }
            LockResult::Elsewhere | LockResult::NoFile => None,
            LockResult::Here(file) => Some(file),
        };
        let number = NEXT_CLAIM.fetch_add(1, Ordering::Relaxed);
        files.insert(path.clone(), ClaimHolder { session_id: session_id.to_owned(), claim: number });
        Ok(FileClaim { path, number, lock })
    }

    /// Locks the file if that was not possible before: pi writes it with the first message.
    pub(super) fn lock_when_written(&mut self) {
        if self.lock.is_none()
            && let LockResult::Here(file) = lock_file(&self.path)
        {
            self.lock = Some(file);
        }
    }

    pub(super) fn is_for(&self, path: &Path) -> bool {
        self.path == path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }
}

enum LockResult {
    Here(File),
    Elsewhere,
    NoFile,
}

fn lock_file(path: &Path) -> LockResult {
    let Ok(file) = File::open(path) else { return LockResult::NoFile };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => LockResult::Elsewhere,
        // Some file systems have no locks; the list of claims still guards this process.
        _ => LockResult::Here(file),
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        let mut claimed = CLAIMED.lock();
        let Some(files) = claimed.as_mut() else { return };
        if files.get(&self.path).is_some_and(|holder| holder.claim == self.number) {
            files.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_one_session_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.jsonl");
        std::fs::write(&path, "{}").unwrap();
        let first = FileClaim::take(&path, "s1").unwrap();
        let error = FileClaim::take(&directory.path().join("./s.jsonl"), "s2").unwrap_err();
        assert!(matches!(&error, ClaimError::OpenInSession { owner, .. } if owner == "s1"), "{error}");
        let again = FileClaim::take(&path, "s1").unwrap();
        drop(first);
        assert!(FileClaim::take(&path, "s2").is_err(), "the late end of an old claim changes nothing");
        drop(again);
        FileClaim::take(&path, "s2").unwrap();
    }
}
