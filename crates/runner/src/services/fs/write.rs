//! Writing a file: whole or not at all.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::MutexGuard;

use qd_link::mutex::Mutex;
use qd_wire::ErrorCode;
use qd_wire::service::{Encoding, FsWriteData, FsWriteParams};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::temp::{TempFile, replaced, sync_dir};
use super::{CHUNK_BYTES, from_base64, hash_file};
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::{NameInDir, RelativePath, Root, failure};
use qd_core::encoding::hex;

/// Bytes of one write, and of one piece of an upload; a larger file is uploaded in pieces.
pub(super) const WRITE_BYTES_MAX: usize = 32 << 20;

/// Writers that compare and replace take turns, per file. Two files that share a lock wait for each other, no more.
static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Replaces a file, or makes one.
pub(crate) fn write(
    root: &Root,
    params: &FsWriteParams,
    cancel: &Cancellation,
) -> ServiceResult<FsWriteData> {
    let path = RelativePath::parse(&params.path)?;
    let decoded;
    let content = match params.encoding.unwrap_or_default() {
        Encoding::Text => params.content.as_bytes(),
        Encoding::Base64 => {
            // Before decoding, which would take the memory that the limit is there to save.
            check_size(params.content.len() / 4 * 3)?;
            decoded = from_base64(&params.content)?;
            &decoded
        }
    };
    check_size(content.len())?;
    // From here on something changes on the disk.
    cancel.check()?;
    root.create_parents(&path, params.create_parents)?;
    let place = root.parent_of_file(&path)?;
    // In the directory of the file, because a rename is atomic only within one file system.
    let mut temp = TempFile::create(&place.dir, replaced(&place)?.as_ref())?;
    for chunk in content.chunks(CHUNK_BYTES) {
        cancel.check()?;
        temp.file.write_all(chunk).map_err(failure)?;
    }
    commit(&mut temp, &place, params.expected_hash.as_deref(), cancel)?;
    let bytes_written = content.len() as u64;
    Ok(FsWriteData {
        path: params.path.clone(),
        bytes_written,
        hash: hex(&Sha256::digest(content)),
        truncated: false,
    })
}

/// Puts a file in its place if what is there is what the sender expects.
pub(super) fn commit(
    temp: &mut TempFile,
    place: &NameInDir,
    expected: Option<&str>,
    cancel: &Cancellation,
) -> ServiceResult<()> {
    // Before the rename: after a power cut the name must not lead to an empty file.
    temp.file.sync_all().map_err(failure)?;
    let _turn = lock(place)?;
    // Looked at again under the lock, since it may be another file by now.
    let replaced = replaced(place)?;
    if let Some(replaced) = &replaced {
        temp.keep(replaced)?;
    }
    // The empty hash says that there must be no file; the rename itself checks that where the file system can, so that
    // nobody comes in between.
    let is_new = expected == Some("");
    if let Some(expected) = expected.filter(|expected| !expected.is_empty()) {
        let now = current_hash(place, cancel)?;
        if !now.as_deref().is_some_and(|now| now.eq_ignore_ascii_case(expected)) {
            return Err(changed(now));
        }
    }
    match temp.put(place, is_new) {
        Ok(()) => sync_dir(&place.dir),
        Err(Errno::EXIST) if is_new => Err(changed(current_hash(place, cancel)?)),
        Err(error) => Err(failure(error)),
    }
}

pub(super) fn check_size(bytes: usize) -> ServiceResult<()> {
    if bytes <= WRITE_BYTES_MAX {
        return Ok(());
    }
    let limit = WRITE_BYTES_MAX >> 20;
    let error = format!(
        "more than {limit} MiB in one call, nothing was written: send the file in pieces with fs.upload"
    );
    Err(ErrorCode::TooLarge.with(error).into())
}

fn current_hash(place: &NameInDir, cancel: &Cancellation) -> ServiceResult<Option<String>> {
    place.open_file()?.map(|file| hash_file(file, cancel)).transpose()
}

fn changed(now: Option<String>) -> ServiceError {
    let reason = match now {
        Some(hash) => format!("the file is not what was expected: its hash is now {hash}; read it again"),
        None => "the file is not what was expected: there is none now".to_owned(),
    };
    ServiceError::Other(ErrorCode::Conflict.with(reason))
}

fn lock(place: &NameInDir) -> ServiceResult<MutexGuard<'static, ()>> {
    let parent = place.dir.dir_metadata().map_err(failure)?;
    let mut hasher = DefaultHasher::new();
    let (device, number) = (cap_std::fs::MetadataExt::dev(&parent), cap_std::fs::MetadataExt::ino(&parent));
    // By the directory's identity and not by the path, which may reach the same file in several ways.
    (device, number, &place.name).hash(&mut hasher);
    let at = usize::try_from(hasher.finish() % LOCKS.len() as u64).unwrap_or(0);
    let lock = LOCKS.get(at).unwrap_or(&LOCKS[0]);
    // It guards nothing in memory, so one that panicked leaves nothing broken.
    Ok(lock.lock())
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
