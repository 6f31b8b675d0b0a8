//! Runs: programs in terminals. Parameters of their commands, what is known of one, and the screen.
//!
//! They are canonical; the run document's own shapes are in `faces/run_protocol`.

use crate::derive::wire;
use serde_json::Value;

/// The harness of a program in a terminal.
pub const PTY_HARNESS: &str = "pty";

/// The harness of a terminal that a person opened; it ends when idle too long and leaves nothing behind.
pub const TERMINAL_HARNESS: &str = "terminal";

/// Whether sessions of this harness are programs in a terminal.
pub fn is_terminal(harness: &str) -> bool {
    harness == PTY_HARNESS || harness == TERMINAL_HARNESS
}

/// What to run in a terminal; part of [`crate::command::SessionConfig`].
#[wire(Default, Eq)]
#[serde(default)]
pub struct RunConfig {
    /// A word for people and for the rules that recognise questions: `codex`, `claude`… Without it the name of the
    /// program.
    pub tool: Option<String>,
    /// The program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<String>>")]
    pub argv: Vec<String>,
    /// A command line for `bash -lc`, where `argv` is empty. Without both: the person's shell.
    pub cmd: Option<String>,
    /// 80 and 24 without it.
    pub cols: Option<u16>,
    pub rows: Option<u16>,
    /// Variables beside those the runner gives.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    #[ts(as = "Option<std::collections::BTreeMap<String, String>>")]
    pub env: std::collections::BTreeMap<String, String>,
}

/// Who skips the gate before writes and shell commands in a session.
#[wire(words)]
pub enum GatePolicy {
    /// Nobody.
    Ask,
    /// Those whose role the runner's setting names; the default.
    Roles,
    /// Everybody who may call the service.
    Open,
}

/// Parameters of `run.input`: written to the program at most once for each `input_id`, for ever.
#[wire(Default, Eq)]
pub struct RunInputParams {
    pub input_id: String,
    pub text: String,
    /// `web`, `cli` or `system`.
    pub actor: Option<String>,
}

/// Answer of `run.input`.
#[wire(Default, Eq)]
pub struct RunInputData {
    pub input_id: String,
    /// It had been written before; nothing was done.
    pub duplicate: bool,
}

/// Parameters of `run.stdin`: keystrokes as they are typed, without identity.
#[wire(Default, Eq)]
pub struct RunStdinParams {
    pub text: String,
    pub actor: Option<String>,
}

/// Parameters of `run.resize`.
#[wire(Copy, Default, Eq)]
pub struct RunResizeParams {
    /// 2 to 500.
    pub cols: u16,
    /// 1 to 200.
    pub rows: u16,
}

/// A signal for a program and everything it started.
#[wire(words, Default)]
pub enum RunSignal {
    /// As Ctrl-C does; never followed by a harder one.
    Int,
    /// Followed by `kill` when the program does not end.
    #[default]
    Term,
    Kill,
}

/// Parameters of `run.stop`.
#[wire(Default, Eq)]
pub struct RunStopParams {
    pub signal: Option<RunSignal>,
    pub actor: Option<String>,
}

/// Answer of `run.stop`: the signal was sent.
#[wire(Default, Eq)]
pub struct RunStopData {
    pub signal: RunSignal,
}

/// What is known of a run; part of [`crate::data::SessionState`].
#[wire(Default, Eq)]
pub struct RunState {
    pub tool: String,
    /// The command line, for people.
    pub command: String,
    pub pid: Option<u32>,
    pub cols: u16,
    pub rows: u16,
    /// Unix milliseconds.
    pub started_at: Option<i64>,
    pub exited_at: Option<i64>,
    /// When it has ended; -1 where a signal ended it or nobody knows.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The program seems to wait for a person.
    pub awaiting: Option<Awaiting>,
}

/// What a program waits for, as far as its screen tells.
#[wire(Default, Eq)]
pub struct Awaiting {
    pub reason: AwaitingReason,
    pub prompt: Option<String>,
    /// The question that goes with it.
    pub request_id: Option<String>,
}

#[wire(words, Default)]
pub enum AwaitingReason {
    Permission,
    Choice,
    Prompt,
    #[default]
    Unknown,
}

/// The screen as it is: written to an empty terminal of the same size, `scrollback` and then `screen` bring it to
/// the same state.
#[wire(Default, Eq)]
pub struct TerminalSnapshot {
    pub cols: u16,
    pub rows: u16,
    /// The record up to which output is in it.
    pub seq: u64,
    /// Lines that have left the screen, oldest first, with their colours.
    pub scrollback: String,
    /// Control sequences that draw the screen, cursor and modes.
    pub screen: String,
    pub title: Option<String>,
    /// A full-screen program has the screen.
    pub alternate: bool,
}

/// What is in the `metadata` of a permission that a gate or a screen asks for.
#[wire(Default)]
#[serde(default)]
pub struct PermissionDetails {
    pub source: PermissionSource,
    pub reason: AwaitingReason,
    /// `rpc.fs.write`, `bash`… A permission for the session is for this one.
    pub op_tool: Option<String>,
    /// All of it, for the person who decides.
    #[ts(optional, type = "unknown")]
    pub op_args: Option<Value>,
    /// At most 80 characters.
    pub op_args_summary: Option<String>,
    /// What is typed for the person.
    pub approve_text: Option<String>,
    pub deny_text: Option<String>,
    /// Of a menu: what each choice is called and what is typed for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<ScreenChoice>>")]
    pub choices: Vec<ScreenChoice>,
    /// Of a gate: the canonical command that waits, to be done when the answer comes, whatever happened meanwhile.
    pub command: Option<String>,
    /// Who asked for it.
    pub principal: Option<String>,
    pub actor: Option<String>,
}

#[wire(words, Default)]
pub enum PermissionSource {
    #[default]
    Agent,
    /// A service that is not to be used unasked.
    Gate,
    /// Read off a terminal's screen.
    Screen,
}

#[wire(Default, Eq)]
pub struct ScreenChoice {
    pub label: String,
    pub text: String,
}

/// How a permission was decided.
#[wire(words)]
pub enum Decision {
    Approve,
    Deny,
    /// This, and the same operation for as long as the session lives.
    ApproveForSession,
    /// No, and stop what asked.
    Abort,
}

impl Decision {
    pub const fn is_approval(self) -> bool {
        matches!(self, Decision::Approve | Decision::ApproveForSession)
    }
}
