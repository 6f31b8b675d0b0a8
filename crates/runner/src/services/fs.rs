//! Files beneath a root: read, written, listed, moved and removed. Blocking functions, each for one call.

mod change;
mod entries;
mod list;
mod read;
mod temp;
mod tree_copy;
mod upload;
mod write;

pub(crate) use change::{copy, create_directory, delete, rename};
pub(crate) use entries::{DirEntry, entries};
pub(crate) use list::{list, tree};
pub(crate) use read::{read, stat};
pub(crate) use upload::{
    ApprovedUpload, StageResult, StagedUpload, UploadKey, UploadSender, UploadTable, stage, upload,
};
pub(crate) use write::write;

use std::fs::File;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::Stat;
use sha2::{Digest, Sha256};

use super::call::{Cancellation, ServiceError, ServiceResult};
use super::root::failure;
use qd_core::encoding::hex;

/// Bytes read, hashed or copied between two looks at whether the call was cancelled.
const CHUNK_BYTES: usize = 256 << 10;

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
