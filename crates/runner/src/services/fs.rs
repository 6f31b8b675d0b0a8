//! Files beneath a root: read, written, listed, moved and removed. Blocking functions, each for one call.
//!
//! Every path is opened by handle beneath the root (`root`), never by its name, so no function here can be led out of
//! it by links or by directories that are exchanged meanwhile.

mod change;
mod entries;
mod list;
mod read;
mod temp;
mod tree_copy;
mod upload;
mod write;

pub(crate) use entries::{DirEntry, entries};
pub(crate) use upload::{
    ApprovedUpload, StageResult, StagedUpload, UploadKey, UploadSender, UploadTable, stage,
};

use std::fs::File;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use qd_wire::service::{
    FsCreateDirectoryParams, FsDeleteParams, FsDoneData, FsListData, FsListParams, FsMoveParams, FsReadData,
    FsReadParams, FsStatData, FsStatParams, FsTreeData, FsTreeParams, FsUploadData, FsUploadParams,
    FsWriteData, FsWriteParams,
};
use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use super::call::{Cancellation, ServiceError, ServiceResult};
use super::root::{Root, failure};
use qd_core::encoding::hex;

/// Bytes read, hashed or copied between two looks at whether the call was cancelled.
const CHUNK_BYTES: usize = 256 << 10;

/// A page of a file.
pub(crate) fn read(root: &Root, params: &FsReadParams, cancel: &Cancellation) -> ServiceResult<FsReadData> {
    about(root, &params.path, read::read(root, params, cancel))
}

/// What is at a path.
pub(crate) fn stat(root: &Root, params: &FsStatParams, cancel: &Cancellation) -> ServiceResult<FsStatData> {
    about(root, &params.path, read::stat(root, params, cancel))
}

/// The entries of a directory, a page of them.
pub(crate) fn list(root: &Root, params: &FsListParams, cancel: &Cancellation) -> ServiceResult<FsListData> {
    about(root, params.path.as_deref().unwrap_or("."), list::list(root, params, cancel))
}

/// A directory with those beneath it.
pub(crate) fn tree(root: &Root, params: &FsTreeParams, cancel: &Cancellation) -> ServiceResult<FsTreeData> {
    about(root, params.path.as_deref().unwrap_or("."), list::tree(root, params, cancel))
}

/// Writes a whole file.
pub(crate) fn write(
    root: &Root,
    params: &FsWriteParams,
    cancel: &Cancellation,
) -> ServiceResult<FsWriteData> {
    about(root, &params.path, write::write(root, params, cancel))
}

pub(crate) fn create_directory(
    root: &Root,
    params: &FsCreateDirectoryParams,
    cancel: &Cancellation,
) -> ServiceResult<FsDoneData> {
    about(root, &params.path, change::create_directory(root, params, cancel))
}

pub(crate) fn rename(root: &Root, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<FsDoneData> {
    about(root, &format!("{} -> {}", params.from, params.to), change::rename(root, params, cancel))
}

pub(crate) fn copy(root: &Root, params: &FsMoveParams, cancel: &Cancellation) -> ServiceResult<FsDoneData> {
    about(root, &format!("{} -> {}", params.from, params.to), change::copy(root, params, cancel))
}

pub(crate) fn delete(
    root: &Root,
    params: &FsDeleteParams,
    cancel: &Cancellation,
) -> ServiceResult<FsDoneData> {
    about(root, &params.path, change::delete(root, params, cancel))
}

/// Takes a piece of an upload.
pub(crate) fn upload(
    uploads: &UploadTable,
    root: &Root,
    params: &FsUploadParams,
    sender: UploadSender<'_>,
    cancel: &Cancellation,
) -> ServiceResult<FsUploadData> {
    about(root, &params.path, upload::upload(uploads, root, params, sender, cancel))
}

/// The system's reason says neither which path it is about nor where that was looked for. Apps of the run document know
/// the words before it (`bad path: `), so those stay.
fn about<T>(root: &Root, path: &str, result: ServiceResult<T>) -> ServiceResult<T> {
    result.map_err(|error| match error {
        ServiceError::BadPath(reason) => ServiceError::BadPath(reason.reworded(|text| {
            // The number beside the system's words helps nobody.
            let text = text.split(" (os error").next().unwrap_or(text);
            format!("{path}: {text} in {}", root.path().display())
        })),
        other => other,
    })
}

/// Gives all that can be read from here on to `take`, piece by piece.
fn read_rest(
    file: &mut File,
    cancel: &Cancellation,
    mut take: impl FnMut(&[u8]) -> io::Result<()>,
) -> ServiceResult<()> {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        cancel.check()?;
        match file.read(&mut buffer).map_err(failure)? {
            0 => return Ok(()),
            read => take(buffer.get(..read).unwrap_or_default()).map_err(failure)?,
        }
    }
}

/// The hash of all that can be read from here on.
fn hash_file(mut file: File, cancel: &Cancellation) -> ServiceResult<String> {
    let mut digest = Sha256::new();
    read_rest(&mut file, cancel, |piece| {
        digest.update(piece);
        Ok(())
    })?;
    Ok(hex(&digest.finalize()))
}

fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn from_base64(text: &str) -> ServiceResult<Vec<u8>> {
    STANDARD
        .decode(text)
        .map_err(|error| ServiceError::invalid(format!("the data is not valid base64: {error}")))
}

/// When it was changed, in Unix milliseconds.
fn modified_ms(stat: &Stat) -> i64 {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let (seconds, nanoseconds) = (stat.st_mtime as i64, stat.st_mtime_nsec as i64);
    seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000)
}

#[cfg(test)]
#[path = "fs/fs_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "fs/attack_tests.rs"]
mod attack_tests;

#[cfg(test)]
#[path = "fs/fixture_tests.rs"]
pub(super) mod fixture;
