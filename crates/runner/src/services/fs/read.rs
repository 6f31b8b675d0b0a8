//! Reading a file page by page, and what is known of a path.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt};

use qd_wire::service::{Encoding, FsReadData, FsReadParams, FsStatData, FsStatParams};
use rustix::fs::FileType;
use sha2::{Digest, Sha256};

use super::{CHUNK_BYTES, hash_file, modified_ms, to_base64};
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::{RelativePath, Root, failure, file_type};
use qd_core::encoding::hex;

/// Bytes in one answer; a longer file is read in pages.
const READ_BYTES_MAX: u64 = 1 << 20;

/// Bytes of the longest character, so that a page never ends inside one.
const CHARACTER_BYTES_MAX: usize = 4;

/// A page of a regular file.
pub(crate) fn read(root: &Root, params: &FsReadParams, cancel: &Cancellation) -> ServiceResult<FsReadData> {
    let path = RelativePath::parse(&params.path)?;
    let file = root.open_file(&path)?;
    let metadata = file.metadata().map_err(failure)?;
    let offset = params.offset.unwrap_or(0);
    let encoding = params.encoding.unwrap_or_default();
    let wanted = params.length.unwrap_or(READ_BYTES_MAX).min(READ_BYTES_MAX);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    // A few bytes more than wanted show whether there is more, and the whole of a character at the edge.
    let mut bytes = read_at(&file, offset, wanted + CHARACTER_BYTES_MAX, cancel)?;
    let read = bytes.len();
    let end = match encoding {
        Encoding::Text => text_end(&bytes, wanted, offset)?,
        Encoding::Base64 => wanted.min(read),
    };
    bytes.truncate(end);
    let is_more = end < read;
    let next_offset = offset.saturating_add(end as u64);
    // Only of a whole file: it is meant as the condition of a later write.
    let hash = (offset == 0 && !is_more).then(|| hex(&Sha256::digest(&bytes)));
    let content = match encoding {
        Encoding::Text => String::from_utf8(bytes).map_err(|_| ServiceError::NotUtf8)?,
        Encoding::Base64 => to_base64(&bytes),
    };
    Ok(FsReadData {
        path: params.path.clone(),
        content,
        encoding,
        // Files that the system makes up while they are read say 0.
        size: metadata.size().max(if read == 0 { 0 } else { next_offset }),
        offset,
        next_offset: is_more.then_some(next_offset),
        truncated: is_more,
        hash,
        modified_at: metadata.mtime().saturating_mul(1000).saturating_add(metadata.mtime_nsec() / 1_000_000),
    })
}

/// What is known of a path. A link that leads out, or nowhere, is told as the link it is.
pub(crate) fn stat(root: &Root, params: &FsStatParams, cancel: &Cancellation) -> ServiceResult<FsStatData> {
    let path = RelativePath::parse(&params.path)?;
    let missing = FsStatData { path: params.path.clone(), ..FsStatData::default() };
    let place = match root.parent_of_io(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(missing);
        }
        place => place.map_err(failure)?,
    };
    let entry = match &place {
        None => None,
        Some(place) => match place.stat()? {
            None => return Ok(missing),
            entry => entry,
        },
    };
    let is_symlink = entry.is_some_and(|entry| file_type(&entry) == FileType::Symlink);
    let target = match root.metadata_at(path.as_path()) {
        Ok(metadata) => metadata,
        Err(_) if is_symlink => {
            let Some(entry) = entry else { return Ok(missing) };
            #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
            let (size, mode) = (entry.st_size as u64, entry.st_mode as u32 & 0o7777);
            let modified_at = modified_ms(&entry);
            return Ok(FsStatData { exists: true, is_symlink, size, mode, modified_at, ..missing });
        }
        Err(error) => return Err(failure(error)),
    };
    let hash = match params.hash {
        Some(true) if target.is_file() => Some(hash_file(root.open_file(&path)?, cancel)?),
        _ => None,
    };
    let milliseconds = |time: cap_std::time::SystemTime| {
        let since = time.into_std().duration_since(std::time::UNIX_EPOCH).ok()?;
        i64::try_from(since.as_millis()).ok()
    };
    Ok(FsStatData {
        path: params.path.clone(),
        exists: true,
        is_file: target.is_file(),
        is_dir: target.is_dir(),
        is_symlink,
        size: target.len(),
        modified_at: target.modified().ok().and_then(milliseconds).unwrap_or_default(),
        created_at: target.created().ok().and_then(milliseconds),
        mode: cap_std::fs::MetadataExt::mode(&target) & 0o7777,
        hash,
    })
}

/// Up to `length` bytes from `offset` on; fewer only at the end of the file.
fn read_at(file: &File, offset: u64, length: usize, cancel: &Cancellation) -> ServiceResult<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() < length {
        cancel.check()?;
        let done = bytes.len();
        bytes.resize(length.min(done + CHUNK_BYTES), 0);
        let read = match bytes.get_mut(done..) {
            Some(rest) => file.read_at(rest, offset.saturating_add(done as u64)).map_err(failure)?,
            None => 0,
        };
        bytes.truncate(done + read);
        if read == 0 {
            break;
        }
    }
    Ok(bytes)
}

/// Where a page of text ends: at `wanted`, or before the character there; never before the first character.
fn text_end(bytes: &[u8], wanted: usize, offset: u64) -> ServiceResult<usize> {
    let is_inside = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    if offset > 0 && bytes.first().is_some_and(is_inside) {
        return Err(ServiceError::invalid(format!(
            "offset {offset} is inside a character: use the next_offset of the page before, or encoding base64"
        )));
    }
    let is_edge = |at: usize| !bytes.get(at).is_some_and(is_inside);
    let back = (0..=wanted.min(bytes.len())).rev().take(CHARACTER_BYTES_MAX).find(|at| is_edge(*at));
    match back {
        // Asked for less than one character: it comes whole, or no page would ever get past it.
        Some(0) if wanted > 0 && !bytes.is_empty() => {
            Ok((1..=CHARACTER_BYTES_MAX.min(bytes.len())).find(|at| is_edge(*at)).unwrap_or(bytes.len()))
        }
        Some(end) => Ok(end),
        None => Err(ServiceError::NotUtf8),
    }
}
