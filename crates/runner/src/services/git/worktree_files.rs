//! Git's files about worktrees, read and written by our own code: git itself would read the repository's configuration
//! for it, run its hooks and filters, and follow what the files name.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, OpenOptions};
use qd_wire::ErrorCode;
use qd_wire::service::GitWorktree;
use rustix::io::Errno;

use super::program::{Git, GitContext};
use super::repository::references::{Reference, References, head_in, is_name};
use super::repository::{Repository, folder_in, named_path, not_read, read_in};
use crate::services::call::{ServiceError, ServiceResult};
use crate::services::root::{DIRECTORY_MODE, failure, stat_in};

/// Bytes of a file that names a worktree.
const LINK_BYTES_MAX: u64 = 8192;

/// Worktrees of one name.
const SAME_NAME_MAX: usize = 10_000;

/// A worktree that a repository knows.
#[derive(Debug)]
pub(super) struct KnownWorktree {
    /// Git's name for it; the main one has none.
    pub(super) id: Option<OsString>,
    pub(super) path: PathBuf,
    pub(super) told: GitWorktree,
}

/// A worktree that is to be made.
pub(super) struct NewWorktree<'a> {
    pub(super) path: &'a Path,
    /// What is checked out in it: a branch, or a commit.
    pub(super) head: Reference,
    pub(super) commit: &'a str,
}

/// The worktrees of a repository, the main one first.
pub(super) fn known(git: &Git) -> ServiceResult<Vec<KnownWorktree>> {
    let (repository, references) = (&git.repository, &git.private.references);
    let head = if git.config.is_bare { None } else { head_in(&repository.common.dir)? };
    let main = main_path(repository);
    let mut known = vec![KnownWorktree::new(None, main, head, references)];
    let Some(worktrees) = repository.common.folder("worktrees")? else { return Ok(known) };
    for entry in worktrees.entries().map_err(failure)? {
        let id = entry.map_err(failure)?.file_name();
        let Some(own) = folder_in(&worktrees, &id)? else { continue };
        let Some(named) = read_in(&own, OsStr::new("gitdir"), LINK_BYTES_MAX)? else { continue };
        let own_path = repository.common.path.join("worktrees").join(&id);
        let link = own_path.join(named_path(&named)?);
        let mut path = if link.file_name() == Some(OsStr::new(".git")) {
            link.parent().unwrap_or(&link).to_owned()
        } else {
            link
        };
        if path.components().any(|part| part.as_os_str() == "..") {
            path = path.canonicalize().unwrap_or(path);
        }
        let mut found = KnownWorktree::new(Some(id), path, head_in(&own)?, references);
        found.told.locked = stat_in(&own, OsStr::new("locked")).is_ok();
        known.push(found);
    }
    known[1..].sort_by(|one, other| one.path.cmp(&other.path));
    Ok(known)
}

impl KnownWorktree {
    fn new(
        id: Option<OsString>,
        path: PathBuf,
        head: Option<Reference>,
        references: &References,
    ) -> KnownWorktree {
        let branch = head.as_ref().and_then(Reference::branch);
        let told = GitWorktree {
            path: path.to_string_lossy().into_owned(),
            is_main: id.is_none(),
            branch: branch.map(|branch| String::from_utf8_lossy(branch).into_owned()),
            head: head.as_ref().and_then(|head| references.object(head)).map(str::to_owned),
            ..GitWorktree::default()
        };
        KnownWorktree { id, path, told }
    }
}

/// Where the main worktree is; that of a bare repository is the repository.
fn main_path(repository: &Repository) -> PathBuf {
    if repository.linked_id.is_none() {
        return repository.top.clone();
    }
    let common = &repository.common.path;
    let is_usual = common.file_name() == Some(OsStr::new(".git"));
    common.parent().filter(|_| is_usual).unwrap_or(common).to_owned()
}

/// Makes a worktree and checks out its files. Of one that cannot be made nothing is left.
pub(super) async fn create(git: &Git, new: &NewWorktree<'_>) -> ServiceResult<()> {
    let common = git.repository.common.dir.try_clone().map_err(failure)?;
    let common_path = git.repository.common.path.clone();
    let (path, head) = (new.path.to_owned(), new.head.line());
    let made = tokio::task::spawn_blocking(move || MadeWorktree::make(&common, &common_path, &path, &head));
    let made = made.await??;
    let index = made.own_path.join("index");
    let writes_in = vec![new.path.to_owned(), made.own_path.clone()];
    let context = GitContext { worktree: Some(new.path), index: Some(&index), git_dir: None, writes_in };
    let checked_out = match git.output(&["read-tree", "--reset", "-u", new.commit], &context).await {
        Ok(output) => output.check(),
        Err(error) => Err(error),
    };
    if let Err(error) = checked_out {
        tokio::task::spawn_blocking(move || made.undo()).await?;
        return Err(error);
    }
    Ok(())
}

/// Takes away a worktree and all files in it.
pub(super) async fn delete(git: &Git, known: &KnownWorktree) -> ServiceResult<()> {
    let Some(id) = known.id.clone() else { return Err(not_read("its main worktree cannot be removed")) };
    let (path, is_there) = (known.path.clone(), known.path.symlink_metadata().is_ok());
    if is_there {
        // What is removed must be that worktree, and not another directory that the file names.
        let found = Repository::find(&path.canonicalize()?)?;
        let own = git.repository.common.path.join("worktrees").join(&id);
        if found.is_none_or(|found| found.own.path != own || found.top != path) {
            refuse!(Conflict, "'{}' is another directory by now; run `git worktree prune`", path.display());
        }
    }
    let common = git.repository.common.dir.try_clone().map_err(failure)?;
    let removed = tokio::task::spawn_blocking(move || {
        if is_there {
            std::fs::remove_dir_all(&path)?;
        }
        remove_own(&common, &id)
    });
    removed.await?
}

fn remove_own(common: &Dir, id: &OsStr) -> ServiceResult<()> {
    if let Some(worktrees) = folder_in(common, OsStr::new("worktrees"))? {
        worktrees.remove_dir_all(id).map_err(failure)?;
        // Worktrees of others may be in it.
        let _ = common.remove_dir("worktrees");
    }
    Ok(())
}

/// Whether a linked worktree has submodules with git directories of their own.
pub(super) fn has_submodules(git: &Git, known: &KnownWorktree) -> ServiceResult<bool> {
    let (Some(id), Some(worktrees)) = (&known.id, git.repository.common.folder("worktrees")?) else {
        return Ok(false);
    };
    let Some(own) = folder_in(&worktrees, id)? else { return Ok(false) };
    let modules = folder_in(&own, OsStr::new("modules"))?;
    let mut entries = modules.map(|modules| modules.entries()).transpose().map_err(failure)?;
    Ok(entries.as_mut().is_some_and(|entries| entries.next().is_some()))
}

/// A worktree whose files about it are written.
struct MadeWorktree {
    common: Dir,
    id: OsString,
    own_path: PathBuf,
    path: PathBuf,
    is_top_made: bool,
}

impl MadeWorktree {
    fn make(common: &Dir, common_path: &Path, path: &Path, head: &[u8]) -> ServiceResult<MadeWorktree> {
        let is_top_made = make_top(path)?;
        let name = OsStr::new("worktrees");
        let worktrees = match folder_in(common, name)? {
            Some(worktrees) => worktrees,
            None => {
                common.create_dir(name).map_err(failure)?;
                folder_in(common, name)?.ok_or_else(|| not_read("its directory of worktrees is gone"))?
            }
        };
        let id = make_own(&worktrees, path)?;
        let own_path = common_path.join(name).join(&id);
        let common = common.try_clone().map_err(failure)?;
        let made = MadeWorktree { common, id, own_path, path: path.to_owned(), is_top_made };
        match made.write(&worktrees, head) {
            Ok(()) => Ok(made),
            Err(error) => {
                made.undo();
                Err(error)
            }
        }
    }

    fn write(&self, worktrees: &Dir, head: &[u8]) -> ServiceResult<()> {
        let own = worktrees.open_dir(&self.id).map_err(failure)?;
        let link = self.path.join(".git").into_os_string().into_vec();
        let own_path = self.own_path.as_os_str().as_bytes();
        if link.contains(&b'\n') || own_path.contains(&b'\n') {
            refuse!(InvalidRequest, "the name of a worktree must be one line");
        }
        write_new(&own, "gitdir", &[&link[..], b"\n"].concat())?;
        write_new(&own, "commondir", b"../..\n")?;
        write_new(&own, "HEAD", head)?;
        let top = Dir::open_ambient_dir(&self.path, cap_std::ambient_authority()).map_err(failure)?;
        write_new(&top, ".git", &[b"gitdir: ", own_path, b"\n"].concat())
    }

    fn undo(&self) {
        let emptied = if self.is_top_made {
            std::fs::remove_dir_all(&self.path)
        } else {
            std::fs::remove_file(self.path.join(".git"))
        };
        let removed = remove_own(&self.common, &self.id);
        if emptied.is_err() || removed.is_err() {
            tracing::warn!(?emptied, ?removed, "a worktree that could not be made left something behind");
        }
    }
}

/// Makes the directory, or takes one that is empty. True if it was made.
fn make_top(path: &Path) -> ServiceResult<bool> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let is_empty = !path.is_symlink() && std::fs::read_dir(path)?.next().is_none();
            if is_empty {
                return Ok(false);
            }
            let text = format!("'{}' is there already; name another directory", path.display());
            Err(ServiceError::coded(ErrorCode::AlreadyExists, text))
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes the directory that git's files about the worktree are in, by the worktree's name.
fn make_own(worktrees: &Dir, path: &Path) -> ServiceResult<OsString> {
    let name = path.file_name().unwrap_or(OsStr::new("worktree"));
    let is_usable = is_name(&[b"refs/", name.as_bytes()].concat());
    let name = if is_usable { name } else { OsStr::new("worktree") };
    for number in 0..SAME_NAME_MAX {
        let mut id = name.to_owned();
        if number > 0 {
            id.push(number.to_string());
        }
        match rustix::fs::mkdirat(worktrees, &id, DIRECTORY_MODE) {
            Ok(()) => return Ok(id),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(failure(error)),
        }
    }
    Err(not_read("it has too many worktrees of this name"))
}

fn write_new(dir: &Dir, name: &str, bytes: &[u8]) -> ServiceResult<()> {
    let mut file = dir.open_with(name, OpenOptions::new().write(true).create_new(true)).map_err(failure)?;
    Ok(file.write_all(bytes)?)
}
