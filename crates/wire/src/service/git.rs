//! What the git services answer.

use crate::derive::{JsonSchema, TS};
use serde::{Deserialize, Serialize};

/// Answer of `git.status`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitStatusData {
    pub branch: Option<String>,
    pub head: Option<String>,
    pub upstream: Option<String>,
    pub ahead: Option<u64>,
    pub behind: Option<u64>,
    pub files: Vec<GitFile>,
    /// `git status --porcelain=v1 -b`, as the run document has it.
    pub stdout: String,
    pub truncated: bool,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitFile {
    pub path: String,
    /// Where a renamed file was.
    pub from: Option<String>,
    /// One letter of git's: what the index has against the last commit; `.` for nothing.
    pub staged: String,
    /// The same for the directory against the index; `?` for a file git does not know.
    pub unstaged: String,
    pub conflicted: bool,
}

/// Answer of `git.diff`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitDiffData {
    /// A page of the diff, cut at the end of a line.
    pub stdout: String,
    pub truncated: bool,
    pub next_offset: Option<u64>,
    pub total_bytes: u64,
    /// Of the whole diff.
    pub files: Vec<GitDiffFile>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitDiffFile {
    pub path: String,
    pub from: Option<String>,
    /// Absent for binary files.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// Answer of `git.log`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitLogData {
    pub commits: Vec<GitCommit>,
    pub truncated: bool,
    pub next_offset: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct GitCommit {
    pub id: String,
    pub parents: Vec<String>,
    pub author: String,
    pub email: String,
    /// Unix milliseconds.
    pub time: i64,
    pub subject: String,
}

/// Answer of `git.worktrees`, and of adding and removing one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct GitWorktreesData {
    pub worktrees: Vec<GitWorktree>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct GitWorktree {
    /// Absolute.
    pub path: String,
    pub branch: Option<String>,
    pub head: Option<String>,
    pub locked: bool,
    pub is_main: bool,
}
