//! `qd git`.

use qd_wire::service::{GitDiffData, GitLogData, GitStatusData, GitWorktreesData};
use serde_json::{Value, json};

use super::service::{Desk, show};
use crate::arguments::{GitArguments, GitCommand};
use crate::clock;
use crate::error::CliError;
use crate::output::{Output, age, harmless};
use crate::settings::Settings;

/// Letters of a commit's name that are shown.
const COMMIT_LETTERS: usize = 10;

/// Does what the arguments say.
pub(crate) async fn run(
    settings: &Settings,
    output: &Output,
    arguments: GitArguments,
) -> Result<(), CliError> {
    let desk = Desk::open(settings, output, &arguments.place).await?;
    match arguments.command {
        GitCommand::Status => {
            let status: GitStatusData = desk.call("git.status", json!({})).await?;
            show(output, &status, |status| harmless(&status.stdout))
        }
        GitCommand::Diff { path, staged, untracked, base } => {
            diff(&desk, output, json!({"path": path, "staged": staged, "untracked": untracked, "base": base}))
                .await
        }
        GitCommand::Log { path, limit } => {
            let log: GitLogData = desk.call("git.log", json!({"path": path, "limit": limit})).await?;
            let now = clock::now_ms();
            show(output, &log, |log| {
                let line = |commit: &qd_wire::service::GitCommit| {
                    let id: String = commit.id.chars().take(COMMIT_LETTERS).collect();
                    let (who, what) = (harmless(&commit.author), harmless(&commit.subject));
                    format!("{id}  {:>4}  {who}: {what}\n", age(now, commit.time))
                };
                log.commits.iter().map(line).collect()
            })
        }
        GitCommand::Worktrees => worktrees(&desk, output, "git.worktrees", json!({})).await,
        GitCommand::WorktreeAdd { path, branch, create, base } => {
            let parameters = json!({"path": path, "branch": branch, "create_branch": create, "base": base});
            worktrees(&desk, output, "git.worktree_add", parameters).await
        }
        GitCommand::WorktreeRemove { path, force } => {
            worktrees(&desk, output, "git.worktree_remove", json!({"path": path, "force": force})).await
        }
    }
}

/// All pages of a diff.
async fn diff(desk: &Desk, output: &Output, parameters: Value) -> Result<(), CliError> {
    let mut offset = Some(0);
    while let Some(from) = offset {
        let mut page = parameters.clone();
        page["offset"] = json!(from);
        let page: GitDiffData = desk.call("git.diff", page).await?;
        offset = page.next_offset;
        show(output, &page, |page| harmless(&page.stdout))?;
    }
    Ok(())
}

async fn worktrees(desk: &Desk, output: &Output, cmd: &str, parameters: Value) -> Result<(), CliError> {
    let data: GitWorktreesData = desk.call(cmd, parameters).await?;
    show(output, &data, |data| {
        let line = |tree: &qd_wire::service::GitWorktree| {
            let branch = tree.branch.as_deref().unwrap_or("(no branch)");
            format!("{}  {}\n", harmless(&tree.path), harmless(branch))
        };
        data.worktrees.iter().map(line).collect()
    })
}
