//! What the file services answer.

use crate::derive::{JsonSchema, TS};
use serde::{Deserialize, Serialize};

use super::{Encoding, SearchPlace};

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
