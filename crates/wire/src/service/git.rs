//! What the git services answer.

use crate::derive::wire;

/// Answer of `git.status`.
#[wire(Default, Eq)]
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

#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
pub struct GitDiffData {
    /// A page of the diff, cut at the end of a line.
    pub stdout: String,
    pub truncated: bool,
    pub next_offset: Option<u64>,
    pub total_bytes: u64,
    /// Of the whole diff.
    pub files: Vec<GitDiffFile>,
}

#[wire(Default, Eq)]
pub struct GitDiffFile {
    pub path: String,
    pub from: Option<String>,
    /// Absent for binary files.
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// Answer of `git.log`.
#[wire(Default, Eq)]
pub struct GitLogData {
    pub commits: Vec<GitCommit>,
    pub truncated: bool,
    pub next_offset: Option<u64>,
}

#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
pub struct GitWorktreesData {
    pub worktrees: Vec<GitWorktree>,
}

#[wire(Default, Eq)]
pub struct GitWorktree {
    /// Absolute.
    pub path: String,
    pub branch: Option<String>,
    pub head: Option<String>,
    pub locked: bool,
    pub is_main: bool,
}
