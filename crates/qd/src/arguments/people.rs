//! The arguments of `qd user`, `qd hosts` and `qd log`.

use clap::{Args, Subcommand};

/// People who may use the server, with a password each.
///
/// A viewer sees everything; an operator also works with sessions, answers questions, uses files and shell; an owner
/// also manages people, tokens and machines.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd user add ann --role operator             asks for the password; or pipe it in
  qd user role ann viewer
  qd user passwd ann                          ends all of ann's logins
  qd user disable ann")]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    pub(crate) command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Make an account. The password is asked for, or read from stdin.
    Add {
        name: String,
        #[arg(long, default_value = "operator", value_parser = ["viewer", "operator", "owner"])]
        role: String,
    },
    /// List the accounts.
    #[command(visible_alias = "ls")]
    List,
    /// Change what a person may do.
    Role {
        name: String,
        #[arg(value_parser = ["viewer", "operator", "owner"])]
        role: String,
    },
    /// Set a new password; the person's logins end.
    Passwd { name: String },
    /// Keep a person out; what they have open is closed.
    Disable { name: String },
    /// Let a person in again.
    Enable { name: String },
    /// Remove an account.
    #[command(visible_alias = "rm")]
    Remove { name: String },
}

/// Machines that speak the run protocol to this server with a daemon of their own.
///
/// A machine that comes for the first time waits until it is confirmed here; one that was added here is let in at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd hosts                                    which there are, and which wait
  qd hosts confirm host-1234
  qd hosts add                                prints an id and a token for a new one
  qd hosts remove host-1234")]
pub(crate) struct HostsArguments {
    #[command(subcommand)]
    pub(crate) command: Option<HostsCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HostsCommand {
    /// List them.
    #[command(visible_alias = "ls")]
    List,
    /// Let a machine in that has come and waits.
    Confirm { host: String },
    /// Let a machine in that has not come yet: prints its id and its token, this once.
    Add {
        /// The machine's id [default: a new one]
        host: Option<String>,
    },
    /// Keep a machine out.
    #[command(visible_alias = "rm")]
    Remove { host: String },
}

/// What was done, by whom.
#[derive(Debug, Args)]
pub(crate) struct LogArguments {
    #[command(subcommand)]
    pub(crate) command: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Calls of services, inputs, decisions, logins, changes of people and machines; newest first.
    #[command(after_help = "\
Examples:
  qd log audit -n 20
  qd log audit --session s1 --tool rpc.bash
  qd log audit --who ann --json")]
    Audit {
        /// Of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        /// By this person or token
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
        /// Of this tool, such as rpc.bash
        #[arg(long, value_name = "TOOL")]
        tool: Option<String>,
        /// Of this kind, such as login or tool.result
        #[arg(long, value_name = "KIND")]
        kind: Option<String>,
        #[arg(short = 'n', long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=1000))]
        limit: u64,
    },
}
