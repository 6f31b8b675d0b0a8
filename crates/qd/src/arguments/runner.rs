//! The arguments of `qd runner`.
//!
//! As in `arguments`, the doc comments are the help texts.

use clap::{Args, Subcommand};

use crate::settings::RunnerFlags;

/// Connect other machines and manage them.
///
/// A runner manages the agents on one machine. `qd up` contains one. Every other machine joins the hub once with a code
/// and then runs `qd runner start`. Runners dial out to the hub, so they can be behind NAT. Sessions keep running while
/// the hub is unreachable, and `qd` on that machine can reach them through a local socket.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner invite                            on the hub: print the command for the other machine
  qd runner join https://10.0.0.5:7433        on the other machine: ask for the code, join, start
  qd runner start                             on the other machine: start it again later
  qd runner list                              show all machines and their load
  qd runner revoke desk                       disconnect machine desk and revoke its key")]
pub(crate) struct RunnerArguments {
    #[command(subcommand)]
    pub(crate) command: RunnerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    Invite(InviteArguments),
    Join(Box<JoinArguments>),
    Start(Box<StartArguments>),
    /// List all machines with their status, agents and load.
    #[command(visible_alias = "ls")]
    List,
    /// Show the runner on this machine: its connection to the hub, undelivered records and sessions.
    Status,
    /// Replace the key of a runner. The old key stays valid until the new one is first used.
    Rotate(RunnerName),
    Revoke(RevokeArguments),
}

/// Create a one-time code that lets another machine join.
///
/// Prints the command to run there. The code works once and expires after five minutes. With TLS it contains the
/// fingerprint of the hub's certificate, so the other machine can verify the hub.
#[derive(Debug, Args)]
pub(crate) struct InviteArguments {
    /// Give the other machine this address of the hub [default: detected]
    #[arg(long, value_name = "URL")]
    pub(crate) at: Option<String>,
}

/// Join a hub, so that this machine runs sessions for it.
///
/// Creates a key, registers it at the hub with the code, and starts the runner. The key stays in the data directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner join https://10.0.0.5:7433
  qd runner join https://deck.example --name desk --no-start < code.txt
  qd runner join https://10.0.0.5:7433 --force --code CODE     leave the previous hub and join this one")]
pub(crate) struct JoinArguments {
    /// The address of the hub
    #[arg(value_name = "URL")]
    pub(crate) hub: String,
    /// Join with this code, which `qd runner invite` printed [env: QD_RUNNER_CODE] [default: read from stdin]
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,
    /// Show this machine in lists under this name [default: its previous name, else its hostname]
    #[arg(long, value_name = "RUNNER_ID")]
    pub(crate) name: Option<String>,
    /// Join without starting; start later with `qd runner start`
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Connect to a hub on another machine without encryption; anyone on the network can then read and change everything
    #[arg(long)]
    pub(crate) allow_plain: bool,
    /// Replace the hub that this machine has joined before; a hub that already knows the machine keeps its sessions
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) flags: RunnerFlags,
}

/// Start the runner of this machine for the hub it has joined.
///
/// The hub need not be reachable: sessions keep running, and everything is delivered once the hub is back. Ctrl-C or
/// SIGTERM stops the runner cleanly, and its sessions are restored at the next start.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner start
  qd runner start --protocol run --server https://relay.example --host-id desk --host-token-file ~/token")]
pub(crate) struct StartArguments {
    /// Use this protocol: `hub` for the hub this machine has joined, `run` for a third-party server that speaks the
    /// run protocol
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value_t = Protocol::Hub)]
    pub(crate) protocol: Protocol,
    /// With --protocol run: connect to the server at this address
    #[arg(long, value_name = "URL", required_if_eq("protocol", "run"))]
    pub(crate) server: Option<String>,
    /// With --protocol run: use this name for this machine there [default: its hostname]
    #[arg(long, value_name = "HOST_ID")]
    pub(crate) host_id: Option<String>,
    /// With --protocol run: read this machine's token from this file; it is created with a new token if it does not exist
    #[arg(long, value_name = "FILE", required_if_eq("protocol", "run"))]
    pub(crate) host_token_file: Option<std::path::PathBuf>,
    /// With --protocol run: connect to a server on another machine without encryption
    #[arg(long)]
    pub(crate) allow_plain: bool,
    /// Print exactly one JSON line on stdout when ready: runner_id, socket, pid and url. Only warnings go to stderr
    #[arg(long)]
    pub(crate) ready_json: bool,
    #[command(flatten)]
    pub(crate) flags: RunnerFlags,
}

/// The protocol that a runner speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Hub,
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct RunnerName {
    /// The name of the runner, or a unique prefix of it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Disconnect a runner and revoke its key. Its conversations stay readable; it needs a new code to rejoin.
#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// The name of the runner, or a unique prefix of it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
