//! Worktrees: further directories of the same repository.

use std::path::{Path, PathBuf};

use qd_wire::service::{GitWorktreeAddParams, GitWorktreeRemoveParams, GitWorktreesData};
use serde_json::json;

use super::diff::commit;
use super::program::{Git, GitContext};
use super::repository::references::Reference;
use super::worktree_files::{KnownWorktree, NewWorktree, create, delete, has_submodules, known};
use super::{GitDirectory, OwnData, relative, revision};
use crate::services::call::directory::is_within;
use crate::services::call::{CallOutput, CallResult, ServiceError, ServiceResult};

pub(super) async fn list(git: &Git) -> CallResult {
    CallOutput::new(all(git)?, |data| json!({ "count": data.worktrees.len() }))
}

pub(super) async fn add(
    git: &Git,
    params: &GitWorktreeAddParams,
    directory: &GitDirectory<'_>,
) -> CallResult {
    let path = resolve_worktree_path(directory, &params.path).await?;
    let path_text = path.to_string_lossy().into_owned();
    // Checked, because a name that begins with `-` would be an option to git.
    let branch = params.branch.as_deref().map(revision).transpose()?;
    let base = match &params.base {
        Some(base) => Some(commit(git, base).await?),
        None => None,
    };
    if known(git)?.iter().any(|known| known.path == path) {
        refuse!(Conflict, "'{path_text}' is a worktree of this repository already");
    }
    let start = match (branch, params.create_branch == Some(true)) {
        (Some(branch), true) => WorktreeStart::NewBranch(branch.to_owned()),
        (Some(_), false) if base.is_some() => {
            refuse!(InvalidRequest, "'base' is for a new branch: set create_branch");
        }
        (Some(branch), false) => start_at(git, branch),
        (None, true) => return Err(ServiceError::Missing("branch")),
        (None, false) => WorktreeStart::Commit,
    };
    let commit = match (&start, &base, branch) {
        (_, Some(base), _) => base.clone(),
        (WorktreeStart::Branch(branch), ..) => commit(git, &format!("refs/heads/{branch}")).await?,
        (WorktreeStart::RemoteBranch(_, remote), ..) => commit(git, remote).await?,
        (WorktreeStart::Commit, None, Some(name)) => commit(git, name).await?,
        (WorktreeStart::Commit | WorktreeStart::NewBranch(_), None, _) => commit(git, "HEAD").await?,
    };
    make(git, &path, start, &commit).await?;
    let git = Git::open(directory, git.cancel()).await?;
    CallOutput::new(all(&git)?, |_| json!({ "path": path_text }))
}

/// What a new worktree has checked out.
pub(super) enum WorktreeStart {
    /// A commit, and no branch.
    Commit,
    Branch(String),
    NewBranch(String),
    /// A new branch of the name that a remote one has, whose reference follows.
    RemoteBranch(String, String),
}

/// What a name means that may be that of a branch, of one that a single remote has, or of a commit.
fn start_at(git: &Git, branch: &str) -> WorktreeStart {
    let names = &git.private.references.all;
    if names.contains_key(format!("refs/heads/{branch}").as_bytes()) || git.config.is_reftable {
        return WorktreeStart::Branch(branch.to_owned());
    }
    let remote = |name: &&Vec<u8>| {
        let name = name.strip_prefix(b"refs/remotes/").unwrap_or_default();
        let below = memchr::memchr(b'/', name).map(|at| &name[at + 1..]);
        below == Some(branch.as_bytes())
    };
    let mut remotes = names.keys().filter(remote);
    match (remotes.next(), remotes.next()) {
        (Some(only), None) => {
            WorktreeStart::RemoteBranch(branch.to_owned(), String::from_utf8_lossy(only).into_owned())
        }
        _ => WorktreeStart::Commit,
    }
}

/// Makes a worktree, with its branch if that is new.
pub(super) async fn make(git: &Git, path: &Path, start: WorktreeStart, commit: &str) -> ServiceResult<()> {
    let (branch, is_new) = match start {
        WorktreeStart::Commit => (None, false),
        WorktreeStart::Branch(branch) => (Some(branch), false),
        WorktreeStart::NewBranch(branch) | WorktreeStart::RemoteBranch(branch, _) => (Some(branch), true),
    };
    if let Some(branch) = &branch {
        check_branch(git, branch, is_new).await?;
    }
    let reference = branch.as_ref().map(|branch| format!("refs/heads/{branch}"));
    if let Some(reference) = reference.as_ref().filter(|_| is_new) {
        let none = "0".repeat(commit.len());
        let made = ["update-ref", "-m", "branch: created for a worktree", reference, commit, &none];
        git.change_references(&made).await?.check()?;
    }
    let head = match &reference {
        Some(reference) => Reference::Symbolic(reference.clone().into_bytes()),
        None => Reference::Object(commit.to_owned()),
    };
    let created = create(git, &NewWorktree { path, head, commit }).await;
    if created.is_err() && is_new {
        remove_branch(git, branch.as_deref().unwrap_or_default(), commit).await;
    }
    created
}

/// Removes a branch that was made here, if it is still where it began.
pub(super) async fn remove_branch(git: &Git, branch: &str, commit: &str) {
    let reference = format!("refs/heads/{branch}");
    match git.change_references(&["update-ref", "-d", &reference, commit]).await {
        Ok(output) if output.code == 0 => {}
        Ok(output) => tracing::debug!(branch, complaint = output.complaint, "a new branch stays"),
        Err(error) => tracing::warn!(branch, %error, "a new branch stays"),
    }
}

async fn check_branch(git: &Git, branch: &str, is_new: bool) -> ServiceResult<()> {
    let checked = git.output(&["check-ref-format", "--branch", branch], &GitContext::default()).await?;
    if checked.code != 0 {
        refuse!(InvalidRequest, "'{branch}' is not the name of a branch");
    }
    if is_new && git.private.references.all.contains_key(format!("refs/heads/{branch}").as_bytes()) {
        refuse!(AlreadyExists, "branch '{branch}' is there already; name another");
    }
    let known = known(git)?;
    if let Some(other) = known.iter().find(|other| other.told.branch.as_deref() == Some(branch)) {
        let other = &other.told.path;
        refuse!(Conflict, "branch '{branch}' is checked out at '{other}'; name another");
    }
    Ok(())
}

pub(super) async fn remove(
    git: &Git,
    params: &GitWorktreeRemoveParams,
    directory: &GitDirectory<'_>,
) -> CallResult {
    let path = resolve_worktree_path(directory, &params.path).await?;
    // Git knows them without links; the directory itself may be gone.
    let worktrees = known(git)?;
    let worktree = match worktrees.iter().find(|known| known.path == path) {
        Some(KnownWorktree { id: None, .. }) => {
            refuse!(InvalidRequest, "The repository's own directory is not removed as a worktree");
        }
        Some(worktree) => worktree,
        None => refuse!(NotFound, "'{}' is not a worktree of this repository", params.path),
    };
    if worktree.told.locked {
        refuse!(Conflict, "'{}' is locked; run `git worktree unlock` first", params.path);
    }
    if params.force != Some(true) && path.is_dir() {
        check_clean(git, worktree, directory).await?;
    }
    delete(git, worktree).await?;
    let path_text = worktree.told.path.clone();
    let git = Git::open(directory, git.cancel()).await?;
    CallOutput::new(all(&git)?, |_| json!({ "path": path_text }))
}

/// An error if something in a worktree would be lost.
async fn check_clean(git: &Git, worktree: &KnownWorktree, directory: &GitDirectory<'_>) -> ServiceResult<()> {
    let path = worktree.path.display();
    if has_submodules(git, worktree)? {
        refuse!(Conflict, "'{path}' has submodules; set force to remove it all the same");
    }
    let inside = GitDirectory { root: &worktree.path, ..directory.clone() };
    let inside = Git::open(&inside, git.cancel()).await?;
    let arguments = ["status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=dirty"];
    if !inside.output(&arguments, &GitContext::default()).await?.check()?.is_empty() {
        refuse!(Conflict, "'{path}' has modified or untracked files; set force to remove it all the same");
    }
    Ok(())
}

/// The same on a thread that may block.
async fn resolve_worktree_path(directory: &GitDirectory<'_>, path: &str) -> ServiceResult<PathBuf> {
    let (root, path) = (directory.root.to_owned(), path.to_owned());
    let (workspace_roots, own_data) = (directory.workspace_roots.to_vec(), directory.own_data.clone());
    let found =
        tokio::task::spawn_blocking(move || worktree_path(&root, &path, &workspace_roots, &own_data)).await;
    found?
}

/// Where a worktree is or will be: in the root, or in one of the runner's directories; links are resolved as far as
/// there is something.
fn worktree_path(
    root: &Path,
    path: &str,
    workspace_roots: &[PathBuf],
    own_data: &OwnData,
) -> ServiceResult<PathBuf> {
    if path.split('/').any(|part| part == "..") {
        return Err(ServiceError::ParentInPath);
    }
    let wanted = if path.starts_with('/') { PathBuf::from(path) } else { root.join(relative(path)?) };
    if path.contains('\0') {
        return Err(ServiceError::InvalidPath);
    }
    let mut missing = Vec::new();
    let mut known = wanted.as_path();
    let mut resolved = loop {
        match known.canonicalize() {
            Ok(resolved) => break resolved,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        // A link to nothing would be followed by whoever makes the directory.
        if known.symlink_metadata().is_ok() {
            return Err(ServiceError::Escapes);
        }
        let (Some(parent), Some(name)) = (known.parent(), known.file_name()) else {
            return Err(ServiceError::InvalidPath);
        };
        missing.push(name.to_owned());
        known = parent;
    };
    // Checked on the resolved path, and only on the part that exists: what is missing below cannot be a link.
    let is_allowed = is_within(&resolved, &[root.to_owned()]) || is_within(&resolved, workspace_roots);
    if !is_allowed {
        return Err(ServiceError::Escapes);
    }
    if resolved.is_dir() {
        own_data.check_path(&resolved)?;
    }
    resolved.extend(missing.into_iter().rev());
    Ok(resolved)
}

pub(super) fn all(git: &Git) -> ServiceResult<GitWorktreesData> {
    Ok(GitWorktreesData { worktrees: known(git)?.into_iter().map(|known| known.told).collect() })
}
