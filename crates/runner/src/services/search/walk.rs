//! Walks the files beneath a root by handle, in the order of their paths, from any place on.
//!
//! A page of a search begins where the last one ended, and nothing is remembered in between. So the order must be the
//! same every time, and the walk finds its place by comparing names with the path of the last file.

use std::cmp::Ordering;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::Path;

use cap_std::fs::Dir;
use ignore::overrides::Override;
use rustix::fs::FileType;

use super::ignored::IgnoreLists;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::services::fs::entries;
use crate::services::root::{RelativePath, Root, open_dir_in, open_file_in};

/// Directories in directories; each level holds a descriptor. What is deeper is not looked for.
const DEPTH_MAX: usize = 200;

/// A regular file, which may be gone by now.
pub(super) struct FoundFile<'a> {
    dir: &'a Dir,
    name: &'a OsStr,
    /// From the root.
    pub(super) path: &'a Path,
}

impl FoundFile<'_> {
    /// Opens it if it is still a regular file and no link.
    pub(super) fn open(&self) -> ServiceResult<File> {
        open_file_in(self.dir, self.name)
    }
}

pub(super) struct FileWalk<'a> {
    root: &'a Root,
    cancel: &'a Cancellation,
    globs: Override,
    include_hidden: bool,
    /// The names of the path to begin with.
    from: Vec<OsString>,
    ignored: IgnoreLists,
}

/// Is told each file; says whether to go on.
type VisitFile<'a> = &'a mut dyn FnMut(FoundFile<'_>) -> ServiceResult<bool>;

impl<'a> FileWalk<'a> {
    /// With `from` the walk begins with that file, or where it would be.
    pub(super) fn new(
        root: &'a Root,
        cancel: &'a Cancellation,
        globs: Override,
        include_hidden: bool,
        from: Option<&Path>,
    ) -> Self {
        let from = from.map(|from| from.iter().map(OsStr::to_owned).collect()).unwrap_or_default();
        FileWalk { root, cancel, globs, include_hidden, from, ignored: IgnoreLists::default() }
    }

    /// Visits the files of a directory and of those below it.
    pub(super) fn walk(&mut self, path: &RelativePath, visit: VisitFile<'_>) -> ServiceResult<()> {
        let root = self.root;
        let start = root.open_dir(path)?;
        // The lists of the directories above count too, up to the root.
        let mut above = path.parent();
        let mut chain = Vec::new();
        while let Some(directory) = above {
            above = directory.parent();
            chain.push(directory);
        }
        for directory in chain.iter().rev() {
            if let Ok(dir) = root.open_dir(directory) {
                self.ignored.enter(directory.as_path(), &dir);
            }
        }
        // Where the walk begins within the path of the root is decided by names, one level at a time.
        let depth = path.as_path().iter().count();
        let is_edge = match self.edge(path) {
            Ordering::Less => return Ok(()),
            order => order == Ordering::Equal,
        };
        self.directory(&start, path.as_path(), depth, is_edge, visit)?;
        Ok(())
    }

    /// How the directory to walk lies to the place to begin with: before it, on the way to it, or behind it.
    fn edge(&self, path: &RelativePath) -> Ordering {
        if self.from.is_empty() {
            return Ordering::Greater;
        }
        for (name, from) in path.as_path().iter().zip(&self.from) {
            match name.cmp(from) {
                Ordering::Equal => {}
                order => return order,
            }
        }
        Ordering::Equal
    }

    /// Says whether to go on. `is_edge` if the place to begin with is in this directory.
    fn directory(
        &mut self,
        dir: &Dir,
        path: &Path,
        depth: usize,
        is_edge: bool,
        visit: VisitFile<'_>,
    ) -> ServiceResult<bool> {
        self.cancel.check()?;
        let before = self.ignored.len();
        self.ignored.enter(path, dir);
        let mut entries = entries(dir, self.cancel)?;
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let mut goes_on = true;
        for entry in entries {
            self.cancel.check()?;
            let order = match self.from.get(depth) {
                Some(from) if is_edge => entry.name.cmp(from),
                _ => Ordering::Greater,
            };
            let here = path.join(&entry.name);
            let is_dir = entry.kind == FileType::Directory;
            let is_wanted = is_dir || entry.kind == FileType::RegularFile;
            if order == Ordering::Less || !is_wanted || !self.is_included(&here, entry.is_hidden(), is_dir) {
                continue;
            }
            goes_on = if is_dir {
                self.below(dir, &entry.name, &here, depth + 1, order == Ordering::Equal, visit)?
            } else {
                visit(FoundFile { dir, name: &entry.name, path: &here })?
            };
            if !goes_on {
                break;
            }
        }
        self.ignored.leave(before);
        Ok(goes_on)
    }

    fn below(
        &mut self,
        dir: &Dir,
        name: &OsStr,
        path: &Path,
        depth: usize,
        is_edge: bool,
        visit: VisitFile<'_>,
    ) -> ServiceResult<bool> {
        if depth > DEPTH_MAX {
            return Ok(true);
        }
        // One that is gone, or not ours to read, has no files.
        let Ok(below) = open_dir_in(dir, name) else { return Ok(true) };
        if self.root.is_own_data(&below) {
            return Ok(true);
        }
        let before = self.ignored.len();
        match self.directory(&below, path, depth, is_edge, visit) {
            Err(ServiceError::BadPath(error)) => {
                tracing::debug!(path = %path.display(), %error, "a directory could not be searched");
                self.ignored.leave(before);
                Ok(true)
            }
            done => done,
        }
    }

    fn is_included(&self, path: &Path, is_hidden: bool, is_dir: bool) -> bool {
        // What git keeps for itself is searched only by those who name it.
        if is_hidden && (!self.include_hidden || path.file_name() == Some(OsStr::new(".git"))) {
            return false;
        }
        !self.globs.matched(path, is_dir).is_ignore() && !self.ignored.is_ignored(path, is_dir)
    }
}
