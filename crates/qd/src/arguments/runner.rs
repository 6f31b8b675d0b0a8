//! The arguments of `qd runner`.

use clap::{Args, Subcommand};

use crate::settings::RunnerFlags;

/// Let other machines run sessions, and look after them.
///
/// A runner is the part that owns the agents of one machine. `qd up` has one inside; every other machine joins the hub
/// once with a code, and then runs `qd runner start`. It dials out to the hub, so it may stand behind a router. When
/// the hub is away its sessions go on, and `qd` on that machine talks to them through a socket.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner invite                            where the hub runs: prints the command for the other machine
  qd runner join https://10.0.0.5:7433        on the other machine: asks for the code, then runs
  qd runner start                             on the other machine, from the second time on
  qd runner list                              who is there, and how busy
  qd runner revoke desk                       cut off the machine called desk, at once")]
pub(crate) struct RunnerArguments {
    #[command(subcommand)]
    pub(crate) command: RunnerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum RunnerCommand {
    Invite(InviteArguments),
    Join(Box<JoinArguments>),
    Start(Box<StartArguments>),
    /// List the machines the hub knows: how they are, what they can run, how busy they are.
    #[command(visible_alias = "ls")]
    List,
    /// Look at the runner of this machine: whether the hub hears it, what waits for the hub, what runs.
    Status,
    /// Give a runner a new key; the old one ends when the new one has been used.
    Rotate(RunnerName),
    Revoke(RevokeArguments),
}

/// Make a one-time code that lets another machine join.
///
/// Prints the command to type there. The code works once, for a few minutes; with TLS it carries the fingerprint of
/// the hub's certificate, so that the other machine knows the right hub.
#[derive(Debug, Args)]
pub(crate) struct InviteArguments {
    /// The address of the hub as the other machine reaches it [default: worked out]
    #[arg(long, value_name = "URL")]
    pub(crate) at: Option<String>,
}

/// Join a hub: this machine runs sessions for it from now on.
///
/// Makes a key, trades the code for a place at the hub, and starts the runner. The key stays in the data directory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner join https://10.0.0.5:7433
  qd runner join https://deck.example --name desk --no-start < code.txt
  qd runner join https://10.0.0.5:7433 --force --code CODE     leave the hub of before, join this one")]
pub(crate) struct JoinArguments {
    /// The address of the hub
    #[arg(value_name = "URL")]
    pub(crate) hub: String,
    /// The code that `qd runner invite` printed [env: QD_RUNNER_CODE] [default: read from stdin]
    #[arg(long, value_name = "CODE", allow_hyphen_values = true)]
    pub(crate) code: Option<String>,
    /// The name of this machine in lists [default: the one it had, else its hostname]
    #[arg(long, value_name = "RUNNER_ID")]
    pub(crate) name: Option<String>,
    /// Only join; start later with `qd runner start`
    #[arg(long)]
    pub(crate) no_start: bool,
    /// Speak with a hub on another machine without encryption: everybody on the way can read and change everything
    #[arg(long)]
    pub(crate) allow_plain: bool,
    /// Replace the membership this machine has already; a hub that knows the machine keeps its sessions
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) flags: RunnerFlags,
}

/// Run the runner of this machine, for the hub it has joined.
///
/// It needs no hub to start: sessions go on without one, and everything is delivered when the hub is back. Ctrl-C or
/// SIGTERM stops it cleanly; its sessions come back with the next start.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd runner start
  qd runner start --protocol run --server https://relay.example --host-id desk --host-token-file ~/token")]
pub(crate) struct StartArguments {
    /// What to speak: `hub` with the hub it has joined, `run` with a server that somebody else wrote for the run
    /// protocol
    #[arg(long, value_enum, value_name = "PROTOCOL", default_value_t = Protocol::Hub)]
    pub(crate) protocol: Protocol,
    /// With --protocol run: the address of the server
    #[arg(long, value_name = "URL", required_if_eq("protocol", "run"))]
    pub(crate) server: Option<String>,
    /// With --protocol run: the name of this machine there [default: its hostname]
    #[arg(long, value_name = "HOST_ID")]
    pub(crate) host_id: Option<String>,
    /// With --protocol run: the file with this machine's token; made, with a new token in it, if there is none
    #[arg(long, value_name = "FILE", required_if_eq("protocol", "run"))]
    pub(crate) host_token_file: Option<std::path::PathBuf>,
    /// With --protocol run: speak with a server on another machine without encryption
    #[arg(long)]
    pub(crate) allow_plain: bool,
    /// When ready, print exactly one JSON line with runner_id, socket, pid and url on stdout; only warnings go to stderr
    #[arg(long)]
    pub(crate) ready_json: bool,
    #[command(flatten)]
    pub(crate) flags: RunnerFlags,
}

/// What a runner speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Hub,
    Run,
}

#[derive(Debug, Args)]
pub(crate) struct RunnerName {
    /// The runner, or a unique beginning of its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
}

/// Cut off a runner, at once; only a new code lets it back in. Its conversations stay readable.
#[derive(Debug, Args)]
pub(crate) struct RevokeArguments {
    /// The runner, or a unique beginning of its name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}
