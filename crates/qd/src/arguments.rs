//! The command line as clap reads it; every text a person sees in `--help` is here or in the table of settings.
//!
//! The doc comments are the help texts, and `docs/cli.md` is generated from them: the first paragraph is for `-h`,
//! the rest for `--help`. So they address the user, and comments for readers of the code are `//`.

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
  {:<37}  try a first session; no agent, account or model needed
  qd run \"fix the failing test\"          run {} in this directory and stream its answer
  qd ls                                  list sessions and open questions
  qd attach                              follow the newest session; type to talk to it
  qd approve s1                          approve the open question of session s1
  qd run -- claude                       run any program in a terminal you can watch from anywhere
  qd fs ls; qd git diff; qd bash ls      use files, git and shell of the newest session
  qd runner invite                       connect another machine
  qd pi-server                           serve programs that speak the pi-server protocol

Session ids can be shortened to any unique prefix.
Exit codes: 0 success, 1 failed or refused by the server, 2 wrong usage, 3 server not running or runner offline.",
        first_try(),
        DEFAULT.name()
    )
}

/// Run coding agents on your machines; watch, steer and approve them from anywhere.
#[derive(Debug, Parser)]
#[command(name = "qd", version, after_help = examples())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print JSON: one value, or one per line for commands that stream.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Read settings from this file [env: QD_CONFIG] [default: $XDG_CONFIG_HOME/qd/qd.toml]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
    /// Talk to the runner on this machine through its socket instead of to a hub
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
    /// Abort the agent's current turn. What it has done so far is kept.
    Abort(SessionArguments),
    Approve(ApproveArguments),
    Deny(DenyArguments),
    /// Close a session: stop its agent and keep its conversation.
    Stop(SessionArguments),
    /// Reopen a closed session, or restart its agent. The conversation continues.
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
    /// Print a one-time link that signs in another browser as you.
    LoginLink,
    Hosts(HostsArguments),
    Runner(RunnerArguments),
    Token(TokenArguments),
    Mcp(McpArguments),
    PiServer(Box<PiServerArguments>),
    /// Check this machine: what is installed, what works, and how to fix what does not.
    ///
    /// Exits with 1 if an essential check fails.
    Doctor(Box<ServerFlags>),
    Completions(CompletionsArguments),
    /// Supervise one agent process; started by the server only.
    #[command(hide = true, disable_help_flag = true)]
    Guard,
}

/// Start the server: hub and runner in one process.
///
/// Prints a one-time login link. Ctrl-C or SIGTERM stops the server cleanly, and sessions are restored at the next
/// start. Only one server can use a data directory at a time.
///
/// On an address that other machines can reach, the server uses TLS. Without --tls-cert it creates a self-signed
/// certificate, which clients and runners check by its fingerprint.
///
/// Clients of the pi-server protocol connect to /ws/pi, or to the port given with --pi-server-port (any path). They send
/// the token as `Authorization: Bearer TOKEN` or as `?token=TOKEN`. `qd pi-server` speaks the protocol on stdio.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd up
  qd up --listen 127.0.0.1:8000 --data-dir ~/deck
  qd up --listen 0.0.0.0:7433                 accept other machines, with TLS
  qd up --pi-server-port 3141                 also serve the pi-server protocol
  qd up --ready-json --listen 127.0.0.1:0     print one JSON line with url, token and pid, for scripts")]
pub(crate) struct UpArguments {
    /// Print exactly one JSON line on stdout when ready: url, token, pid, and where they apply fingerprint and
    /// pi_server_url. Everything else goes to stderr
    #[arg(long)]
    pub(crate) ready_json: bool,
    /// Allow an address that other machines can reach without encryption
    #[arg(long)]
    pub(crate) insecure_bind: bool,
    #[command(flatten)]
    pub(crate) flags: ServerFlags,
}

/// All settings of a server.
#[derive(Debug, Args)]
pub(crate) struct ServerFlags {
    #[command(flatten)]
    pub(crate) up: UpFlags,
    #[command(flatten)]
    pub(crate) pi: PiFlags,
    #[command(flatten)]
    pub(crate) runner: RunnerFlags,
}

/// Start a session with a prompt and stream the answer, or run a program in a shared terminal.
///
/// Returns when the agent is idle again, with exit code 1 if the turn failed or was aborted. If the agent asks a
/// question, you can answer it here when this is a terminal; otherwise the command that answers it is printed. Ctrl-C
/// aborts the turn; a second Ctrl-C leaves the session running.
///
/// With `-- COMMAND`, the program runs in its own terminal and is shown on this one. It can be watched, typed into,
/// answered and stopped from anywhere. Ctrl-] detaches (press it twice to send it to the program) and `qd attach`
/// reconnects. The exit code is the program's. Piped input is typed into the terminal, so it may be echoed, and lines
/// longer than 4 KiB are refused. Use `qd bash` to run a command without a terminal.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd run -- claude                            run any program, watch it from anywhere
  qd run --detach -- make test                print the session id and return
  qd run --harness NAME \"/tools\"              use another agent; `qd runner list` shows them
  qd run --cwd ~/project --model anthropic/claude-sonnet-4-5 \"explain main.rs\"
  git diff | qd run -                         read the prompt from stdin
  qd run --detach \"update the docs\"           print the session id and return
  qd run --runner desk --wait 60 \"tidy up\"    run on machine desk; wait up to 60 s if it is offline")]
pub(crate) struct RunArguments {
    /// Run this agent; `qd runner list` shows what each machine has
    #[arg(long, value_name = "NAME", default_value = DEFAULT.name())]
    pub(crate) harness: String,
    /// Start the agent in this directory [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Use this model [default: the agent's own choice]
    #[arg(long, value_name = "PROVIDER/ID")]
    pub(crate) model: Option<String>,
    /// Give the session a title
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Run on this machine, as named by `qd runner list` [default: this machine if it has the agent, else the least busy one that does]
    #[arg(long, value_name = "NAME")]
    pub(crate) runner: Option<String>,
    /// If the machine is offline, wait up to this many seconds for it instead of failing at once
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WAIT_SECONDS_MAX))]
    pub(crate) wait: Option<u64>,
    /// Print the session id and return immediately
    #[arg(short, long)]
    pub(crate) detach: bool,
    /// Print only the text of the answer, without thinking and tools
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// With -- COMMAND: show the program in lists under this name, which also selects the rules that recognise its
    /// questions (codex, claude, gemini…) [default: the program's name]
    #[arg(long, value_name = "NAME", requires = "command")]
    pub(crate) tool: Option<String>,
    /// The prompt; `-` reads it from stdin
    #[arg(required_unless_present = "command", conflicts_with = "command", value_name = "PROMPT")]
    pub(crate) prompt: Vec<String>,
    /// The program to run in a terminal, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// List the sessions, newest first.
///
/// AGE is the time since the last activity. WAITING is the number of open questions; --waiting also prints them
/// below their session.
#[derive(Debug, Args)]
#[command(after_help = "\
States:
  starting   the agent is being started
  idle       the agent is waiting for a prompt
  working    a turn is running
  dormant    no agent process; the next prompt starts one
  failed     the agent died; the next prompt or `qd restart` tries again
  closed     closed with `qd stop`; `qd restart` reopens it
  offline    its machine is not connected; the conversation so far can be read")]
pub(crate) struct ListArguments {
    /// Show only sessions with an open question
    #[arg(short, long)]
    pub(crate) waiting: bool,
}

/// Follow a session and talk to it, or reconnect to a program in a terminal.
///
/// For an agent: streams what happens. A line you type is a prompt when the agent is idle, steers it when it is working,
/// and answers its question when it has asked one. Ctrl-C aborts the turn and a second Ctrl-C (or Ctrl-D) detaches; when
/// the agent is idle the first Ctrl-C detaches. Detaching leaves the session running.
///
/// For a program in a terminal: shows its screen, then sends your keys to it. Ctrl-] detaches. The exit code is the
/// program's. When the output is a pipe, prints everything from the beginning.
///
/// When stdin is a pipe, returns once all lines are sent and the agent is idle, with exit code 1 if anything failed. A
/// line read while a question is open is its answer; a line read before that is a prompt.
#[derive(Debug, Args)]
pub(crate) struct AttachArguments {
    /// The session id, or a unique prefix of it [default: the newest]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
}

/// Show the conversation of a session and its open questions.
#[derive(Debug, Args)]
#[command(after_help = "\
With --json each line is one message in the form of the protocol's `get_messages` (`role`, `parts`, …).
With --json -f the messages so far come first, then each event as the server sends it: an object with
`channel` and `event` (`{\"channel\":\"agent\",…,\"event\":\"agent.idle\"}`).
New messages arrive as the `message` of a `stream.message_end` event.")]
pub(crate) struct LogsArguments {
    /// The session id, or a unique prefix of it [default: the newest]
    #[arg(value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Keep following new messages until Ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show only the last COUNT messages
    #[arg(short = 'n', long, value_name = "COUNT")]
    pub(crate) last: Option<u64>,
}

/// Send a prompt to a session and return.
///
/// If the agent is working, choose when it reads the message: --steer or --follow-up.
#[derive(Debug, Args)]
pub(crate) struct SendArguments {
    /// The session id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// If the agent is working, deliver the message before its next step
    #[arg(long, conflicts_with = "follow_up")]
    pub(crate) steer: bool,
    /// If the agent is working, deliver the message after its current turn
    #[arg(long)]
    pub(crate) follow_up: bool,
    /// If the session's machine is offline, wait up to this many seconds for it instead of failing at once
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=WAIT_SECONDS_MAX))]
    pub(crate) wait: Option<u64>,
    /// The message; `-` reads it from stdin
    #[arg(required = true, value_name = "MESSAGE")]
    pub(crate) message: Vec<String>,
}

/// Send a working agent a message that it reads before its next step.
#[derive(Debug, Args)]
pub(crate) struct SteerArguments {
    /// The session id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// The message; `-` reads it from stdin
    #[arg(required = true, value_name = "MESSAGE")]
    pub(crate) message: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SessionArguments {
    /// The session id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) session: String,
}

/// Answer an open question with yes, a value or a form.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd approve s1                               say yes to the only open question of s1
  qd approve s1 --value \"second choice\"       give a choice or a text
  qd approve s1 q7 --value 2                  pick the second choice of question q7
  qd approve s1 --answer name=Ada --answer sure=y          fill in a form by its keys
  qd approve s1 --answers '{\"name\":\"Ada\",\"sure\":true}'   fill in a form with JSON")]
pub(crate) struct ApproveArguments {
    /// The session id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// The question id, or a unique prefix of it; optional when only one question is open
    #[arg(value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// Answer with this text, or with this choice given by its text or number
    #[arg(long, value_name = "VALUE", conflicts_with_all = ["answer", "answers"])]
    pub(crate) value: Option<String>,
    /// Answer one question of a form; can be repeated. Questions without an answer get their default
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) answer: Vec<String>,
    /// Answer a form with a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) answers: Option<String>,
    /// Also allow the same operation for the rest of the session
    #[arg(long, conflicts_with_all = ["value", "answer", "answers"])]
    pub(crate) for_session: bool,
}

/// Answer an open question with no.
#[derive(Debug, Args)]
pub(crate) struct DenyArguments {
    /// The session id, or a unique prefix of it
    #[arg(value_name = "ID")]
    pub(crate) session: String,
    /// The question id, or a unique prefix of it; optional when only one question is open
    #[arg(value_name = "REQUEST")]
    pub(crate) request: Option<String>,
    /// Give a reason, which is passed on to the asker
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

/// Search the text of all conversations.
#[derive(Debug, Args)]
pub(crate) struct SearchArguments {
    /// The words to search for
    #[arg(required = true, value_name = "QUERY")]
    pub(crate) query: Vec<String>,
    /// Search only messages with this role
    #[arg(long, value_name = "ROLE", value_parser = ["user", "assistant", "tool", "system"])]
    pub(crate) role: Option<String>,
    /// Show at most this many results
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: u64,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  qd completions bash > ~/.local/share/bash-completion/completions/qd
  qd completions fish > ~/.config/fish/completions/qd.fish")]
pub(crate) struct CompletionsArguments {
    /// Generate the script for this shell
    pub(crate) shell: clap_complete::Shell,
}
