//! Services of a runner's machine: files, search, git, shell, facts about the host. Parameters and answers.
//!
//! Paths are relative to the root: the session's directory, or `root` where a command names no session. They use `/`
//! and never leave the root. Hashes are SHA-256 in hex.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ts_rs::TS;

/// How bytes are written in JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// UTF-8 text; what is not UTF-8 is an error.
    #[default]
    Text,
    Base64,
}

/// Fields that every service command may have.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
#[serde(default)]
pub struct ServiceScope {
    /// The directory to work in, absolute, for a command that names no session. It must lie within the runner's
    /// `workspace_roots`, or be the directory of a session.
    pub root: Option<String>,
    /// Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
    pub request_id: Option<String>,
    /// How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
    pub actor: Option<String>,
    /// Ask a person even where the sender's role may skip the gate.
    pub ask: Option<bool>,
}

macro_rules! service_params {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident : $kind:ty, )* } )*) => {
        $(
            $(#[$meta])*
            #[serde_with::skip_serializing_none]
            #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
            #[ts(optional_fields)]
            pub struct $name {
                #[serde(flatten)]
                pub scope: ServiceScope,
                $( $(#[$field_meta])* pub $field: $kind, )*
            }
        )*
    };
}

service_params! {
    FsReadParams {
        path: String,
        /// The first byte; 0 without it.
        offset: Option<u64>,
        /// Bytes at most; without it as many as one answer carries (1 MiB).
        length: Option<u64>,
        encoding: Option<Encoding>,
    }
    /// The whole file is replaced at once, or not at all.
    FsWriteParams {
        path: String,
        content: String,
        encoding: Option<Encoding>,
        create_parents: Option<bool>,
        /// Write only if the file has this hash now; an empty text means that there must be none.
        expected_hash: Option<String>,
    }
    /// One piece of an upload. The file appears with the last piece, whole.
    FsUploadParams {
        /// Made up by the sender, the same for all pieces.
        upload_id: String,
        path: String,
        /// Where this piece begins; must be what has arrived. Repeating a piece that has arrived changes nothing.
        offset: u64,
        /// Base64.
        data: String,
        /// This is the last piece.
        last: Option<bool>,
        create_parents: Option<bool>,
        expected_hash: Option<String>,
        /// Forget what has arrived.
        abort: Option<bool>,
    }
    FsListParams {
        /// `.` without it.
        path: Option<String>,
        include_hidden: Option<bool>,
        /// Entries to skip, in the order of the list.
        offset: Option<u64>,
        /// Entries at most; 500 without it, 5000 at most.
        limit: Option<u64>,
    }
    FsTreeParams {
        path: Option<String>,
        /// 2 without it, 1 to 8.
        depth: Option<u32>,
        include_hidden: Option<bool>,
        offset: Option<u64>,
        /// Entries of the top level at most; 1000 without it, 5000 at most.
        limit: Option<u64>,
    }
    FsStatParams {
        path: String,
        /// Also the hash of the content.
        hash: Option<bool>,
    }
    FsSearchParams {
        /// What to look for: a regular expression if `regex`, else the text itself.
        query: String,
        path: Option<String>,
        regex: Option<bool>,
        /// Without it, capitals count only if the query has some.
        case_sensitive: Option<bool>,
        include_hidden: Option<bool>,
        /// Files whose path matches (`*.rs`); a leading `!` excludes.
        globs: Option<Vec<String>>,
        /// Lines at most; 200 without it, 2000 at most.
        limit: Option<u64>,
        /// Go on after this hit, the `next` of the last page.
        after: Option<SearchPlace>,
    }
    FsCreateDirectoryParams {
        path: String,
        create_parents: Option<bool>,
    }
    /// Rename, move and copy: what is at `to` is an error unless `overwrite`.
    FsMoveParams {
        from: String,
        to: String,
        overwrite: Option<bool>,
        create_parents: Option<bool>,
    }
    FsDeleteParams {
        path: String,
        recursive: Option<bool>,
    }
    /// Stays in flight and says `progress` with a [`FsChanges`] until it is cancelled.
    FsWatchParams {
        path: Option<String>,
        include_hidden: Option<bool>,
    }
    GitStatusParams {}
    GitDiffParams {
        path: Option<String>,
        /// What the index has against the last commit, instead of the directory against the index.
        staged: Option<bool>,
        /// Also files that git does not know yet, as added.
        untracked: Option<bool>,
        /// Against this commit instead of the index.
        base: Option<String>,
        /// Bytes of the diff to skip, the `next_offset` of the last page.
        offset: Option<u64>,
        limit: Option<u64>,
    }
    GitLogParams {
        path: Option<String>,
        /// Commits to skip.
        offset: Option<u64>,
        /// 50 without it, 1000 at most.
        limit: Option<u64>,
    }
    GitWorktreesParams {}
    GitWorktreeAddParams {
        /// Relative to the root, or absolute within the runner's `workspace_roots`.
        path: String,
        branch: Option<String>,
        /// Make the branch, from `base` or from where the root stands.
        create_branch: Option<bool>,
        base: Option<String>,
    }
    GitWorktreeRemoveParams {
        path: String,
        force: Option<bool>,
    }
    /// `bash -lc` in the root. Says `progress` with [`BashOutput`] while it runs.
    HostBashParams {
        command: String,
        /// Killed after this many milliseconds; 10 minutes without it, 24 hours at most.
        timeout_ms: Option<u64>,
        /// What the command reads; nothing without it.
        stdin: Option<String>,
    }
    HostInfoParams {}
    HostDoctorParams {}
    HostCapabilitiesParams {}
    HostLogsParams {
        /// 200 without it, 2000 at most.
        lines: Option<u64>,
        /// 200,000 without it, 2,000,000 at most.
        max_bytes: Option<u64>,
    }
}

/// Where a search goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct SearchPlace {
    pub path: String,
    pub line: u64,
}

/// Parameters of `cancel`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct CancelParams {
    /// The `id` of a command sent by the same connection that is not answered yet.
    pub target: String,
}

/// Answer of `fs.read`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsReadData {
    pub path: String,
    pub content: String,
    pub encoding: Encoding,
    /// Bytes of the whole file.
    pub size: u64,
    pub offset: u64,
    /// Where the next page begins; absent at the end.
    pub next_offset: Option<u64>,
    /// There is more than this answer has.
    pub truncated: bool,
    /// Of the whole file; only when this answer has all of it.
    pub hash: Option<String>,
    /// Unix milliseconds.
    pub modified_at: i64,
}

/// Answer of `fs.write` and of the last piece of `fs.upload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct FsWriteData {
    pub path: String,
    pub bytes_written: u64,
    pub hash: String,
    /// Always false: a file is written whole or not at all.
    pub truncated: bool,
}

/// Answer of `fs.upload`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsUploadData {
    pub upload_id: String,
    /// Bytes that have arrived; the next piece begins here.
    pub received: u64,
    /// With the last piece.
    pub written: Option<FsWriteData>,
}

/// Answer of `fs.list`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsListData {
    pub path: String,
    /// Directories first, then by name.
    pub entries: Vec<FsEntry>,
    pub total: u64,
    pub truncated: bool,
    pub next_offset: Option<u64>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsEntry {
    pub name: String,
    pub is_dir: bool,
    pub is_symlink: bool,
    /// Of regular files.
    pub size_bytes: Option<u64>,
    /// Unix milliseconds.
    pub modified_at: Option<i64>,
}

/// Answer of `fs.tree`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsTreeData {
    pub path: String,
    pub entries: Vec<FsTreeNode>,
    pub truncated: bool,
    /// `max_nodes` or `timeout`, where the tree is not whole because of it.
    pub stop_reason: Option<String>,
    pub visited_nodes: u64,
    pub elapsed_ms: u64,
    pub next_offset: Option<u64>,
    pub total_entries: u64,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsTreeNode {
    pub name: String,
    /// From the root.
    pub path: String,
    /// `file`, `directory`, `symlink` or `other`.
    #[serde(rename = "type")]
    pub kind: String,
    pub size: Option<u64>,
    /// Unix seconds.
    pub modified: Option<i64>,
    #[ts(optional, type = "FsTreeNode[]")]
    pub children: Option<Vec<FsTreeNode>>,
}

/// Answer of `fs.stat`. What is not there is no error.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsStatData {
    pub path: String,
    pub exists: bool,
    pub is_file: bool,
    pub is_dir: bool,
    pub is_symlink: bool,
    pub size: u64,
    /// Unix milliseconds.
    pub modified_at: i64,
    pub created_at: Option<i64>,
    pub mode: u32,
    pub hash: Option<String>,
}

/// Answer of `fs.search`.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsSearchData {
    pub matches: Vec<FsMatch>,
    pub truncated: bool,
    /// Give it as `after` to go on.
    pub next: Option<SearchPlace>,
    pub files_searched: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct FsMatch {
    pub path: String,
    /// From 1.
    pub line: u64,
    /// Of the first hit in the line, in characters from 1.
    pub column: u64,
    /// The line; a long one is cut around the hit, and `…` shows where.
    pub text: String,
}

/// Answer of commands that change files and have nothing else to tell.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct FsDoneData {
    pub path: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    /// Files and directories that were copied or deleted.
    pub count: u64,
}

/// What `fs.watch` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct FsChanges {
    pub changes: Vec<FsChange>,
    /// There was more than could be told: look again.
    pub overflow: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct FsChange {
    /// `created`, `modified` or `deleted`.
    pub change: String,
    pub path: String,
    pub is_dir: bool,
}

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

/// What `host.bash` says while it runs.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct BashOutput {
    /// `stdout` or `stderr`.
    pub stream: String,
    pub text: String,
    /// Where in the stream the text begins, in bytes.
    pub offset: Option<u64>,
    /// Bytes left out here, because they came faster than they could be told; the answer has them as far as it goes.
    pub skipped: Option<u64>,
}

/// Answer of `host.bash`, whatever the exit code: a command that failed has said why.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct BashData {
    pub stdout: String,
    pub stderr: String,
    /// Absent when a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub cancelled: bool,
    /// The beginning of one of the streams is missing.
    pub truncated: bool,
    /// All that the command wrote.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration_ms: u64,
}

/// Answer of `host.info`; `host.doctor` and `host.capabilities` add to it.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct HostInfoData {
    pub host_id: String,
    pub pid: u32,
    pub os: String,
    pub arch: String,
    pub version: String,
    pub hostname: String,
    pub tools: Vec<HostTool>,
    /// Of `host.doctor` and `host.capabilities`.
    pub deps: Option<Vec<HostDependency>>,
    /// Of `host.doctor`.
    #[ts(optional, type = "unknown")]
    pub bin_map: Option<Value>,
    /// Of `host.capabilities`, from here on.
    pub server_base_url: Option<String>,
    pub local_unix_socket: Option<String>,
    pub spool_db_path: Option<String>,
    pub log_path: Option<String>,
    pub supported_rpc: Option<Vec<String>>,
    pub harnesses: Option<Vec<String>>,
    pub workspace_roots: Option<Vec<String>>,
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct HostTool {
    pub tool: String,
    /// Where it is.
    pub bin: Option<String>,
    pub ok: bool,
    pub error: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct HostDependency {
    pub name: String,
    pub ok: bool,
}

/// Answer of `host.logs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct HostLogsData {
    pub path: String,
    pub text: String,
    pub truncated: bool,
}
