//! Copying and removing whole trees, by handle at every step and without following links.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;

use cap_std::fs::Dir;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::entries::entries;
use super::read_rest;
use super::temp::kept_mode;
use crate::services::call::{Cancellation, ServiceResult};
use crate::services::root::own_data::{FileIdentity, identity};
use crate::services::root::{failure, file_type, link_target_in, open_dir_in, open_file_in, stat_in};

/// Directories in directories; each level holds a descriptor or two while it is worked on.
const DEPTH_MAX: usize = 200;

/// Entries of one call; more is work for a shell.
const ENTRIES_MAX: u64 = 1_000_000;

/// An open directory and a name in it.
type NamedEntry<'a> = (&'a Dir, &'a OsStr);

/// Work on a tree.
pub(super) struct TreeWork<'a> {
    pub(super) cancel: &'a Cancellation,
    /// The original is removed afterwards: times and owners are kept, and the data is on the disk before.
    pub(super) is_move: bool,
    /// Entries that were copied or removed.
    pub(super) count: u64,
    /// The directory that is being made, which must not be inside the one that is copied.
    made: Option<FileIdentity>,
}

impl<'a> TreeWork<'a> {
    pub(super) fn new(cancel: &'a Cancellation, is_move: bool) -> Self {
        TreeWork { cancel, is_move, count: 0, made: None }
    }

    /// Copies what is at `name`, with all that is in it, to a new name. What was made before an error stays.
    pub(super) fn copy(&mut self, from: NamedEntry<'_>, to: NamedEntry<'_>) -> ServiceResult<()> {
        self.copy_entry(from, to, 0)
    }

    /// Removes what is at `name`, with all that is in it.
    pub(super) fn delete(&mut self, dir: &Dir, name: &OsStr) -> ServiceResult<()> {
        self.delete_entry(dir, name, 0)
    }

    fn step(&mut self, depth: usize) -> ServiceResult<()> {
        self.cancel.check()?;
        if depth > DEPTH_MAX {
            refuse!(LimitReached, "directories are nested more than {DEPTH_MAX} levels deep");
        }
        self.count += 1;
        if self.count > ENTRIES_MAX {
            refuse!(
                LimitReached,
                "more than {ENTRIES_MAX} entries in one call: copy its directories one by one"
            );
        }
        Ok(())
    }

    fn copy_entry(&mut self, from: NamedEntry<'_>, to: NamedEntry<'_>, depth: usize) -> ServiceResult<()> {
        let ((from, name), (to, new_name)) = (from, to);
        self.step(depth)?;
        let stat = stat_in(from, name).map_err(failure)?;
        match file_type(&stat) {
            FileType::Directory => self.copy_dir((from, name), (to, new_name), depth)?,
            FileType::RegularFile => self.copy_file((from, name), (to, new_name))?,
            FileType::Symlink => {
                let target = link_target_in(from, name)?;
                rustix::fs::symlinkat(target, to, new_name).map_err(failure)?;
            }
            kind @ (FileType::Fifo | FileType::Socket) => {
                rustix::fs::mknodat(to, new_name, kind, kept_mode(&stat), 0).map_err(failure)?;
            }
            _ => {
                let name = name.to_string_lossy();
                refuse!(Unsupported, "{name} is a device, which cannot be copied");
            }
        }
        if self.is_move {
            self.keep_facts(to, new_name, &stat)?;
        }
        Ok(())
    }

    fn copy_dir(&mut self, from: NamedEntry<'_>, to: NamedEntry<'_>, depth: usize) -> ServiceResult<()> {
        let ((from, name), (to, new_name)) = (from, to);
        let source = open_dir_in(from, name)?;
        let stat = rustix::fs::fstat(&source).map_err(failure)?;
        if self.made == Some(identity(&stat)) {
            refuse!(InvalidRequest, "a directory cannot be copied into itself: choose another `to`");
        }
        // Ours alone until it has what its rights are for.
        rustix::fs::mkdirat(to, new_name, Mode::RWXU).map_err(failure)?;
        let target = open_dir_in(to, new_name)?;
        if depth == 0 {
            self.made = Some(identity(&rustix::fs::fstat(&target).map_err(failure)?));
        }
        for entry in entries(&source, self.cancel)? {
            self.copy_entry((&source, &entry.name), (&target, &entry.name), depth + 1)?;
        }
        // A directory may pass its group and its stickiness on, unlike a program its user.
        rustix::fs::fchmod(&target, Mode::from_raw_mode(stat.st_mode & 0o3777)).map_err(failure)
    }

    fn copy_file(&mut self, from: NamedEntry<'_>, to: NamedEntry<'_>) -> ServiceResult<()> {
        let ((from, name), (to, new_name)) = (from, to);
        let mut source = open_file_in(from, name)?;
        let mode = kept_mode(&rustix::fs::fstat(&source).map_err(failure)?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut target =
            File::from(rustix::fs::openat(to, new_name, flags, Mode::RUSR | Mode::WUSR).map_err(failure)?);
        read_rest(&mut source, self.cancel, |piece| target.write_all(piece))?;
        rustix::fs::fchmod(&target, mode).map_err(failure)?;
        if self.is_move {
            target.sync_all().map_err(failure)?;
        }
        Ok(())
    }

    /// What is moved keeps its times and, as far as we may, its owner.
    fn keep_facts(&self, dir: &Dir, name: &OsStr, stat: &Stat) -> ServiceResult<()> {
        let owner = (Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
        match rustix::fs::chownat(dir, name, owner.0, owner.1, AtFlags::SYMLINK_NOFOLLOW) {
            // Only root may.
            Ok(()) | Err(Errno::PERM) => {}
            Err(error) => return Err(failure(error)),
        }
        #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
        let times = Timestamps {
            last_access: Timespec { tv_sec: stat.st_atime as _, tv_nsec: stat.st_atime_nsec as _ },
            last_modification: Timespec { tv_sec: stat.st_mtime as _, tv_nsec: stat.st_mtime_nsec as _ },
        };
        rustix::fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW).map_err(failure)
    }

    fn delete_entry(&mut self, dir: &Dir, name: &OsStr, depth: usize) -> ServiceResult<()> {
        self.step(depth)?;
        let kind = match stat_in(dir, name) {
            // Somebody else removed it.
            Err(Errno::NOENT) if depth > 0 => return Ok(()),
            stat => file_type(&stat.map_err(failure)?),
        };
        if kind != FileType::Directory {
            return rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(failure);
        }
        let below = open_dir_in(dir, name)?;
        for entry in entries(&below, self.cancel)? {
            self.delete_entry(&below, &entry.name, depth + 1)?;
        }
        rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).map_err(failure)
    }
}
