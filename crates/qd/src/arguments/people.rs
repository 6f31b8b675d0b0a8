//! The arguments of `qd user`, `qd hosts` and `qd log`.

use clap::{Args, Subcommand};

/// Manage accounts for people, each with a password and a role.
///
/// A viewer can see everything. An operator can also work with sessions, answer questions, and use files and the shell.
/// An owner can also manage people, tokens and machines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd user add ann --role operator             asks for the password, or reads it from a pipe
  qd user role ann viewer
  qd user passwd ann                          sets a new password and signs ann out everywhere
  qd user disable ann")]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Create an account. Asks for the password, or reads it from stdin.
    Add {
        name: String,
        /// Give the person this role
        #[arg(long, default_value = "operator", value_parser = ["viewer", "operator", "owner"])]
        role: String,
    },
    /// List all accounts.
    #[command(visible_alias = "ls")]
    List,
    /// Change the role of a person.
    Role {
        name: String,
        #[arg(value_parser = ["viewer", "operator", "owner"])]
        role: String,
    },
    /// Set a new password and sign the person out everywhere.
    Passwd { name: String },
    /// Block a person and close their connections.
    Disable { name: String },
    /// Unblock a person.
    Enable { name: String },
    /// Delete an account.
    #[command(visible_alias = "rm")]
    Remove { name: String },
}

/// Manage machines that connect with a third-party daemon over the run protocol.
///
/// A machine that connects for the first time waits until you confirm it. A machine added with `qd hosts add` can
/// connect immediately.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd hosts                                    list machines, including those that wait
  qd hosts confirm host-1234 91b2f04cd85c1a7e
  qd hosts add                                print an id and a token for a new machine
  qd hosts remove host-1234")]
pub(crate) struct HostsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<HostsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// List the machines.
    #[command(visible_alias = "ls")]
    List,
    /// Confirm a machine that is waiting, by the fingerprint of its token. Anybody can come under any name, so compare
    /// it on the machine: `printf %s TOKEN | sha256sum` begins with it.
    Confirm {
        host: String,
        /// The fingerprint that `qd hosts` shows
        fingerprint: Option<String>,
    },
    /// Add a machine in advance and print its id and token. The token is shown only once.
    Add {
        /// The id of the machine [default: a new one]
        host: Option<String>,
    },
    /// Remove a machine and disconnect it.
    #[command(visible_alias = "rm")]
    Remove { host: String },
}

/// Show who did what.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    #[command(subcommand)]
    pub(crate) command: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// List commands, service calls, inputs, decisions, logins and changes to people and machines, newest first.
    #[command(after_help = "\
Examples:
  qd log audit -n 20
  qd log audit --session s1 --tool rpc.bash
  qd log audit --who ann --json")]
    Audit {
        /// Show only entries of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// Show only entries by this person or token
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        /// Show only entries of this tool, such as rpc.bash
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,
        /// Show only entries of this kind, such as login or tool.result
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        /// Show at most this many entries
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
}
