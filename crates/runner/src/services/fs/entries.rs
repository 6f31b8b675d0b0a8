//! The entries of an open directory.
//!
//! The one place of the services that lists a directory, so that everything that walks a tree sees links as links and
//! has the same bound.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use cap_std::fs::Dir;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::root::{failure, file_type, stat_in};

/// Entries of one directory that fit into memory while they are sorted.
const DIRECTORY_ENTRIES_MAX: usize = 1_000_000;

/// One entry; a link is a link.
#[derive(Debug, Clone)]
pub(crate) struct DirEntry {
    pub(crate) name: OsString,
    pub(crate) kind: FileType,
}

impl DirEntry {
    pub(crate) fn is_hidden(&self) -> bool {
        self.name.as_bytes().first() == Some(&b'.')
    }

    /// As the wire has it. A name that is not UTF-8 can be shown but not asked for.
    pub(crate) fn shown_name(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }
}

/// All entries, in the order of the disk.
pub(crate) fn entries(dir: &Dir, cancel: &Cancellation) -> ServiceResult<Vec<DirEntry>> {
    let mut found = Vec::new();
    // A handle may be good for names only; reading needs one of its own.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(dir, ".", flags, Mode::empty()).map_err(failure)?;
    for entry in rustix::fs::Dir::new(readable).map_err(failure)? {
        cancel.check()?;
        let entry = entry.map_err(failure)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if found.len() >= DIRECTORY_ENTRIES_MAX {
            return Err(ServiceError::invalid(format!(
                "the directory has more than {DIRECTORY_ENTRIES_MAX} entries: look into it with a shell"
            )));
        }
        let name = OsString::from_vec(name.to_vec());
        let kind = match entry.file_type() {
            // Not every file system says it in the listing.
            FileType::Unknown => match stat_in(dir, &name) {
                Ok(stat) => file_type(&stat),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(failure(error)),
            },
            kind => kind,
        };
        found.push(DirEntry { name, kind });
    }
    Ok(found)
}
