//! Files under a name nobody can guess, which take the place of another all at once or disappear.

use std::ffi::{OsStr, OsString};
use std::fs::File;

use cap_std::fs::Dir;
use qd_wire::ErrorCode;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use crate::services::call::{ServiceError, ServiceResult};
use crate::services::root::{NameInDir, failure, file_type, stat_in};
use qd_core::encoding::hex;

/// What a new file may be used for, less what the umask takes away.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);

/// A file that is removed unless it was put in its place.
#[derive(Debug)]
pub(super) struct TempFile {
    dir: Dir,
    name: OsString,
    pub(super) file: File,
    is_placed: bool,
}

impl TempFile {
    /// A new file in the directory. If it is to replace another it can be read by nobody who could not read that.
    pub(super) fn create(dir: &Dir, replaced: Option<&Stat>) -> ServiceResult<TempFile> {
        let mode = replaced.map_or(FILE_MODE, kept_mode);
        let name = temp_name()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(dir, &name, flags, mode).map_err(failure)?);
        Ok(TempFile { dir: dir.try_clone().map_err(failure)?, name, file, is_placed: false })
    }

    /// Gives it the mode and, as far as we may, the owner of the file that it replaces.
    pub(super) fn keep(&self, replaced: &Stat) -> ServiceResult<()> {
        let own = rustix::fs::fstat(&self.file).map_err(failure)?;
        if (own.st_uid, own.st_gid) != (replaced.st_uid, replaced.st_gid) {
            let (uid, gid) = (Uid::from_raw(replaced.st_uid), Gid::from_raw(replaced.st_gid));
            if let Err(error) = rustix::fs::fchown(&self.file, Some(uid), Some(gid)) {
                // Only root may; everybody else's editors change the owner just so.
                tracing::debug!(%error, "a file that is replaced belongs to somebody else");
            }
        }
        rustix::fs::fchmod(&self.file, kept_mode(replaced)).map_err(failure)
    }

    /// Takes the place of what is there; `is_new` refuses if something is there.
    pub(super) fn put(&mut self, place: &NameInDir, is_new: bool) -> Result<(), Errno> {
        if is_new {
            rename_new(&self.dir, &self.name, &place.dir, &place.name)?;
        } else {
            rustix::fs::renameat(&self.dir, &self.name, &place.dir, &place.name)?;
        }
        self.is_placed = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.is_placed
            && let Err(error) = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty())
        {
            tracing::warn!(name = ?self.name, %error, "a temporary file could not be removed; remove it by hand");
        }
    }
}

/// What is to be replaced must be a regular file, if anything.
pub(super) fn replaced(place: &NameInDir) -> ServiceResult<Option<Stat>> {
    let stat = place.stat()?;
    match stat.as_ref().map(file_type) {
        None | Some(FileType::RegularFile) => Ok(stat),
        Some(FileType::Directory) => Err(ServiceError::IsADirectory),
        Some(_) => Err(ServiceError::NotAFile),
    }
}

/// The rights of a file that pass on to another with other content. Running as another user is not among them.
pub(super) fn kept_mode(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o777)
}

/// Hidden, and not to be guessed, so that nobody can have prepared something under it.
pub(super) fn temp_name() -> ServiceResult<OsString> {
    let mut random = [0; 12];
    getrandom::fill(&mut random).map_err(|error| {
        ServiceError::coded(
            ErrorCode::Failed,
            format!("the system gave no random bytes for a temporary file: {error}"),
        )
    })?;
    Ok(OsString::from(format!(".qd-{}.tmp", hex(&random))))
}

/// Renames to a name at which there is nothing; otherwise `EXIST`.
pub(super) fn rename_new(from: &Dir, name: &OsStr, to: &Dir, new_name: &OsStr) -> Result<(), Errno> {
    match rustix::fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        // Some file systems cannot; there the look and the renaming are two steps.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match stat_in(to, new_name) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(from, name, to, new_name),
            Err(error) => Err(error),
        },
        done => done,
    }
}

/// Makes a renaming in this directory survive a loss of power.
pub(super) fn sync_dir(dir: &Dir) -> ServiceResult<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, ".", flags, Mode::empty()).map_err(failure)?;
    match rustix::fs::fsync(opened) {
        // Some file systems have nothing to do here.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => Err(failure(error)),
    }
}
