//! `git.log`: the commits, newest first.

use qd_wire::service::{GitCommit, GitLogData, GitLogParams};
use serde_json::json;

use super::program::{Git, GitContext};
use super::relative;
use crate::services::call::{CallOutput, CallResult};

/// Commits of a page without a limit, and at most.
const COMMITS: u64 = 50;
const COMMITS_MAX: u64 = 1000;

/// The fields of a commit, each ended by NUL: id, parents, author, email, time, subject.
const FORMAT: &str = "--format=tformat:%H%x00%P%x00%an%x00%ae%x00%ct%x00%s";
const FIELDS: usize = 6;

pub(super) async fn log(git: &Git, params: &GitLogParams) -> CallResult {
    let limit = params.limit.unwrap_or(COMMITS).clamp(1, COMMITS_MAX);
    let offset = params.offset.unwrap_or(0);
    let path = params.path.as_deref().map(relative).transpose()?;
    let paths = path.map(|path| git.pathspecs(path)).unwrap_or_default();
    let head = git.output(&["rev-parse", "--verify", "--quiet", "HEAD"], &GitContext::default()).await?;
    let mut data = GitLogData::default();
    // A repository without commits has no log, which is no error.
    if head.code == 0 {
        // One more than wanted tells whether there is a next page.
        let (skip, count) = (format!("--skip={offset}"), format!("--max-count={}", limit + 1));
        let mut arguments =
            vec!["log", "-z", "--no-color", "--no-show-signature", FORMAT, &skip, &count, "HEAD", "--"];
        arguments.extend(paths.iter().map(String::as_str));
        let raw = git.output(&arguments, &GitContext::default()).await?.check()?;
        data.commits = parse(&String::from_utf8_lossy(&raw));
    }
    if data.commits.len() as u64 > limit {
        data.commits.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        data.truncated = true;
        data.next_offset = Some(offset + limit);
    }
    CallOutput::new(data, |data| json!({ "count": data.commits.len(), "truncated": data.truncated }))
}

fn parse(text: &str) -> Vec<GitCommit> {
    let fields: Vec<&str> = text.split('\0').collect();
    let commits = fields.chunks_exact(FIELDS).filter_map(|fields| match fields {
        [id, parents, author, email, time, subject] => Some(GitCommit {
            id: (*id).to_owned(),
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            author: (*author).to_owned(),
            email: (*email).to_owned(),
            time: time.parse::<i64>().unwrap_or(0).saturating_mul(1000),
            subject: (*subject).to_owned(),
        }),
        _ => None,
    });
    commits.collect()
}
