//! Quarterdeck's own data: tokens, keys and records. No service reads or changes it, whoever asks.
//!
//! The directory is known by its number on the disk and not by its name, so that neither a link to it nor another name
//! for it leads in. Its handle is kept: it stays known even when somebody has moved it.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::{failure, kernel_files};
use crate::services::call::{ServiceError, ServiceResult};

/// Directories above one another; no path the system opens has more.
const ABOVE_MAX: usize = 1000;

/// What tells a directory from all others: its device and its number there.
pub(crate) type FileIdentity = (u64, u64);

/// The runner's data directory, held open from its first use on.
#[derive(Debug, Default)]
pub(crate) struct OwnDirectory {
    handle: OnceLock<OwnedFd>,
}

/// Where the data directory lies during one call. The default is nowhere.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnData {
    /// The data directory and those above it.
    chain: Vec<FileIdentity>,
    /// As the settings name it, without links.
    path: PathBuf,
}

impl OwnDirectory {
    /// Looks where it lies now. One that is not there yet hides nothing.
    pub(crate) fn locate(&self, path: &Path) -> ServiceResult<OwnData> {
        let handle = match self.handle.get() {
            Some(handle) => handle,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
                    Ok(opened) => self.handle.get_or_init(|| opened),
                    Err(Errno::NOENT) => return Ok(OwnData::default()),
                    Err(error) => return Err(failure(error)),
                }
            }
        };
        let mut chain = Vec::new();
        for_each_above(handle, |identity| {
            chain.push(identity);
            Ok(true)
        })?;
        Ok(OwnData { chain, path: path.canonicalize().unwrap_or_else(|_| path.to_owned()) })
    }
}

impl OwnData {
    /// An error if the directory is the data directory or below it. Above `top` nothing is looked for.
    pub(crate) fn check(&self, dir: &Dir, top: Option<FileIdentity>) -> ServiceResult<()> {
        let Some(own) = self.chain.first().copied() else { return Ok(()) };
        for_each_above(dir, |identity| {
            if identity == own {
                return Err(ServiceError::OwnData);
            }
            Ok(Some(identity) != top)
        })
    }

    /// The same for a directory by its path, which must not be the kernel's either.
    pub(crate) fn check_path(&self, path: &Path) -> ServiceResult<()> {
        let dir = Dir::open_ambient_dir(path, cap_std::ambient_authority()).map_err(failure)?;
        kernel_files::check(&dir)?;
        self.check(&dir, None)
    }

    pub(crate) fn is_nowhere(&self) -> bool {
        self.chain.is_empty()
    }

    /// Whether this is the data directory itself.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        self.chain.first() == Some(&identity(stat))
    }

    /// Whether the data directory is this one, or somewhere in it.
    pub(crate) fn is_in(&self, stat: &Stat) -> bool {
        self.chain.contains(&identity(stat))
    }

    /// Whether the data directory is an entry of this one.
    pub(crate) fn is_child_of(&self, stat: &Stat) -> bool {
        self.chain.get(1) == Some(&identity(stat))
    }

    /// Its path from a directory above it, if that is one.
    pub(crate) fn below(&self, above: &Path) -> Option<&Path> {
        if self.is_nowhere() { None } else { self.path.strip_prefix(above).ok() }
    }
}

pub(crate) fn identity(stat: &Stat) -> FileIdentity {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// Tells the directory and those above it, up to the top of the system or until that is enough.
fn for_each_above(
    dir: impl AsFd,
    mut tell: impl FnMut(FileIdentity) -> ServiceResult<bool>,
) -> ServiceResult<()> {
    let mut path = ".".to_owned();
    let mut last = None;
    for _ in 0..ABOVE_MAX {
        let here = identity(&rustix::fs::statat(&dir, &*path, AtFlags::empty()).map_err(failure)?);
        // The directory above the topmost is itself.
        if last == Some(here) || !tell(here)? {
            return Ok(());
        }
        last = Some(here);
        path.push_str("/..");
    }
    Err(ServiceError::InvalidPath)
}

#[cfg(test)]
#[path = "own_data_tests.rs"]
mod tests;
