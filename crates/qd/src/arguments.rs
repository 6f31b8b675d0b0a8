//! The command line as clap reads it; every text a person sees in `--help` is here or in the table of settings.

mod mcp;
mod people;
mod pi_server;
mod runner;
mod services;
mod token;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use qd_runner::driver::{DEFAULT, first_try};

use crate::settings::{CommonFlags, PiFlags, RunnerFlags, UpFlags};
pub(crate) use mcp::McpArguments;
pub(crate) use people::{HostsArguments, HostsCommand, LogArguments, LogCommand, UserArguments, UserCommand};
pub(crate) use pi_server::{PiServerArguments, Port};
pub(crate) use runner::{
    InviteArguments, JoinArguments, Protocol, RevokeArguments, RunnerArguments, RunnerCommand, StartArguments,
};
pub(crate) use services::{
    ApprovalsArguments, BashArguments, FsArguments, FsCommand, GitArguments, GitCommand, ServiceTarget,
    ShimsArguments, ShimsCommand,
};
pub(crate) use token::{NewToken, TokenArguments, TokenCommand};

/// The hub waits no longer for a runner.
const WAIT_SECONDS_MAX: u64 = 600;

/// The text after the list of commands.
fn examples() -> String {
    format!(
        "\
Examples:
  qd up                                  start the server on this machine
  {:<37}  a first session; needs no agent, no account, no model
  qd run \"fix the failing test\"          {} in this directory; streams the answer
  qd ls                                  what runs, and what waits for you
  qd attach                              follow the newest session, type to steer it
  qd approve s1                          say yes to the question of session s1
  qd run -- claude                       any program in a terminal, watched from anywhere
  qd fs ls; qd git diff; qd bash ls      files, git and shell of the newest session, wherever it runs
  qd runner invite                       let another machine run sessions too
  qd pi-server                           for programs that speak the pi-server protocol

A unique beginning of a session id is enough everywhere.
Exit codes: 0 done, 1 failed (or refused by the server), 2 wrong usage, 3 no server, or the runner is offline.",
        first_try(),
        DEFAULT.name()
    )
}

/// Control plane for coding agents: start them, watch them, steer them, answer them.
#[derive(Debug, Parser)]
#[command(name = "qd", version, after_help = examples())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Machine-readable output: one JSON value, or one per line where things stream.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The configuration file [env: QD_CONFIG] [default: $XDG_CONFIG_HOME/qd/qd.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// Talk to the runner of this machine through its socket, not to a hub
    #[arg(long, global = true, conflicts_with = "url")]
    pub(crate) local: bool,
    #[command(flatten)]
    pub(crate) common: CommonFlags,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Up(Box<UpArguments>),
    Run(RunArguments),
    Ls(ListArguments),
    Attach(AttachArguments),
    Logs(LogsArguments),
    Send(SendArguments),
    Steer(SteerArguments),
    /// Abort the agent's turn; what it did so far stays.
    Abort(SessionArguments),
    Approve(ApproveArguments),
    Deny(DenyArguments),
    /// Close a session: its agent ends, its conversation stays.
    Stop(SessionArguments),
    /// Open a closed session again, or start its agent anew; the conversation goes on.
    Restart(SessionArguments),
    /// Delete a session and its conversation from the server.
    Rm(SessionArguments),
    Search(SearchArguments),
    Approvals(ApprovalsArguments),
    Fs(FsArguments),
    Git(GitArguments),
    Bash(BashArguments),
    Log(LogArguments),
    Shims(ShimsArguments),
    User(UserArguments),
    /// Print a link that signs one more browser in as you, once.
    LoginLink,
    Hosts(HostsArguments),
    Runner(RunnerArguments),
    Token(TokenArguments),
    Mcp(McpArguments),
    PiServer(Box<PiServerArguments>),
    Doctor(Box<DoctorArguments>),
    Completions(CompletionsArguments),
    /// Holds one agent process; started by the server only.
    #[command(hide = true, disable_help_flag = true)]
    Guard,
}

/// Start the server: hub and runner in one process.
///
/// Prints an address with a one-time login code. Ctrl-C or SIGTERM stops it cleanly; sessions come back with the
/// next start. Only one server can use a data directory.
///
/// On an address that other machines can reach it encrypts with TLS, with a certificate it makes itself when none is
/// named; clients and runners know it by its fingerprint.
///
/// Clients of the pi-server protocol find it at /ws/pi, and with --pi-server-port on a port of their own, at any path;
/// the token goes as `Authorization: Bearer TOKEN` or as `?token=TOKEN`. `qd pi-server` speaks it on stdio.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd up
  qd up --listen 127.0.0.1:8000 --data-dir ~/deck
  qd up --listen 0.0.0.0:7433                 for other machines too, with TLS
  qd up --pi-server-port 3141                 for clients of the pi-server protocol too
  qd up --ready-json --listen 127.0.0.1:0     for scripts: one JSON line with url, token and pid")]
pub(crate) struct UpArguments {
    /// When ready, print exactly one JSON line with url, token and pid (with TLS the fingerprint, with a port of
    /// its own pi_server_url) on stdout;
    /// everything else goes to stderr
    #[arg(long)]
    pub(crate) ready_json: bool,
    /// Listen on an address other machines can reach, without encryption
    #[arg(long)]
    pub(crate) insecure_bind: bool,
    #[command(flatten)]
    pub(crate) flags: UpFlags,
    #[command(flatten)]
    pub(crate) pi: PiFlags,
    #[command(flatten)]
    pub(crate) runner: RunnerFlags,
}

/// Start a session, give it a prompt, stream the answer; or run any program in a terminal that others can watch.
///
/// Ends when the agent is idle again; exit code 1 when the turn failed or was aborted. On a terminal, questions of
/// the agent are asked here; elsewhere the way to answer them is printed. Ctrl-C aborts the turn, a second Ctrl-C
/// leaves the session running.
///
/// With `-- COMMAND` the program runs in a terminal of its own and is shown on this one: it can be watched, typed into,
/// answered and stopped from anywhere. Ctrl-] detaches (twice: is typed), `qd attach` comes back; the exit code is the
/// program's. Input from a pipe is typed into its terminal, so it may be echoed, and lines of more than 4 KiB are refused;
/// `qd bash` has no terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd run -- claude                            any program, watched from anywhere
  qd run --detach -- make test                prints the id and returns
  qd run --harness NAME \"/tools\"              another agent; `qd runner list` shows what there is
  qd run --cwd ~/project --model anthropic/claude-sonnet-4-5 \"explain main.rs\"
  git diff | qd run -                         the prompt from stdin
  qd run --detach \"update the docs\"           prints the session id and returns
  qd run --runner desk --wait 60 \"tidy up\"    on the machine called desk, when it is there")]
pub(crate) struct RunArguments {
    /// Which agent to run; `qd runner list` shows what each machine has
    #[arg(long, value_name = "NAME", default_value = DEFAULT.name())]
    pub(crate) harness: String,
    /// The agent's working directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// The model, as provider/id [default: the agent's own choice]
    #[arg(long, value_name = "PROVIDER/ID")]
    pub(crate) model: Option<String>,
    /// A name for the session
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// The machine to run on, as `qd runner list` names it [default: this one if it has the agent, else the least busy one that has it]
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// When the machine is away, wait this many seconds for it instead of failing at once
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WAIT_SECONDS_MAX))]
    pub(crate) wait: Option<u64>,
    /// Print the session id and return at once
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Print the answer's text only: no thinking, no tools
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Of a program: what it is called in lists, and whose questions are recognised (codex, claude, gemini…)
    /// [default: the program's name]
    #[arg(long, value_name = "NAME", requires = "command")]
    pub(crate) tool: Option<String>,
    /// What to do; `-` reads stdin
    #[arg(required_unless_present = "command", conflicts_with = "command", value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    /// A program and its arguments, run in a terminal
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// List the sessions, newest first.
///
/// AGE is the time since the last activity; WAITING counts the questions that wait for an answer. With --waiting the
/// questions stand below their session.
#[derive(Debug, Args)]
#[command(after_help = "\
States:
  starting   the agent is being started
  idle       the agent waits for a prompt
  working    a turn runs
  dormant    no process; the next prompt starts it
  failed     the agent died; the next prompt or `qd restart` tries again
  closed     stopped with `qd stop`; `qd restart` opens it again
  offline    its machine is away; what it did until then can be read")]
pub(crate) struct ListArguments {
    /// Only sessions with a question that waits for an answer
    #[arg(short, long)]
    pub(crate) waiting: bool,
}

/// Follow a session and talk to it; or show a program on this terminal.
///
/// Of a program in a terminal the screen comes at once, then keys go to it; Ctrl-] detaches, the exit code is the
/// program's. To a pipe it prints everything from the beginning.
///
/// Streams what happens. A line typed is a prompt, or steers the agent when it works; when the agent asks something,
/// the line is the answer. Ctrl-C aborts the turn, a second Ctrl-C (or Ctrl-D) detaches; when the agent is idle, the
/// first Ctrl-C detaches. Detaching leaves the session running.
///
/// With stdin from a pipe it ends when all lines were sent and the agent is idle, with exit code 1 when anything
/// failed. A line that comes while a question waits is its answer; one that came before is a prompt.
#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    /// The session, or a unique beginning of its id [default: the newest]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
}

/// Show the conversation of a session, and the questions that wait.
#[derive(Debug, Args)]
#[command(after_help = "\
With --json each line is one message, as `get_messages` of the protocol has it (`role`, `parts`, …).
With -f the messages so far come first, then each event as the server sends it: an object with
`channel` and `event` (`{\"channel\":\"agent\",…,\"event\":\"agent.idle\"}`).
A message that ends later is the `message` of a `stream.message_end`.")]
pub(crate) struct LogsArguments {
    /// The session, or a unique beginning of its id [default: the newest]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Go on with what happens next, until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last COUNT messages
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) last: Option<u64>,
}

/// Give a session a prompt and return.
///
/// While the agent works, say when it shall be read: --steer or --follow-up.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The session, or a unique beginning of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// Read before the agent's next step, when it works
    #[arg(long, conflicts_with = "follow_up")]
    pub(crate) steer: bool,
    /// Read when the agent's turn is done, when it works
    #[arg(long)]
    pub(crate) follow_up: bool,
    /// When the session's machine is away, wait this many seconds for it instead of failing at once
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WAIT_SECONDS_MAX))]
    pub(crate) wait: Option<u64>,
    /// What to say; `-` reads stdin
    #[arg(required = true, value_name = "MESSAGE")]
    pub(crate) message: Vec<String>,
}

/// Tell a working agent something it reads before its next step.
#[derive(Debug, Args)]
pub(crate) struct SteerArguments {
    /// The session, or a unique beginning of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// What to say; `-` reads stdin
    #[arg(required = true, value_name = "MESSAGE")]
    pub(crate) message: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArguments {
    /// The session, or a unique beginning of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
}

/// Answer a question of the agent: yes, or with a value.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd approve s1                               the only question of s1: yes
  qd approve s1 --value \"second choice\"       a choice, or a text
  qd approve s1 q7 --value 2                  question q7: its second choice
  qd approve s1 --answer name=Ada --answer sure=y          a form: its questions by their keys
  qd approve s1 --answers '{\"name\":\"Ada\",\"sure\":true}'   the same as JSON")]
pub(crate) struct ApproveArguments {
    /// The session, or a unique beginning of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// The question, or a unique beginning of its id; may be left out when there is only one
    #[arg(value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// The choice (its text or number) or the text asked for
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["answer", "answers"])]
    pub(crate) value: Option<String>,
    /// Of a form: the answer to one question; may be given for each. A question without one gets its default
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) answer: Vec<String>,
    /// Of a form: the answers as a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) answers: Option<String>,
    /// Allow the same operation for as long as the session lives
    #[arg(long, conflicts_with_all = ["value", "answer", "answers"])]
    pub(crate) for_session: bool,
}

/// Answer a question of the agent: no.
#[derive(Debug, Args)]
pub(crate) struct DenyArguments {
    /// The session, or a unique beginning of its id
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// The question, or a unique beginning of its id; may be left out when there is only one
    #[arg(value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// Why not; the asker is told
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Search all conversations.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    /// The words to find
    #[arg(required = true, value_name = "QUERY")]
    pub(crate) query: Vec<String>,
    /// Only messages of this role
    #[arg(long, value_name = "ROLE", value_parser = ["user", "assistant", "tool", "system"])]
    pub(crate) role: Option<String>,
    /// At most this many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
}

/// Check this machine: what is installed, what works, what to do.
///
/// Exit code 1 when something essential fails.
#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    #[command(flatten)]
    pub(crate) flags: UpFlags,
    #[command(flatten)]
    pub(crate) pi: PiFlags,
    #[command(flatten)]
    pub(crate) runner: RunnerFlags,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd completions bash > ~/.local/share/bash-completion/completions/qd
  qd completions fish > ~/.config/fish/completions/qd.fish")]
pub(crate) struct CompletionsArguments {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}
