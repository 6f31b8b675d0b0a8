//! A worktree made for a session: beside its repository, on a branch of its own, gone without a trace should the session
//! not come to be.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use qd_wire::CodedError;
use qd_wire::ErrorCode;
use qd_wire::command::WorktreeConfig;
use qd_wire::data::WorktreeState;

use super::diff::commit;
use super::program::{Git, GitContext};
use super::repository::Repository;
use super::worktree::WorktreeStart;
use super::worktree_files::{delete, known};
use super::{GitDirectory, OwnData, revision, worktree};
use crate::services::call::dispatch::own_data;
use crate::services::call::{Cancellation, ServiceError, ServiceResult};
use crate::session::RunnerContext;

/// As much of a session's id as its branch is named by.
const ID_CHARACTERS: usize = 12;

/// A worktree that can be made, or has been.
pub(crate) struct SessionWorktree {
    /// Where git is opened again for each step: what it works with then is of that moment.
    root: PathBuf,
    workspace_roots: Vec<PathBuf>,
    own_data: OwnData,
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
        let no_repository = || ServiceError::invalid(format!("'{cwd}' is not in a git repository"));
        let directory = GitDirectory { root: &root, workspace_roots, own_data: own_data.clone() };
        let at = root.clone();
        let is_none = tokio::task::spawn_blocking(move || Repository::find(&at)).await??.is_none();
        if is_none {
            return Err(no_repository());
        }
        let git = Git::open(&directory, &Cancellation::default()).await?;
        let common = git.repository.common.path.clone();
        let prefix = git.repository.prefix.clone();
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
        let (repository, workspace_roots) = (cwd.to_owned(), workspace_roots.clone());
        Ok(SessionWorktree { root, workspace_roots, own_data, path, prefix, repository, branch, base })
    }

    async fn open(&self) -> ServiceResult<Git> {
        let (root, workspace_roots) = (&*self.root, &*self.workspace_roots);
        let directory = GitDirectory { root, workspace_roots, own_data: self.own_data.clone() };
        Git::open(&directory, &Cancellation::default()).await
    }

    /// Makes it. Of one that cannot be made nothing is left.
    pub(crate) async fn make(&self) -> Result<(), CodedError> {
        let made = self.try_make().await;
        if made.is_err() {
            self.remove_parent();
        }
        made.map_err(in_worktree)
    }

    async fn try_make(&self) -> ServiceResult<()> {
        let git = self.open().await?;
        let (start, commit) = match &self.base {
            Some(base) => (WorktreeStart::NewBranch(self.branch.clone()), base.clone()),
            None => {
                let commit = commit(&git, &format!("refs/heads/{}", self.branch)).await?;
                (WorktreeStart::Branch(self.branch.clone()), commit)
            }
        };
        worktree::make(&git, &self.path, start, &commit).await
    }

    /// Takes it away again, with its branch if that was made with it.
    pub(crate) async fn undo(&self) {
        if let Err(error) = self.try_undo().await {
            tracing::warn!(%error, "the worktree of a session that did not come to be is left behind");
        }
        self.remove_parent();
    }

    async fn try_undo(&self) -> ServiceResult<()> {
        let git = self.open().await?;
        let known = known(&git)?;
        if let Some(known) = known.iter().find(|known| known.path == self.path) {
            delete(&git, known).await?;
        }
        if let Some(base) = &self.base {
            worktree::remove_branch(&git, &self.branch, base).await;
        }
        Ok(())
    }

    fn remove_parent(&self) {
        // Worktrees of others may be in it.
        if let Some(parent) = self.path.parent()
            && let Err(error) = std::fs::remove_dir(parent)
        {
            tracing::debug!(%error, "the directory of worktrees stays");
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
    let checked = git.output(&["check-ref-format", "--branch", branch], &GitContext::default()).await?;
    if checked.code != 0 {
        refuse!(InvalidRequest, "'{branch}' is not the name of a branch");
    }
    let reference = format!("refs/heads/{branch}");
    let known = git
        .output(&["rev-parse", "--verify", "--quiet", "--end-of-options", &reference], &GitContext::default())
        .await?;
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
    let worktrees = worktree::all(git)?.worktrees;
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
