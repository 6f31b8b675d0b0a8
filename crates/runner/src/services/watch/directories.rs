//! The directories that are watched.
//!
//! The system watches paths, and a path can come to mean another directory at any time. So once a watch is set it is
//! checked that the path still leads to the directory that was opened beneath the root.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use qd_wire::ErrorCode;
use rustix::fs::{FileType, Stat};

use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::fs::entries;
use crate::services::root::own_data::identity;
use crate::services::root::{RelativePath, Root, failure, open_dir_in};

/// Directories of one watch; the system has 8192 to give on small machines.
const DIRECTORIES_MAX: usize = 8000;

pub(super) struct WatchedDirectories<'a> {
    root: &'a Root,
    /// As the client named it, from the root.
    path: RelativePath,
    /// The same directory as the system sees it, without links.
    base: PathBuf,
    watcher: RecommendedWatcher,
    include_hidden: bool,
    /// From the base.
    watched: HashSet<PathBuf>,
    /// [`DIRECTORIES_MAX`], less in tests.
    pub(super) max: usize,
}

impl<'a> WatchedDirectories<'a> {
    pub(super) fn new(
        root: &'a Root,
        path: RelativePath,
        watcher: RecommendedWatcher,
        include_hidden: bool,
    ) -> ServiceResult<Self> {
        root.open_dir(&path)?;
        let base = root.path().join(path.as_path()).canonicalize().map_err(failure)?;
        if !base.starts_with(root.path()) {
            return Err(ServiceError::Escapes);
        }
        let max = DIRECTORIES_MAX;
        Ok(WatchedDirectories { root, path, base, watcher, include_hidden, watched: HashSet::new(), max })
    }

    /// Watches the base and all below it.
    pub(super) fn watch_all(&mut self, cancel: &Cancellation) -> ServiceResult<()> {
        let dir = self.root.open_dir(&self.path)?;
        self.tree(&dir, Path::new(""), &mut Vec::new(), cancel)?;
        if self.watched.is_empty() {
            refuse!(Conflict, "the directory was replaced while the watch was set up: watch it again");
        }
        Ok(())
    }

    /// The path from the base; none if it is hidden and those are not wanted.
    pub(super) fn relative<'p>(&self, path: &'p Path) -> Option<&'p Path> {
        let path = path.strip_prefix(&self.base).ok()?;
        let is_hidden = path.iter().any(|name| name.as_bytes().first() == Some(&b'.'));
        (self.include_hidden || !is_hidden).then_some(path)
    }

    pub(super) fn has(&self, path: &Path) -> bool {
        self.watched.contains(path)
    }

    /// What is there now; a link is a link.
    pub(super) fn stat(&self, path: &Path) -> Option<Stat> {
        self.root.place(&self.in_root(path)).ok()??.stat().ok()?
    }

    /// From the root, as the wire has it.
    pub(super) fn shown(&self, path: &Path) -> String {
        self.in_root(path).as_path().to_string_lossy().into_owned()
    }

    /// Watches the path if it is a directory now. Says what is in it.
    pub(super) fn add(&mut self, path: &Path, cancel: &Cancellation) -> ServiceResult<Vec<PathBuf>> {
        let mut inside = Vec::new();
        if self.has(path) {
            return Ok(inside);
        }
        let place = self.root.place(&self.in_root(path));
        // Whatever cannot be opened as a directory is none by now.
        if let Ok(Some(place)) = place
            && let Ok(dir) = open_dir_in(&place.dir, &place.name)
        {
            self.tree(&dir, path, &mut inside, cancel)?;
        }
        Ok(inside)
    }

    /// Forgets a directory that is gone, or is another one now, and all below it.
    pub(super) fn remove(&mut self, path: &Path) {
        let gone: Vec<PathBuf> = self.watched.iter().filter(|it| it.starts_with(path)).cloned().collect();
        for path in gone {
            self.watched.remove(&path);
            // The system has forgotten one that was deleted; only one that was moved away is still watched.
            let _ = self.watcher.unwatch(&self.base.join(path));
        }
    }

    fn tree(
        &mut self,
        dir: &Dir,
        path: &Path,
        inside: &mut Vec<PathBuf>,
        cancel: &Cancellation,
    ) -> ServiceResult<()> {
        cancel.check()?;
        if self.watched.len() >= self.max {
            refuse!(LimitReached, "more than {} directories: watch a sub-directory instead", self.max);
        }
        if !self.watch(dir, path)? {
            return Ok(());
        }
        let mut found = match entries(dir, cancel) {
            Err(ServiceError::Cancelled) => return Err(ServiceError::Cancelled),
            // One below that is not ours to read has nothing to tell.
            Err(_) if !path.as_os_str().is_empty() => Vec::new(),
            found => found?,
        };
        self.root.hide_own_data(dir, &mut found);
        let include_hidden = self.include_hidden;
        for entry in found.into_iter().filter(|entry| include_hidden || !entry.is_hidden()) {
            let here = path.join(&entry.name);
            if entry.kind == FileType::Directory
                && let Ok(below) = open_dir_in(dir, &entry.name)
                && !self.root.is_own_data(&below)
            {
                self.tree(&below, &here, inside, cancel)?;
            }
            inside.push(here);
        }
        Ok(())
    }

    /// The system watches by path: if the path does not lead to the directory we hold, it is not watched.
    fn watch(&mut self, dir: &Dir, path: &Path) -> ServiceResult<bool> {
        let full = self.base.join(path);
        match self.watcher.watch(&full, RecursiveMode::NonRecursive) {
            Ok(()) => {}
            Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                return Err(watch_failure(error));
            }
            // It is gone, or not ours to read.
            Err(_) => return Ok(false),
        }
        let held = rustix::fs::fstat(dir).map_err(failure)?;
        let is_same =
            std::fs::symlink_metadata(&full).is_ok_and(|found| (found.dev(), found.ino()) == identity(&held));
        if is_same {
            self.watched.insert(path.to_owned());
        } else {
            let _ = self.watcher.unwatch(&full);
        }
        Ok(is_same)
    }

    fn in_root(&self, path: &Path) -> RelativePath {
        self.path.join(path)
    }
}

pub(super) fn watch_failure(error: notify::Error) -> ServiceError {
    match error.kind {
        notify::ErrorKind::MaxFilesWatch => ServiceError::coded(
            ErrorCode::LimitReached,
            "the system watches no more directories: raise fs.inotify.max_user_watches",
        ),
        _ => ServiceError::coded(ErrorCode::Failed, format!("the directory cannot be watched: {error}")),
    }
}
