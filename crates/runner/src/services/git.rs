//! Git by its own program. A repository is somebody else's: nothing in it may run anything or lead elsewhere, so it is
//! checked first (`repository`), and git works with a git directory of ours (`private_dir`).

pub(crate) mod branch;
mod diff;
mod log;
mod private_dir;
mod program;
mod repository;
mod sandbox;
mod session_worktree;
mod status;
mod worktree;
mod worktree_files;

use std::path::{Path, PathBuf};

use qd_wire::command::Command;

use super::call::{CallResult, Cancellation, ServiceError, ServiceResult};
use super::root::own_data::OwnData;
use program::Git;
pub(crate) use session_worktree::SessionWorktree;

/// Where git works.
#[derive(Clone)]
pub(super) struct GitDirectory<'a> {
    pub(super) root: &'a Path,
    /// Where worktrees may be besides.
    pub(super) workspace_roots: &'a [PathBuf],
    /// Where they may not be, and what git does not look at.
    pub(super) own_data: OwnData,
}

/// Does a git command.
pub(super) async fn work(
    command: &Command,
    directory: &GitDirectory<'_>,
    cancel: &Cancellation,
) -> CallResult {
    let git = Git::open(directory, cancel).await?;
    match command {
        Command::GitStatus(_) => status::status(&git).await,
        Command::GitDiff(params) => diff::diff(&git, params).await,
        Command::GitLog(params) => log::log(&git, params).await,
        Command::GitWorktrees(_) => worktree::list(&git).await,
        Command::GitWorktreeAdd(params) => worktree::add(&git, params, directory).await,
        Command::GitWorktreeRemove(params) => worktree::remove(&git, params, directory).await,
        other => refuse!(Unsupported, "'{}' is not a git command", other.spec().name),
    }
}

/// A path in the root, by its letters alone: what it names may be deleted.
fn relative(path: &str) -> ServiceResult<&str> {
    if path.is_empty() {
        return Err(ServiceError::Missing("path"));
    }
    if path.contains('\0') {
        return Err(ServiceError::InvalidPath);
    }
    if path.starts_with('/') {
        return Err(ServiceError::NotRelative);
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ServiceError::ParentInPath);
    }
    Ok(path)
}

/// A commit's name by its letters: it must not look like an option.
fn revision(name: &str) -> ServiceResult<&str> {
    let is_bad = name.is_empty() || name.starts_with('-') || name.contains(['\0', '\n']) || name.len() > 1024;
    if is_bad {
        Err(ServiceError::invalid(format!("'{name}' is not the name of a commit or branch")))
    } else {
        Ok(name)
    }
}

#[cfg(test)]
#[path = "git/git_tests.rs"]
mod tests;
