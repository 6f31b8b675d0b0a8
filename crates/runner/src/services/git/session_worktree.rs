//! A worktree made for a session: beside its repository, on a branch of its own, gone without a trace should the session
//! not come to be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::ErrorCode;
use qd_wire::command::WorktreeConfig;
use qd_wire::data::WorktreeState;

use super::diff::commit;
use super::program::Git;
use super::{GitDirectory, revision, worktree};
use crate::services::call::dispatch::own_data;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::session::RunnerContext;

/// As much of a session's id as its branch is named by.
const ID_CHARACTERS: usize = 12;

/// A worktree that can be made, or has been.
pub(crate) struct SessionWorktree {
    git: Git,
    /// The worktree itself.
    path: PathBuf,
    /// Where the session works in it, from there.
    prefix: PathBuf,
    /// The directory the session was to be created for.
    repository: String,
    branch: String,
    /// The commit of a new branch; an existing one is where it is.
    base: Option<String>,
}

impl SessionWorktree {
    /// Looks whether there can be one; nothing is made.
    pub(crate) async fn plan(
        shared: &Arc<RunnerContext>,
        session_id: &str,
        cwd: Option<&str>,
        config: &WorktreeConfig,
    ) -> Result<SessionWorktree, CodedError> {
        let cwd =
            cwd.ok_or_else(|| CodedError::invalid("worktree: Name a directory of the repository as cwd"))?;
        let planned = Self::plan_in(shared, session_id, cwd, config).await;
        planned.map_err(in_worktree)
    }

    async fn plan_in(
        shared: &Arc<RunnerContext>,
        session_id: &str,
        cwd: &str,
        config: &WorktreeConfig,
    ) -> ServiceResult<SessionWorktree> {
        let (root, own_data) = own_data(shared, Path::new(cwd)).await?;
        let workspace_roots = &shared.config.services.workspace_roots;
        let directory = GitDirectory { root: &root, workspace_roots, own_data };
        let git = Git::open(&directory, &Cancellation::default()).await?;
        let no_repository = || ServiceError::invalid(format!("'{cwd}' is not in a git repository"));
        let common = one_line(&git, &["rev-parse", "--path-format=absolute", "--git-common-dir"]).await?;
        let common = PathBuf::from(common.ok_or_else(no_repository)?);
        let prefix = one_line(&git, &["rev-parse", "--show-prefix"]).await?.unwrap_or_default();
        let branch = match &config.branch {
            Some(branch) => branch.clone(),
            None => format!("qd/{}", session_id.chars().take(ID_CHARACTERS).collect::<String>()),
        };
        let path = worktree_path(&common, &branch).ok_or_else(no_repository)?;
        let base = starting_commit(&git, &branch, config.base.as_deref()).await?;
        if path.symlink_metadata().is_ok() {
            let path = path.display();
            refuse!(AlreadyExists, "'{path}' is there already; name another branch");
        }
        let (prefix, repository) = (PathBuf::from(prefix), cwd.to_owned());
        Ok(SessionWorktree { git, path, prefix, repository, branch, base })
    }

    /// Makes it. Of one that cannot be made nothing is left.
    pub(crate) async fn make(&self) -> Result<(), CodedError> {
        let path = self.path.to_string_lossy();
        let mut arguments = vec!["worktree", "add"];
        match &self.base {
            Some(base) => arguments.extend(["-b", &self.branch, "--", &path, base]),
            None => arguments.extend(["--", &path, &self.branch]),
        }
        let made = match self.git.output(&arguments, &[]).await {
            Ok(output) => output.check(),
            Err(error) => Err(error),
        };
        if let Err(error) = made {
            self.undo().await;
            return Err(in_worktree(error));
        }
        Ok(())
    }

    /// Takes it away again, with its branch if that was made with it.
    pub(crate) async fn undo(&self) {
        let path = self.path.to_string_lossy();
        let is_there = self.path.symlink_metadata().is_ok();
        if is_there {
            self.try_to(&["worktree", "remove", "--force", "--", &path]).await;
        }
        self.try_to(&["worktree", "prune"]).await;
        if self.base.is_some() {
            self.try_to(&["branch", "-D", "--quiet", "--", &self.branch]).await;
        }
        // Worktrees of others may be in it.
        if let Some(parent) = self.path.parent()
            && let Err(error) = std::fs::remove_dir(parent)
        {
            tracing::debug!(%error, "the directory of worktrees stays");
        }
    }

    async fn try_to(&self, arguments: &[&str]) {
        match self.git.output(arguments, &[]).await {
            Ok(output) if output.code == 0 => {}
            Ok(output) => {
                tracing::debug!(?arguments, complaint = output.complaint, "git left something behind")
            }
            Err(error) => tracing::warn!(?arguments, %error, "git left something behind"),
        }
    }

    /// Where the session works: the same place as in the repository, if there is such a one in the worktree.
    pub(crate) fn cwd(&self) -> String {
        let same_place = self.path.join(&self.prefix);
        let cwd = if same_place.is_dir() { same_place } else { self.path.clone() };
        cwd.to_string_lossy().trim_end_matches('/').to_owned()
    }

    pub(crate) fn state(&self) -> WorktreeState {
        WorktreeState { repository: self.repository.clone(), branch: self.branch.clone() }
    }
}

/// The same error, with what it is about.
fn in_worktree(error: ServiceError) -> CodedError {
    CodedError::from(error).reworded(|error| format!("worktree: {error}"))
}

/// Where a new branch begins; `None` for a branch that is there and free.
async fn starting_commit(git: &Git, branch: &str, base: Option<&str>) -> ServiceResult<Option<String>> {
    revision(branch)?;
    let checked = git.output(&["check-ref-format", "--branch", branch], &[]).await?;
    if checked.code != 0 {
        refuse!(InvalidRequest, "'{branch}' is not the name of a branch");
    }
    let reference = format!("refs/heads/{branch}");
    let known =
        git.output(&["rev-parse", "--verify", "--quiet", "--end-of-options", &reference], &[]).await?;
    if known.code != 0 {
        let none_yet =
            |_| ServiceError::coded(ErrorCode::Conflict, "the repository has no commit yet; make one first");
        return match base {
            Some(base) => commit(git, base).await.map(Some),
            None => commit(git, "HEAD").await.map(Some).map_err(none_yet),
        };
    }
    if base.is_some() {
        return Err(ServiceError::coded(
            ErrorCode::AlreadyExists,
            format!("branch '{branch}' is there already, so it cannot begin at 'base'; name another"),
        ));
    }
    let worktrees = worktree::all(git).await?.worktrees;
    if let Some(other) = worktrees.iter().find(|other| other.branch.as_deref() == Some(branch)) {
        let other = &other.path;
        refuse!(Conflict, "branch '{branch}' is checked out at '{other}'; name another");
    }
    Ok(None)
}

/// Beside the repository: `<repository>.worktrees/<branch>`.
fn worktree_path(common: &Path, branch: &str) -> Option<PathBuf> {
    let is_usual = common.file_name().is_some_and(|name| name == ".git");
    let repository = if is_usual { common.parent()? } else { common };
    let mut name = repository.file_name()?.to_owned();
    name.push(".worktrees");
    Some(repository.parent()?.join(name).join(branch.replace('/', "-")))
}

/// What git says on one line, or nothing where it fails.
async fn one_line(git: &Git, arguments: &[&str]) -> ServiceResult<Option<String>> {
    let output = git.output(arguments, &[]).await?;
    let text = String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned();
    Ok((output.code == 0).then_some(text))
}
