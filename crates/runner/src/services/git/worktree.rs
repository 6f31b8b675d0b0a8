//! Worktrees: further directories of the same repository.

use std::path::{Path, PathBuf};

use qd_wire::service::{GitWorktree, GitWorktreeAddParams, GitWorktreeRemoveParams, GitWorktreesData};
use serde_json::json;

use super::diff::commit;
use super::program::Git;
use super::{GitDirectory, OwnData, relative, revision};
use crate::services::call::directory::is_within;
use crate::services::call::{CallOutput, CallResult, ServiceError, ServiceResult};

pub(super) async fn list(git: &Git) -> CallResult {
    CallOutput::new(all(git).await?, |data| json!({ "count": data.worktrees.len() }))
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
    let mut arguments = vec!["worktree", "add"];
    match (branch, params.create_branch == Some(true)) {
        (Some(branch), true) => arguments.extend(["-b", branch, "--", &path_text]),
        (Some(branch), false) => {
            if base.is_some() {
                refuse!(InvalidRequest, "'base' is for a new branch: set create_branch");
            }
            arguments.extend(["--", &path_text, branch]);
        }
        (None, true) => return Err(ServiceError::Missing("branch")),
        (None, false) => arguments.extend(["--detach", "--", &path_text]),
    }
    arguments.extend(base.as_deref());
    git.output(&arguments, &[]).await?.check()?;
    CallOutput::new(all(git).await?, |_| json!({ "path": path_text }))
}

pub(super) async fn remove(
    git: &Git,
    params: &GitWorktreeRemoveParams,
    directory: &GitDirectory<'_>,
) -> CallResult {
    let path = resolve_worktree_path(directory, &params.path).await?;
    // Git knows them without links; the directory itself may be gone.
    let known = |worktree: &&GitWorktree| Path::new(&worktree.path) == path;
    let worktrees = all(git).await?;
    let path_text = match worktrees.worktrees.iter().find(known) {
        Some(GitWorktree { is_main: true, .. }) => {
            refuse!(InvalidRequest, "The repository's own directory is not removed as a worktree");
        }
        Some(worktree) => worktree.path.clone(),
        None => refuse!(NotFound, "'{}' is not a worktree of this repository", params.path),
    };
    let mut arguments = vec!["worktree", "remove"];
    if params.force == Some(true) {
        arguments.push("--force");
    }
    // Git's own spelling of the path and not the client's, which may go through links.
    arguments.extend(["--", &path_text]);
    git.output(&arguments, &[]).await?.check()?;
    CallOutput::new(all(git).await?, |_| json!({ "path": path_text }))
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

pub(super) async fn all(git: &Git) -> ServiceResult<GitWorktreesData> {
    let raw = git.output(&["worktree", "list", "--porcelain", "-z"], &[]).await?.check()?;
    Ok(GitWorktreesData { worktrees: parse(&String::from_utf8_lossy(&raw)) })
}

/// Reads `worktree list --porcelain -z`: fields ended by NUL, worktrees by one more. The first is the main one.
fn parse(text: &str) -> Vec<GitWorktree> {
    let mut worktrees: Vec<GitWorktree> = Vec::new();
    for field in text.split('\0') {
        if let Some(path) = field.strip_prefix("worktree ") {
            let is_main = worktrees.is_empty();
            worktrees.push(GitWorktree { path: path.to_owned(), is_main, ..GitWorktree::default() });
            continue;
        }
        let Some(worktree) = worktrees.last_mut() else { continue };
        if let Some(head) = field.strip_prefix("HEAD ") {
            worktree.head = Some(head.to_owned());
        } else if let Some(branch) = field.strip_prefix("branch ") {
            worktree.branch = Some(branch.strip_prefix("refs/heads/").unwrap_or(branch).to_owned());
        } else if field == "locked" || field.starts_with("locked ") {
            worktree.locked = true;
        }
    }
    worktrees
}
