//! The arguments of `qd fs`, `qd git`, `qd bash`, `qd approvals` and `qd shims`.
//!
//! As in `arguments`, the doc comments are the help texts.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where a service works.
#[derive(Debug, Args, Clone)]
pub(crate) struct ServiceTarget {
    /// Work in the directory of this session (an id or a unique prefix) [default: $QD_SESSION_ID, else the newest]
    #[arg(short, long, value_name = "ID", global = true)]
    pub(crate) session: Option<String>,
    /// Use this absolute directory on a machine instead of a session
    #[arg(long, value_name = "DIR", conflicts_with = "session", global = true)]
    pub(crate) root: Option<String>,
    /// Use --root on the machine with this name, as shown by `qd runner list`
    #[arg(long, value_name = "NAME", requires = "root", global = true)]
    pub(crate) runner: Option<String>,
}

/// Read and change the files of a session on any machine.
///
/// Paths are relative to the session's directory and cannot leave it. Writes by anyone but an owner wait for approval.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd fs ls                                    list the directory of the newest session
  qd fs cat -s s1 src/main.rs
  qd fs write -s s1 notes.txt < notes.txt     write the file completely or not at all
  qd fs get -s s1 report.pdf                  download a file of any size, with progress
  qd fs put -s s1 data.csv data/in.csv
  qd fs search -s s1 'fn main'                search; the other machine needs no search tool
  qd fs ls --root /srv/project --runner desk  list a directory without a session")]
pub(crate) struct FsArguments {
    #[command(flatten)]
    pub(crate) target: ServiceTarget,
    #[command(subcommand)]
    pub(crate) command: FsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// List a directory.
    Ls {
        #[arg(default_value = ".")]
        path: String,
        /// Also list files whose name starts with a dot
        #[arg(short, long)]
        all: bool,
    },
    /// Show a directory tree.
    Tree {
        #[arg(default_value = ".")]
        path: String,
        /// Show this many levels
        #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
        depth: u32,
        /// Also show files whose name starts with a dot
        #[arg(short, long)]
        all: bool,
    },
    /// Print a file.
    Cat { path: String },
    /// Write stdin to a file, completely or not at all.
    Write {
        path: String,
        /// Create missing parent directories
        #[arg(short, long)]
        parents: bool,
        /// Write only if the file currently has this SHA-256 (see `qd fs stat`); '' means it must not exist
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
    },
    /// Show size, time, kind and hash of a file.
    Stat { path: String },
    /// Search for text in files.
    Search {
        query: String,
        #[arg(default_value = ".")]
        path: String,
        /// Treat the query as a regular expression
        #[arg(short = 'E', long)]
        regex: bool,
        /// Search only matching files; `!*.log` excludes; can be repeated
        #[arg(short, long, value_name = "GLOB")]
        glob: Vec<String>,
        /// Show at most this many lines
        #[arg(short = 'n', long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=2000))]
        limit: u64,
    },
    /// Create a directory.
    Mkdir {
        path: String,
        /// Create missing parent directories
        #[arg(short, long)]
        parents: bool,
    },
    /// Rename or move a file or directory.
    Mv {
        from: String,
        to: String,
        /// Replace an existing target
        #[arg(short, long)]
        force: bool,
    },
    /// Copy a file, or a directory with its contents.
    Cp {
        from: String,
        to: String,
        /// Replace an existing target
        #[arg(short, long)]
        force: bool,
    },
    /// Delete a file or directory.
    Rm {
        path: String,
        /// Delete directories with their contents
        #[arg(short, long)]
        recursive: bool,
    },
    /// Download a file of any size.
    Get {
        path: String,
        /// Save it here [default: the same name]
        to: Option<PathBuf>,
    },
    /// Upload a file of any size.
    Put {
        from: PathBuf,
        /// Save it there under this path [default: the same name]
        to: Option<String>,
    },
    /// Print changes to a file or directory until Ctrl-C.
    Watch {
        #[arg(default_value = ".")]
        path: String,
    },
}

/// Use git in the directory of a session on any machine.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd git status -s s1
  qd git diff -s s1                           show unstaged changes
  qd git diff -s s1 --staged src/main.rs
  qd git diff -s s1 --untracked               include new files
  qd git worktrees -s s1")]
pub(crate) struct GitArguments {
    #[command(flatten)]
    pub(crate) target: ServiceTarget,
    #[command(subcommand)]
    pub(crate) command: GitCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GitCommand {
    /// Show the changed files.
    Status,
    /// Show the changes.
    Diff {
        path: Option<String>,
        /// Show staged changes instead of unstaged ones
        #[arg(long)]
        staged: bool,
        /// Include untracked files
        #[arg(long)]
        untracked: bool,
        /// Compare with this commit
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// Show the last commits.
    Log {
        path: Option<String>,
        /// Show at most this many commits
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// List the worktrees of the repository.
    Worktrees,
    /// Create a worktree.
    WorktreeAdd {
        path: String,
        /// Check out this branch
        #[arg(short, long)]
        branch: Option<String>,
        /// Create the branch, from the current commit or from --base
        #[arg(short, long, requires = "branch")]
        create: bool,
        /// Start the branch at this commit
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// Remove a worktree.
    WorktreeRemove {
        path: String,
        /// Remove it even if it has changes
        #[arg(short, long)]
        force: bool,
    },
}

/// Run a shell command in the directory of a session on any machine.
///
/// Streams the output and exits with the command's exit code. Ctrl-C stops the command. For anyone but an owner the
/// command waits for approval.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd bash -s s1 'make test'
  qd bash -s s1 --timeout 60 ./slow.sh")]
pub(crate) struct BashArguments {
    #[command(flatten)]
    pub(crate) target: ServiceTarget,
    /// Stop the command after this many seconds [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: Option<u64>,
    /// The command; options of `qd` go before it
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

/// List the open questions of all sessions.
#[derive(Debug, Args)]
#[command(after_help = "Answer with `qd approve ID [REQUEST]` or `qd deny ID [REQUEST]`.")]
pub(crate) struct ApprovalsArguments {
    /// Show the whole request instead of its first line
    #[arg(short, long)]
    pub(crate) full: bool,
}

/// Install wrapper scripts, so that typing `codex` starts a run you can watch.
///
/// Creates a script for each agent found in PATH. If their directory comes first in PATH, typing the name of an agent
/// starts it with `qd run --`. When no server is running, the agent starts as usual.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd shims install                            wrap every agent found in PATH
  qd shims install codex claude
  qd shims remove")]
pub(crate) struct ShimsArguments {
    /// Keep the scripts in this directory [default: shims in the data directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) directory: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: ShimsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShimsCommand {
    /// Write the scripts.
    Install {
        /// The agents to wrap [default: all that are in PATH]
        tools: Vec<String>,
    },
    /// List the scripts and what they start.
    List,
    /// Remove the scripts.
    Remove,
}
