//! The repository a directory belongs to, found and checked by our own code before git is started on it.
//!
//! Git trusts what lies in a git directory: it follows links, reads other repositories that a file names and quotes
//! lines it does not understand. So every file that git would read there is looked at first, by handle; and git gets
//! copies of the small ones, see `private_dir`.

pub(super) mod config;
pub(super) mod index;
pub(super) mod objects;
pub(super) mod references;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use qd_wire::ErrorCode;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::services::call::{ServiceError, ServiceResult};
use crate::services::root::own_data::OwnData;
use crate::services::root::{failure, file_type, open_dir_in, open_file_in, stat_in};

/// Bytes of a file that only names another place.
const LINK_BYTES_MAX: u64 = 8192;

/// Bytes of a configuration.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// A repository with the worktree that a directory is in.
#[derive(Debug)]
pub(super) struct Repository {
    /// Where the files of the worktree begin, without links.
    pub(super) top: PathBuf,
    /// From there to the directory that was asked about.
    pub(super) prefix: PathBuf,
    /// What belongs to this worktree: HEAD and index.
    pub(super) own: GitFolder,
    /// What all worktrees share: references, objects, configuration.
    pub(super) common: GitFolder,
    /// The name that git has for this worktree, unless it is the main one.
    pub(super) linked_id: Option<OsString>,
}

/// A directory of git's, open.
#[derive(Debug)]
pub(super) struct GitFolder {
    pub(super) dir: Dir,
    /// Without links.
    pub(super) path: PathBuf,
}

/// The refusal to let git look at a repository.
pub(super) fn not_read(why: impl std::fmt::Display) -> ServiceError {
    let error = format!("git is not started on this repository: {why}");
    ServiceError::coded(ErrorCode::PermissionDenied, error)
}

impl Repository {
    /// The repository of a directory without links; `None` where there is none. Reads a few small files only.
    pub(super) fn find(root: &Path) -> ServiceResult<Option<Repository>> {
        let device = std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(root)?);
        for top in root.ancestors() {
            // As git does: a repository that is mounted around the directory is not meant.
            let Ok(dir) = Dir::open_ambient_dir(top, ambient_authority()) else { continue };
            if rustix::fs::fstat(&dir).is_ok_and(|stat| device_of(&stat) != device) {
                break;
            }
            let Ok(stat) = stat_in(&dir, OsStr::new(".git")) else { continue };
            let Some(own) = git_folder(top, &dir, &stat)? else { continue };
            let prefix = root.strip_prefix(top).unwrap_or(Path::new("")).to_owned();
            if prefix.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
                refuse!(
                    InvalidRequest,
                    "this is git's own directory and not a worktree; name a directory beside it"
                );
            }
            return Repository::with_own(top, prefix, own).map(Some);
        }
        Ok(None)
    }

    fn with_own(top: &Path, prefix: PathBuf, own: GitFolder) -> ServiceResult<Repository> {
        let top = top.to_owned();
        if let Some(named) = own.read("commondir", LINK_BYTES_MAX)? {
            let (common, linked_id) = common_of_linked(&top, &own, &named)?;
            return Ok(Repository { top, prefix, own, common, linked_id: Some(linked_id) });
        }
        let is_inside = own.path.starts_with(&top);
        if !is_inside && !is_submodule_of(&top, &own)? {
            return Err(not_read(
                "its .git leads to a git directory elsewhere that does not name this worktree. If you trust it, run \
                 `git worktree repair` or set core.worktree there",
            ));
        }
        let dir = own.dir.try_clone().map_err(failure)?;
        let common = GitFolder { dir, path: own.path.clone() };
        Ok(Repository { top, prefix, own, common, linked_id: None })
    }

    /// Neither of git's directories may be the runner's own data.
    pub(super) fn check_own_data(&self, own_data: &OwnData) -> ServiceResult<()> {
        own_data.check(&self.own.dir, None)?;
        own_data.check(&self.common.dir, None)
    }

    /// Git works with the repositories of others only where its user says so, and so do we.
    pub(super) fn is_of_this_user(&self) -> ServiceResult<bool> {
        let user = rustix::process::geteuid().as_raw();
        let top = Dir::open_ambient_dir(&self.top, ambient_authority()).map_err(failure)?;
        let link = stat_in(&top, OsStr::new(".git")).map_err(failure)?;
        let mut stats = vec![link];
        for dir in [&top, &self.own.dir, &self.common.dir] {
            stats.push(rustix::fs::fstat(dir).map_err(failure)?);
        }
        Ok(stats.iter().all(|stat| stat.st_uid == user))
    }

    /// Files of the worktree that git opens without looking what they are.
    pub(super) fn check_top_files(&self) -> ServiceResult<()> {
        let top = Dir::open_ambient_dir(&self.top, ambient_authority()).map_err(failure)?;
        for (name, may_be_link) in [(".gitmodules", false), (".gitattributes", true), (".gitignore", true)] {
            let Ok(stat) = stat_in(&top, OsStr::new(name)) else { continue };
            let is_fine = match file_type(&stat) {
                FileType::RegularFile | FileType::Directory => true,
                // Git itself does not follow these two.
                FileType::Symlink => may_be_link,
                _ => false,
            };
            if !is_fine {
                return Err(not_read(format_args!("{name} is a link or no regular file")));
            }
        }
        Ok(())
    }

    /// The configurations that are read, those of the worktree last.
    pub(super) fn config(&self) -> ServiceResult<config::RepositoryConfig> {
        let shared = self.common.read("config", CONFIG_BYTES_MAX)?.unwrap_or_default();
        let own = self.own.read("config.worktree", CONFIG_BYTES_MAX)?.unwrap_or_default();
        config::RepositoryConfig::read(&shared, &own)
    }
}

impl GitFolder {
    fn open(path: PathBuf) -> ServiceResult<GitFolder> {
        let dir = Dir::open_ambient_dir(&path, ambient_authority()).map_err(failure)?;
        Ok(GitFolder { dir, path })
    }

    /// The contents of one of git's files, if it is there.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> ServiceResult<Option<Vec<u8>>> {
        read_in(&self.dir, OsStr::new(name), bytes_max)
    }

    /// A directory in it that is no link, if it is there.
    pub(super) fn folder(&self, name: &str) -> ServiceResult<Option<Dir>> {
        folder_in(&self.dir, OsStr::new(name))
    }
}

/// The contents of a regular file that is no link, if it is there.
pub(super) fn read_in(dir: &Dir, name: &OsStr, bytes_max: u64) -> ServiceResult<Option<Vec<u8>>> {
    let Some(file) = file_in(dir, name)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(not_read(format_args!("git's file {} is too large", shown(name))));
    }
    Ok(Some(bytes))
}

/// A regular file that is no link, if it is there.
pub(super) fn file_in(dir: &Dir, name: &OsStr) -> ServiceResult<Option<File>> {
    match stat_in(dir, name) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(failure(error)),
        Ok(stat) if file_type(&stat) != FileType::RegularFile => {
            Err(not_read(format_args!("git's file {} is a link or no regular file", shown(name))))
        }
        Ok(_) => open_file_in(dir, name).map(Some),
    }
}

/// A directory that is no link, if it is there.
pub(super) fn folder_in(dir: &Dir, name: &OsStr) -> ServiceResult<Option<Dir>> {
    match stat_in(dir, name) {
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failure(error)),
        Ok(stat) if file_type(&stat) != FileType::Directory => {
            Err(not_read(format_args!("git's directory {} is a link or no directory", shown(name))))
        }
        Ok(_) => open_dir_in(dir, name).map(Some),
    }
}

/// A name from a repository in an error.
pub(super) fn shown(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    name.chars().filter(|character| !character.is_control()).take(100).collect()
}

/// The git directory that an entry `.git` is or names. `None` for a directory that git would not take for one.
fn git_folder(top: &Path, dir: &Dir, stat: &Stat) -> ServiceResult<Option<GitFolder>> {
    let name = OsStr::new(".git");
    let path = match file_type(stat) {
        FileType::Directory => {
            let dir = open_dir_in(dir, name)?;
            let own = GitFolder { dir, path: top.join(name) };
            return Ok(stat_in(&own.dir, OsStr::new("HEAD")).is_ok().then_some(own));
        }
        FileType::Symlink => top.join(name),
        FileType::RegularFile => {
            let text = read_in(dir, name, LINK_BYTES_MAX)?.unwrap_or_default();
            let Some(named) = text.strip_prefix(b"gitdir:") else {
                return Err(not_read("its .git is neither a directory nor a file that names one"));
            };
            top.join(named_path(named)?)
        }
        _ => return Err(not_read("its .git is neither a directory nor a file that names one")),
    };
    let gone = |_| not_read("its .git names a git directory that is not there");
    let own = GitFolder::open(path.canonicalize().map_err(gone)?)?;
    if stat_in(&own.dir, OsStr::new("HEAD")).is_err() {
        return Err(not_read("its .git names a directory that is none of git's"));
    }
    Ok(Some(own))
}

/// The common directory of a linked worktree: the one it lies in, if that knows the worktree too. The file alone could
/// name any repository of the disk.
fn common_of_linked(top: &Path, own: &GitFolder, named: &[u8]) -> ServiceResult<(GitFolder, OsString)> {
    let elsewhere = || {
        not_read(
            "its git directory belongs to a repository that does not know this worktree. If you trust both, run \
             `git worktree repair`",
        )
    };
    let worktrees = own.path.parent().filter(|parent| parent.file_name() == Some(OsStr::new("worktrees")));
    let (Some(common), Some(id)) = (worktrees.and_then(Path::parent), own.path.file_name()) else {
        return Err(elsewhere());
    };
    let named = own.path.join(named_path(named)?).canonicalize().map_err(|_| elsewhere())?;
    let back = own.read("gitdir", LINK_BYTES_MAX)?.ok_or_else(elsewhere)?;
    let back = own.path.join(named_path(&back)?);
    let leads_back = back.file_name() == Some(OsStr::new(".git"))
        && back.parent().and_then(|parent| parent.canonicalize().ok()).is_some_and(|parent| parent == top);
    if named != common || !leads_back {
        return Err(elsewhere());
    }
    Ok((GitFolder::open(common.to_owned())?, id.to_owned()))
}

/// Whether a git directory elsewhere says itself that this is its worktree, as those of submodules do.
fn is_submodule_of(top: &Path, own: &GitFolder) -> ServiceResult<bool> {
    let shared = own.read("config", CONFIG_BYTES_MAX)?.unwrap_or_default();
    let Some(named) = config::worktree_of(&shared) else { return Ok(false) };
    Ok(own.path.join(OsStr::from_bytes(&named)).canonicalize().is_ok_and(|named| named == top))
}

/// The path that a file of git's holds, in one line.
pub(super) fn named_path(text: &[u8]) -> ServiceResult<PathBuf> {
    let text = text.trim_ascii();
    let path = Path::new(OsStr::from_bytes(text));
    let is_bad = text.is_empty() || text.iter().any(|byte| matches!(byte, b'\0' | b'\n' | b'\r'));
    if is_bad || path.components().any(|part| matches!(part, Component::Prefix(_))) {
        return Err(not_read("a file of git's that names a directory is damaged"));
    }
    Ok(path.to_owned())
}

#[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
fn device_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}
