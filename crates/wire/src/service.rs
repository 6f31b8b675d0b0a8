//! Services of a runner's machine: files, search, git, shell, facts about the host. Parameters and answers.
//!
//! Paths are relative to the root: the session's directory, or `root` where a command names no session. They use `/`
//! and never leave the root. Hashes are SHA-256 in hex.

mod files;
mod git;
mod host;

use crate::derive::wire;

pub use files::*;
pub use git::*;
pub use host::*;

/// How bytes are written in JSON.
#[wire(words, Default)]
pub enum Encoding {
    /// UTF-8 text; what is not UTF-8 is an error.
    #[default]
    Text,
    Base64,
}

/// Fields that every service command may have.
#[wire(Default, Eq)]
#[serde(default)]
pub struct ServiceScope {
    /// The directory to work in, absolute, for a command that names no session. It must lie within the runner's
    /// `workspace_roots`, or be the directory of a session.
    pub root: Option<String>,
    /// Names the call in the audit trail (`tool.call`, `tool.result`); made up where it is absent.
    pub request_id: Option<String>,
    /// How the call came: `web`, `cli`, `local`, `system`, `agent`; for the audit trail.
    pub actor: Option<String>,
    /// Ask a person even where the sender's role may skip the gate, or where a person has allowed this for the session.
    pub ask: Option<bool>,
    /// With `ask`: do not ask where a person has allowed this for the session. Runners of earlier versions always take
    /// `ask` so.
    pub ask_unless_allowed: Option<bool>,
}

macro_rules! service_params {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident : $kind:ty, )* } )*) => {
        $(
            $(#[$meta])*
            #[wire(Default)]
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
#[wire(Default, Eq)]
pub struct SearchPlace {
    pub path: String,
    pub line: u64,
}

/// Parameters of `cancel`.
#[wire(Default, Eq)]
pub struct CancelParams {
    /// The `id` of a command sent by the same connection that is not answered yet.
    pub target: String,
}
