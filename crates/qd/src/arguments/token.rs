//! The arguments of `qd token`.

use clap::{Args, Subcommand};

/// Let others use the server, each with a token of their own.
///
/// A token has a name. Clients of the pi-server protocol are told apart by it: each has its own identities of commands
/// and its own rate limits. A token opens everything the owner's does, except the making of tokens and runners; take it
/// back with `qd token revoke`, which also closes what it has open.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd token add editor                         prints the token, this once
  qd token list                               who may, since when, last used
  qd token revoke editor                      no longer; its connections end")]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it; it is shown this once.
    Add(TokenName),
    /// List the tokens: names, age, last use.
    #[command(visible_alias = "ls")]
    List,
    /// Take a token back; its connections are closed.
    #[command(visible_alias = "rm")]
    Revoke(TokenName),
}

#[derive(Debug, Args)]
pub(crate) struct TokenName {
    /// 1 to 64 letters, digits, '.', '_' or '-'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
