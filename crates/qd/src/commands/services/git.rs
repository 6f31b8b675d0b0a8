//! `qd git`.

use qd_wire::service::{GitDiffData, GitLogData, GitStatusData, GitWorktreesData};
use serde_json::{Value, json};

use super::client::ServiceClient;
use crate::arguments::{GitArguments, GitCommand};
use crate::clock;
use crate::error::Result;
use crate::output::{Output, age, harmless};
use crate::settings::Settings;

/// Letters of a commit's name that are shown.
const COMMIT_LETTERS: usize = 10;

/// Does what the arguments say.
pub(crate) async fn run(settings: &Settings, output: &Output, arguments: GitArguments) -> Result<()> {
    let client = ServiceClient::open(settings, output, &arguments.target).await?;
    match arguments.command {
        GitCommand::Status => {
            let status: GitStatusData = client.call("git.status", json!({})).await?;
            output.show(&status, |status| harmless(&status.stdout))
        }
        GitCommand::Diff { path, staged, untracked, base } => {
            let parameters = json!({"path": path, "staged": staged, "untracked": untracked, "base": base});
            diff(&client, output, parameters).await
        }
        GitCommand::Log { path, limit } => {
            let log: GitLogData = client.call("git.log", json!({"path": path, "limit": limit})).await?;
            let now = clock::now_ms();
            output.show(&log, |log| {
                let line = |commit: &qd_wire::service::GitCommit| {
                    let id: String = commit.id.chars().take(COMMIT_LETTERS).collect();
                    let (who, what) = (harmless(&commit.author), harmless(&commit.subject));
                    format!("{id}  {:>4}  {who}: {what}\n", age(now, commit.time))
                };
                log.commits.iter().map(line).collect()
            })
        }
        GitCommand::Worktrees => worktrees(&client, output, "git.worktrees", json!({})).await,
        GitCommand::WorktreeAdd { path, branch, create, base } => {
            let parameters = json!({"path": path, "branch": branch, "create_branch": create, "base": base});
            worktrees(&client, output, "git.worktree_add", parameters).await
        }
        GitCommand::WorktreeRemove { path, force } => {
            worktrees(&client, output, "git.worktree_remove", json!({"path": path, "force": force})).await
        }
    }
}

/// All pages of a diff.
async fn diff(client: &ServiceClient, output: &Output, parameters: Value) -> Result<()> {
    let mut offset = Some(0);
    while let Some(from) = offset {
        // One answer is bounded, so a large diff comes as several.
        let mut page = parameters.clone();
        page["offset"] = json!(from);
        let page: GitDiffData = client.call("git.diff", page).await?;
        offset = page.next_offset;
        output.show(&page, |page| harmless(&page.stdout))?;
    }
    Ok(())
}

async fn worktrees(client: &ServiceClient, output: &Output, cmd: &str, parameters: Value) -> Result<()> {
    let data: GitWorktreesData = client.call(cmd, parameters).await?;
    output.show(&data, |data| {
        let line = |tree: &qd_wire::service::GitWorktree| {
            let branch = tree.branch.as_deref().unwrap_or("(no branch)");
            format!("{}  {}\n", harmless(&tree.path), harmless(branch))
        };
        data.worktrees.iter().map(line).collect()
    })
}
