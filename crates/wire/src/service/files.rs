//! What the file services answer.

use super::{Encoding, SearchPlace};
use crate::derive::wire;

/// Answer of `fs.read`.
#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
pub struct FsWriteData {
    pub path: String,
    pub bytes_written: u64,
    pub hash: String,
    /// Always false: a file is written whole or not at all.
    pub truncated: bool,
}

/// Answer of `fs.upload`.
#[wire(Default, Eq)]
pub struct FsUploadData {
    pub upload_id: String,
    /// Bytes that have arrived; the next piece begins here.
    pub received: u64,
    /// With the last piece.
    pub written: Option<FsWriteData>,
}

/// Answer of `fs.list`.
#[wire(Default, Eq)]
pub struct FsListData {
    pub path: String,
    /// Directories first, then by name.
    pub entries: Vec<FsEntry>,
    pub total: u64,
    pub truncated: bool,
    pub next_offset: Option<u64>,
}

#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
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

#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
pub struct FsSearchData {
    pub matches: Vec<FsMatch>,
    pub truncated: bool,
    /// Give it as `after` to go on.
    pub next: Option<SearchPlace>,
    pub files_searched: u64,
}

#[wire(Default, Eq)]
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
#[wire(Default, Eq)]
pub struct FsDoneData {
    pub path: Option<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    /// Files and directories that were copied or deleted.
    pub count: u64,
}

/// What `fs.watch` says.
#[wire(Default, Eq)]
pub struct FsChanges {
    pub changes: Vec<FsChange>,
    /// There was more than could be told: look again.
    pub overflow: bool,
}

#[wire(Default, Eq)]
pub struct FsChange {
    /// `created`, `modified` or `deleted`.
    pub change: String,
    pub path: String,
    pub is_dir: bool,
}
