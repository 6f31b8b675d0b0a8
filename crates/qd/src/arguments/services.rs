//! The arguments of `qd fs`, `qd git`, `qd bash`, `qd approvals` and `qd shims`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Where a service works.
#[derive(Debug, Args, Clone)]
pub(crate) struct ServiceTarget {
    /// The session whose directory is meant, or a unique beginning of its id [default: $QD_SESSION_ID, else the newest]
    #[arg(short, long, value_name = "ID", global = true)]
    pub(crate) session: Option<String>,
    /// A directory on a machine instead, absolute
    #[arg(long, value_name = "DIR", conflicts_with = "session", global = true)]
    pub(crate) root: Option<String>,
    /// The machine of --root, as `qd runner list` names it
    #[arg(long, value_name = "NAME", requires = "root", global = true)]
    pub(crate) runner: Option<String>,
}

/// Files of a session, wherever it runs.
///
/// Paths are relative to the session's directory and cannot leave it. Writes of others than the owner wait until
/// somebody approves them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd fs ls                                    the directory of the newest session
  qd fs cat -s s1 src/main.rs
  qd fs write -s s1 notes.txt < notes.txt     the whole file or nothing
  qd fs get -s s1 report.pdf                  a file of any size, with progress
  qd fs put -s s1 data.csv data/in.csv
  qd fs search -s s1 'fn main'                without rg on the other machine
  qd fs ls --root /srv/project --runner desk  without a session")]
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
        /// Files that begin with a dot too
        #[arg(short, long)]
        all: bool,
    },
    /// Show directories and what is in them.
    Tree {
        #[arg(default_value = ".")]
        path: String,
        #[arg(short, long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
        depth: u32,
        #[arg(short, long)]
        all: bool,
    },
    /// Print a file.
    Cat { path: String },
    /// Write stdin to a file: the whole of it, or nothing.
    Write {
        path: String,
        /// Make the directories it is in
        #[arg(short, long)]
        parents: bool,
        /// Only if the file has this SHA-256 now (`qd fs stat`); '' if there must be none
        #[arg(long, value_name = "HASH")]
        expect: Option<String>,
    },
    /// What is known of a file, with its hash.
    Stat { path: String },
    /// Find lines in files.
    Search {
        query: String,
        #[arg(default_value = ".")]
        path: String,
        /// The query is a regular expression
        #[arg(short = 'E', long)]
        regex: bool,
        /// Only files like this; `!*.log` leaves out; may be given more than once
        #[arg(short, long, value_name = "GLOB")]
        glob: Vec<String>,
        #[arg(short = 'n', long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=2000))]
        limit: u64,
    },
    /// Make a directory.
    Mkdir {
        path: String,
        #[arg(short, long)]
        parents: bool,
    },
    /// Rename or move.
    Mv {
        from: String,
        to: String,
        /// Replace what is there
        #[arg(short, long)]
        force: bool,
    },
    /// Copy, directories with all that is in them.
    Cp {
        from: String,
        to: String,
        #[arg(short, long)]
        force: bool,
    },
    /// Delete.
    Rm {
        path: String,
        /// Directories with all that is in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Fetch a file of any size.
    Get {
        path: String,
        /// Where to [default: the same name here]
        to: Option<PathBuf>,
    },
    /// Send a file of any size.
    Put {
        from: PathBuf,
        /// [default: the same name there]
        to: Option<String>,
    },
    /// Tell of changes until Ctrl-C.
    Watch {
        #[arg(default_value = ".")]
        path: String,
    },
}

/// Git in a session's directory, wherever it runs.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd git status -s s1
  qd git diff -s s1                           changes that are not staged
  qd git diff -s s1 --staged src/main.rs
  qd git diff -s s1 --untracked               with new files
  qd git worktrees -s s1")]
pub(crate) struct GitArguments {
    #[command(flatten)]
    pub(crate) target: ServiceTarget,
    #[command(subcommand)]
    pub(crate) command: GitCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GitCommand {
    /// What has changed.
    Status,
    /// How it has changed.
    Diff {
        path: Option<String>,
        #[arg(long)]
        staged: bool,
        /// Files git does not know yet, too
        #[arg(long)]
        untracked: bool,
        /// Against this commit
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// The last commits.
    Log {
        path: Option<String>,
        #[arg(short = 'n', long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
    /// The working trees of the repository.
    Worktrees,
    /// Make a working tree, for a session of its own.
    WorktreeAdd {
        path: String,
        /// The branch to have there
        #[arg(short, long)]
        branch: Option<String>,
        /// Make the branch, from here or from COMMIT
        #[arg(short, long, requires = "branch")]
        create: bool,
        #[arg(long, value_name = "COMMIT")]
        base: Option<String>,
    },
    /// Remove a working tree.
    WorktreeRemove {
        path: String,
        /// Even with changes in it
        #[arg(short, long)]
        force: bool,
    },
}

/// Run a shell command in a session's directory, wherever it runs.
///
/// What it prints comes as it is printed; the exit code is the command's. Ctrl-C ends it there. For others than the
/// owner it waits until somebody approves it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd bash -s s1 'make test'
  qd bash -s s1 --timeout 60 ./slow.sh")]
pub(crate) struct BashArguments {
    #[command(flatten)]
    pub(crate) target: ServiceTarget,
    /// Seconds after which it is ended [default: 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(crate) timeout: Option<u64>,
    /// The command line; options of `qd` come before it
    #[arg(required = true, value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
}

/// Every question that waits for an answer, in all sessions.
#[derive(Debug, Args)]
#[command(after_help = "Answer with `qd approve ID [REQUEST]` or `qd deny ID [REQUEST]`.")]
pub(crate) struct ApprovalsArguments {
    /// Show all of what is asked for, not only its first line
    #[arg(short, long)]
    pub(crate) full: bool,
}

/// Type `codex`, get a run that can be watched.
///
/// Puts small scripts into a directory, one for each agent found in PATH. With that directory first in PATH, the name of
/// an agent starts it with `qd run --`. Where no server runs, the agent starts as it always did.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd shims install                            for every agent found
  qd shims install codex claude
  qd shims remove")]
pub(crate) struct ShimsArguments {
    /// Where the scripts are [default: shims in the data directory]
    #[arg(long, value_name = "DIR", global = true)]
    pub(crate) directory: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: ShimsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ShimsCommand {
    /// Write the scripts.
    Install {
        /// Which agents [default: all that are in PATH]
        tools: Vec<String>,
    },
    /// Show which there are, and what they start.
    List,
    /// Remove them.
    Remove,
}
