//! The arguments of `qd token`.

use clap::{Args, Subcommand};

/// Create and revoke access tokens for programs.
///
/// Each token has a name and counts as a separate user: command ids and rate limits are kept per token. Its scopes limit
/// what it can do: view, operate (sessions), approve (answer questions), files (change files), shell, manage (people,
/// tokens, machines). Revoking a token also closes its connections.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd token add editor                         print a new token; it is shown only once
  qd token add wall --scope view --days 30    read-only, valid for 30 days
  qd token list                               list tokens with age and last use
  qd token revoke editor                      revoke it and close its connections")]
pub(crate) struct TokenArguments {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it. It is shown only once.
    Add(NewToken),
    /// List the tokens with age and last use.
    #[command(visible_alias = "ls")]
    List,
    /// Revoke a token and close its connections.
    #[command(visible_alias = "rm")]
    Revoke(TokenName),
}

#[derive(Debug, Args)]
pub(crate) struct NewToken {
    #[command(flatten)]
    pub(crate) name: TokenName,
    /// Grant this scope; can be repeated [default: all of your own scopes except manage]
    #[arg(long, value_name = "SCOPE", value_parser = ["view", "operate", "approve", "files", "shell", "manage"])]
    pub(crate) scope: Vec<String>,
    /// Let the token expire after this many days [default: never]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct TokenName {
    /// The name of the token: 1 to 64 letters, digits, '.', '_' or '-'
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}
