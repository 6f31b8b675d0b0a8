//! The arguments of `qd token`.

use clap::{Args, Subcommand};

/// Let others use the server, each with a token of their own.
///
/// A token has a name. Clients of the pi-server protocol are told apart by it: each has its own identities of commands
/// and its own rate limits. A token opens what its scopes say: view, operate (sessions), approve (answers), files (changes),
/// shell, manage (people, tokens, machines). Take it back with `qd token revoke`, which also closes what it has open.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd token add editor                         prints the token, this once
  qd token add wall --scope view --days 30    may only look, for a month
  qd token list                               who may, since when, last used
  qd token revoke editor                      no longer; its connections end")]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it is shown this once.
    Add(NewToken),
    /// List the tokens: names, age, last use.
    #[command(visible_alias = "ls")]
    List,
    /// Take a token back; its connections are closed.
    #[command(visible_alias = "rm")]
    Revoke(TokenName),
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    #[command(flatten)]
    pub(crate) name: TokenName,
    /// What it may do; may be given more than once [default: everything you may, but manage]
    #[arg(long, value_name = "SCOPE", value_parser = ["view", "operate", "approve", "files", "shell", "manage"])]
    pub(crate) scope: Vec<String>,
    /// Good for so many days [default: until it is revoked]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenName {
    /// 1 to 64 letters, digits, '.', '_' or '-'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
