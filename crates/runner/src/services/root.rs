//! The directory a service call works in, held open. Every path a client names is opened beneath it by handle.
//!
//! What a path means is decided by the system in one step (`openat2` with `RESOLVE_BENEATH`, through `cap-std`), never
//! by looking first and opening later; so neither `..` nor a link nor a directory exchanged at the wrong moment leads
//! out. Where something is made, renamed or removed, its parent is opened so, and the last name is used in it as it is.

pub(crate) mod kernel_files;
pub(crate) mod own_data;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, MetadataExt};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use self::own_data::{FileIdentity, OwnData, identity};
use super::call::{ServiceError, ServiceResult};
use super::fs::DirEntry;

/// Bytes of a path; no system opens a longer one.
const PATH_BYTES_MAX: usize = 4096;

/// Bytes of one name in a path; no file system keeps a longer one.
const NAME_BYTES_MAX: usize = 255;

/// Links followed for one path, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// Directories are made with it, less what the umask takes away.
pub(crate) const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);

/// The directory of a call, open.
#[derive(Debug)]
pub(crate) struct Root {
    dir: Dir,
    /// Without links.
    path: PathBuf,
    /// What nobody may reach, wherever it lies.
    own_data: OwnData,
    identity: FileIdentity,
}

/// A path a client named, checked: relative, without `..`. Empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelativePath {
    path: PathBuf,
    /// It ended with `/`, so that only a directory can be meant.
    is_directory_form: bool,
}

/// A name in an open directory. What is there, if anything, is reached without following links.
#[derive(Debug)]
pub(crate) struct NameInDir {
    pub(crate) dir: Dir,
    pub(crate) name: OsString,
}

impl Root {
    /// Opens a directory that the runner has chosen. Links on the way to it are followed.
    #[cfg(test)]
    pub(crate) fn open(path: &Path) -> ServiceResult<Root> {
        Root::open_apart_from(OwnData::default(), path)
    }

    /// The same, if it is not in the runner's own data. What of that is beneath it cannot be reached.
    pub(crate) fn open_apart_from(own_data: OwnData, path: &Path) -> ServiceResult<Root> {
        let path = path.canonicalize().map_err(failure)?;
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).map_err(failure)?;
        kernel_files::check(&dir)?;
        own_data.check(&dir, None)?;
        let identity = identity(&rustix::fs::fstat(&dir).map_err(failure)?);
        Ok(Root { dir, path, own_data, identity })
    }

    /// Whether an open directory is the runner's own data, for those who walk down by handle.
    pub(crate) fn is_own_data(&self, dir: &Dir) -> bool {
        !self.own_data.is_nowhere() && rustix::fs::fstat(dir).is_ok_and(|stat| self.own_data.is(&stat))
    }

    /// The entries of a directory without the runner's own data.
    pub(crate) fn hide_own_data(&self, dir: &Dir, entries: &mut Vec<DirEntry>) {
        let is_near = || rustix::fs::fstat(dir).is_ok_and(|stat| self.own_data.is_child_of(&stat));
        if !self.own_data.is_nowhere() && is_near() {
            entries.retain(|entry| !stat_in(dir, &entry.name).is_ok_and(|stat| self.own_data.is(&stat)));
        }
    }

    /// Where the root is, without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a directory; links that stay beneath the root are followed.
    pub(crate) fn open_dir(&self, path: &RelativePath) -> ServiceResult<Dir> {
        self.open_dir_at(&path.path).map_err(|error| {
            match error.raw_os_error().map(Errno::from_raw_os_error) {
                // Of our own data not even that is told.
                Some(Errno::NOTDIR) => match self.metadata(path) {
                    Err(ServiceError::OwnData) => ServiceError::OwnData,
                    _ => ServiceError::NotADirectory,
                },
                _ => failure(error),
            }
        })
    }

    /// Opens a regular file for reading; links that stay beneath the root are followed.
    pub(crate) fn open_file(&self, path: &RelativePath) -> ServiceResult<File> {
        if path.is_directory_form || path.is_root() {
            return Err(ServiceError::IsADirectory);
        }
        // By the directory it is in, so that it is known whether that is ours to show.
        let place = self.parent_of_file(path)?;
        open_file_in(&place.dir, &place.name)
    }

    /// What is at the end of the path; links that stay beneath the root are followed.
    pub(crate) fn metadata(&self, path: &RelativePath) -> ServiceResult<Metadata> {
        self.metadata_at(&path.path).map_err(failure)
    }

    /// The same, with the system's error.
    pub(crate) fn metadata_at(&self, path: &Path) -> io::Result<Metadata> {
        if path.as_os_str().is_empty() {
            return self.dir.dir_metadata();
        }
        let found = self.beneath(path, |path| self.dir.metadata(path))?;
        if !self.own_data.is_nowhere() || MetadataExt::dev(&found) != self.identity.0 {
            if found.is_dir() {
                self.open_dir_at(path)?;
            } else {
                let path = RelativePath { path: path.to_owned(), is_directory_form: false };
                self.parent_of_file(&path).map_err(io::Error::other)?;
            }
        }
        Ok(found)
    }

    /// The parent of what the path names, and its name there. A link at the end is not followed. None for the root.
    pub(crate) fn place(&self, path: &RelativePath) -> ServiceResult<Option<NameInDir>> {
        self.parent_of_io(path).map_err(failure)
    }

    /// The same, with the system's error.
    pub(crate) fn parent_of_io(&self, path: &RelativePath) -> io::Result<Option<NameInDir>> {
        let Some(name) = path.path.file_name() else { return Ok(None) };
        let parent = path.path.parent().unwrap_or(Path::new(""));
        let place = NameInDir { dir: self.open_dir_at(parent)?, name: name.to_owned() };
        if stat_in(&place.dir, &place.name).is_ok_and(|stat| self.own_data.is(&stat)) {
            return Err(io::Error::other(ServiceError::OwnData));
        }
        Ok(Some(place))
    }

    /// The same for what is to be moved, copied or removed with all that is in it.
    pub(crate) fn parent_of_whole(&self, path: &RelativePath) -> ServiceResult<Option<NameInDir>> {
        let place = self.place(path)?;
        if let Some(stat) = place.as_ref().map(NameInDir::stat).transpose()?.flatten()
            && self.own_data.is_in(&stat)
        {
            return Err(ServiceError::OwnData);
        }
        Ok(place)
    }

    /// Where a file is that is to be written under this path. Links at the end are followed if they stay beneath the
    /// root, even to where nothing is yet; where one leads out it is an error.
    pub(crate) fn parent_of_file(&self, path: &RelativePath) -> ServiceResult<NameInDir> {
        if path.is_directory_form {
            return Err(ServiceError::IsADirectory);
        }
        let mut path = path.path.clone();
        for _ in 0..LINKS_MAX {
            // A path without a last name (the root, or one that ends with `..`) leads to a directory.
            let name = path.file_name().ok_or(ServiceError::IsADirectory)?.to_owned();
            let parent = path.parent().unwrap_or(Path::new("")).to_owned();
            let place = NameInDir { dir: self.open_dir_at(&parent).map_err(failure)?, name };
            if !place.stat()?.is_some_and(|stat| file_type(&stat) == FileType::Symlink) {
                return Ok(place);
            }
            let target = PathBuf::from(place.link_target()?);
            path = if target.is_absolute() { self.inside(&target)? } else { parent.join(target) };
        }
        Err(failure(Errno::LOOP))
    }

    /// Makes the directories above a path that are missing, if the client wants that.
    pub(crate) fn create_parents(&self, path: &RelativePath, is_wanted: Option<bool>) -> ServiceResult<()> {
        if let Some(parent) = path.parent().filter(|_| is_wanted == Some(true)) {
            self.create_dirs(&parent)?;
        }
        Ok(())
    }

    /// Makes the directories of a path that are missing. Says how many were.
    pub(crate) fn create_dirs(&self, path: &RelativePath) -> ServiceResult<u64> {
        let mut made = 0;
        let mut parent = PathBuf::new();
        for component in path.path.components() {
            let here = parent.join(component);
            match self.open_dir_at(&here) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let dir = self.open_dir_at(&parent).map_err(failure)?;
                    match rustix::fs::mkdirat(&dir, component.as_os_str(), DIRECTORY_MODE) {
                        Ok(()) => made += 1,
                        // Somebody else made it, or it is a link to nowhere: opening it says which.
                        Err(Errno::EXIST) => drop(self.open_dir_at(&here).map_err(failure)?),
                        Err(error) => return Err(failure(error)),
                    }
                }
                opened => drop(opened.map_err(failure)?),
            }
            parent = here;
        }
        Ok(made)
    }

    /// The nearest directory above the path that exists.
    pub(crate) fn nearest_dir(&self, path: &RelativePath) -> ServiceResult<Dir> {
        let mut above = path.path.parent();
        while let Some(path) = above {
            match self.open_dir_at(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => above = path.parent(),
                opened => return opened.map_err(failure),
            }
        }
        self.dir.try_clone().map_err(failure)
    }

    fn open_dir_at(&self, path: &Path) -> io::Result<Dir> {
        if path.as_os_str().is_empty() {
            return self.dir.try_clone();
        }
        let dir = self.beneath(path, |path| self.dir.open_dir(path))?;
        kernel_files::check_in(&dir, self.identity.0).map_err(io::Error::other)?;
        self.own_data.check(&dir, Some(self.identity)).map_err(io::Error::other)?;
        Ok(dir)
    }

    /// The path from the root of an absolute one, which may name the root through links.
    fn inside(&self, target: &Path) -> ServiceResult<PathBuf> {
        if let Ok(inside) = target.strip_prefix(&self.path) {
            return Ok(inside.to_owned());
        }
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(ServiceError::Escapes);
        };
        let real = parent.canonicalize().map_err(|_| ServiceError::Escapes)?;
        let inside = real.strip_prefix(&self.path).map_err(|_| ServiceError::Escapes)?;
        Ok(inside.join(name))
    }

    /// Opens something beneath the root. For the system a link with an absolute target leads out even if it leads back
    /// in: then the path is asked for without its links and tried once more, by handle again, so that it cannot leave
    /// whatever happens in between.
    fn beneath<T>(&self, path: &Path, open: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
        let error = match open(path) {
            Err(error) if is_escape(&error) => error,
            done => return done,
        };
        let Ok(real) = self.path.join(path).canonicalize() else { return Err(error) };
        match real.strip_prefix(&self.path) {
            Ok(inside) if inside.as_os_str().is_empty() => open(Path::new(".")),
            Ok(inside) => open(inside),
            Err(_) => Err(error),
        }
    }
}

impl RelativePath {
    /// Checks a path that a client must name.
    pub(crate) fn parse(path: &str) -> ServiceResult<RelativePath> {
        if path.is_empty() {
            return Err(ServiceError::Missing("path"));
        }
        if path.starts_with('/') {
            return Err(ServiceError::NotRelative);
        }
        if path.split('/').any(|name| name == "..") {
            return Err(ServiceError::ParentInPath);
        }
        let stem = path.strip_suffix('/').unwrap_or(path);
        let is_bad = |name: &str| name.is_empty() || name.len() > NAME_BYTES_MAX;
        if path.len() > PATH_BYTES_MAX || path.contains('\0') || stem.split('/').any(is_bad) {
            return Err(ServiceError::InvalidPath);
        }
        let is_directory_form = path.ends_with('/') || path.ends_with("/.");
        let path = stem.split('/').filter(|name| *name != ".").collect();
        Ok(RelativePath { path, is_directory_form })
    }

    /// Checks a path that may be left out; then it is the root.
    pub(crate) fn parse_or_root(path: Option<&str>) -> ServiceResult<RelativePath> {
        RelativePath::parse(path.filter(|path| !path.is_empty()).unwrap_or("."))
    }

    pub(crate) fn is_root(&self) -> bool {
        self.path.as_os_str().is_empty()
    }

    /// Without `.`; empty for the root.
    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }

    /// A path below it that was found, not named by a client.
    pub(crate) fn join(&self, below: &Path) -> RelativePath {
        RelativePath { path: self.path.join(below), is_directory_form: false }
    }

    /// The directory it is in; none for the root.
    pub(crate) fn parent(&self) -> Option<RelativePath> {
        Some(RelativePath { path: self.path.parent()?.to_owned(), is_directory_form: true })
    }
}

impl NameInDir {
    /// What is there, if anything; a link is a link.
    pub(crate) fn stat(&self) -> ServiceResult<Option<Stat>> {
        match stat_in(&self.dir, &self.name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    }

    /// Opens a regular file that is no link, if there is something.
    pub(crate) fn open_file(&self) -> ServiceResult<Option<File>> {
        match self.stat()? {
            None => Ok(None),
            Some(_) => open_file_in(&self.dir, &self.name).map(Some),
        }
    }

    fn link_target(&self) -> ServiceResult<OsString> {
        link_target_in(&self.dir, &self.name)
    }
}

/// What a name in a directory is; a link is a link.
pub(crate) fn stat_in(dir: &Dir, name: &OsStr) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Where the link with this name leads.
pub(crate) fn link_target_in(dir: &Dir, name: &OsStr) -> ServiceResult<OsString> {
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).map_err(failure)?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Opens a directory with this name that is no link. What is mounted there must be an ordinary file system too.
pub(crate) fn open_dir_in(dir: &Dir, name: &OsStr) -> ServiceResult<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failure)?;
    kernel_files::check_in(&opened, kernel_files::device(dir)?)?;
    Ok(Dir::from_std_file(File::from(opened)))
}

/// Opens a regular file with this name that is no link, for reading.
pub(crate) fn open_file_in(dir: &Dir, name: &OsStr) -> ServiceResult<File> {
    // A look first: opening a pipe would wake its writer, and opening a device may do anything. It may become a pipe
    // right after; the opening must not wait.
    let seen = file_type(&stat_in(dir, name).map_err(failure)?);
    check_regular(seen == FileType::RegularFile, seen == FileType::Directory)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(failure)?);
    let metadata = file.metadata().map_err(failure)?;
    check_regular(metadata.is_file(), metadata.is_dir())?;
    // A file can be mounted by itself.
    if std::os::unix::fs::MetadataExt::dev(&metadata) != kernel_files::device(dir)? {
        kernel_files::check(&file)?;
    }
    Ok(file)
}

pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The system's error in the words of the services.
pub(crate) fn failure(error: impl Into<io::Error>) -> ServiceError {
    let error = error.into();
    if let Some(said) = error.get_ref().and_then(|inner| inner.downcast_ref::<ServiceError>()) {
        return said.clone();
    }
    if is_escape(&error) {
        return ServiceError::Escapes;
    }
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::ISDIR) => ServiceError::IsADirectory,
        Some(Errno::NAMETOOLONG) => ServiceError::InvalidPath,
        _ => ServiceError::from(error),
    }
}

/// `cap-std` says a refusal of its own where a path leads out; the system's refusals have a number.
fn is_escape(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw_os_error(number) == Errno::XDEV,
        None => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

fn check_regular(is_file: bool, is_dir: bool) -> ServiceResult<()> {
    match (is_file, is_dir) {
        (true, _) => Ok(()),
        (_, true) => Err(ServiceError::IsADirectory),
        _ => Err(ServiceError::NotAFile),
    }
}

#[cfg(test)]
#[path = "root/root_tests.rs"]
mod tests;
