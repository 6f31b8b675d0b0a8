//! The `files` and `terminal` channels of `/ws/mux`. Field names are those their clients know; the work is done by
//! the canonical commands.

use crate::derive::wire;
use crate::error::ErrorCode;
use crate::service::FsTreeNode;

/// Where a frame of these channels is to be done: a session, or a directory on a runner.
#[wire(Default, Eq)]
#[serde(default)]
pub struct ChannelScope {
    pub workspace_path: Option<String>,
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
}

/// What a client sends on `files`. Contents are base64.
#[wire]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FilesCommand {
    Tree {
        path: String,
        depth: Option<u32>,
        include_hidden: Option<bool>,
        offset: Option<u64>,
        limit: Option<u64>,
    },
    Read {
        path: String,
        offset: Option<u64>,
        length: Option<u64>,
    },
    Write {
        path: String,
        content: String,
        create_parents: Option<bool>,
        expected_hash: Option<String>,
    },
    List {
        path: String,
        include_hidden: Option<bool>,
    },
    Stat {
        path: String,
    },
    Delete {
        path: String,
        recursive: Option<bool>,
    },
    CreateDirectory {
        path: String,
        create_parents: Option<bool>,
    },
    Rename {
        from: String,
        to: String,
        overwrite: Option<bool>,
    },
    Copy {
        from: String,
        to: String,
        overwrite: Option<bool>,
    },
    Move {
        from: String,
        to: String,
        overwrite: Option<bool>,
    },
    CopyToWorkspace {
        source_workspace_path: String,
        source_path: String,
        target_workspace_path: String,
        target_path: String,
    },
    WatchFiles {},
    UnwatchFiles {},
}

/// What the hub sends on `files`.
#[wire]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FilesEvent {
    TreeResult {
        path: String,
        entries: Vec<FsTreeNode>,
        truncated: bool,
        stop_reason: Option<String>,
        visited_nodes: u64,
        elapsed_ms: u64,
        next_offset: Option<u64>,
        total_entries: u64,
    },
    ReadResult {
        path: String,
        content: String,
        size: u64,
        truncated: bool,
        next_offset: Option<u64>,
        hash: Option<String>,
    },
    WriteResult {
        path: String,
        success: bool,
        hash: String,
    },
    ListResult {
        path: String,
        entries: Vec<DirEntry>,
        truncated: bool,
    },
    StatResult {
        path: String,
        stat: FileStat,
    },
    DeleteResult {
        path: String,
        success: bool,
    },
    CreateDirectoryResult {
        path: String,
        success: bool,
    },
    RenameResult {
        from: String,
        to: String,
        success: bool,
    },
    CopyResult {
        from: String,
        to: String,
        success: bool,
    },
    MoveResult {
        from: String,
        to: String,
        success: bool,
    },
    CopyToWorkspaceResult {
        source_workspace_path: String,
        target_workspace_path: String,
        files_copied: u64,
        success: bool,
    },
    WatchFilesResult {
        workspace_path: String,
        success: bool,
    },
    UnwatchFilesResult {
        workspace_path: String,
        success: bool,
    },
    FileChanged {
        /// `file_created`, `file_modified`, `file_deleted`, `dir_created`, `dir_deleted`; `overflow` for more than could
        /// be told.
        event_type: String,
        path: String,
        /// `file` or `directory`.
        entry_type: String,
        workspace_path: String,
    },
    Error {
        error: String,
        code: Option<ErrorCode>,
    },
}

#[wire(Default, Eq)]
pub struct DirEntry {
    pub name: String,
    pub is_dir: bool,
    pub is_symlink: bool,
    pub size: u64,
    /// Unix milliseconds.
    pub modified_at: i64,
}

#[wire(Default, Eq)]
pub struct FileStat {
    pub exists: bool,
    pub is_file: bool,
    pub is_dir: bool,
    pub is_symlink: bool,
    pub size: u64,
    pub modified_at: i64,
    pub created_at: Option<i64>,
    pub mode: u32,
}

/// What a client sends on `terminal`.
#[wire(Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalCommand {
    /// A terminal that is there is joined: its screen comes first. A run's `session_id` is a terminal too.
    Open {
        terminal_id: Option<String>,
        cols: u16,
        rows: u16,
    },
    Input {
        terminal_id: String,
        data: String,
    },
    Resize {
        terminal_id: String,
        cols: u16,
        rows: u16,
    },
    /// Ends the terminal for everybody.
    Close {
        terminal_id: String,
    },
    /// Leaves it to the others.
    Leave {
        terminal_id: String,
    },
}

/// What the hub sends on `terminal`.
#[wire(Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TerminalEvent {
    Opened {
        terminal_id: String,
        cols: u16,
        rows: u16,
        /// It was there before.
        joined: bool,
    },
    Output {
        terminal_id: String,
        data_base64: String,
        /// Clear everything first: what follows is the whole screen.
        reset: Option<bool>,
    },
    Resized {
        terminal_id: String,
        cols: u16,
        rows: u16,
    },
    Exit {
        terminal_id: String,
        exit_code: i32,
        signal: Option<i32>,
    },
    Error {
        terminal_id: Option<String>,
        error: String,
        code: Option<ErrorCode>,
    },
}
