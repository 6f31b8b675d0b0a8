//! Part 3: parameters of commands, and their answers.
//!
//! The commands themselves, with their lanes, limits and permissions, are rows of `command/table.rs`. An optional
//! field that is left out means what an older client meant before the field existed.

pub mod answer;
pub mod table;

use crate::derive::wire;
use serde_json::Value;

pub use crate::command_table::{Command, CommandError, CommandHead};
pub use crate::delegation::DelegateRequest;
use crate::error::{CodedError, ErrorCode};
use crate::run::{Decision, GatePolicy, RunConfig};

/// The answer to a command, exactly one for each.
#[wire]
pub struct CommandResponse {
    /// The command's own `id`, as it came.
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    pub cmd: String,
    pub success: bool,
    #[ts(optional, type = "unknown")]
    pub data: Option<Value>,
    pub error: Option<String>,
    /// What programs decide by; beside every `error`, except from peers older than the codes.
    pub code: Option<ErrorCode>,
    /// The limit that was reached: of `too_many_in_flight` how many commands may wait for their answers.
    pub limit: Option<u64>,
    pub session_version: Option<u64>,
    /// The outcome is of an earlier submission with the same identity.
    pub replayed: Option<bool>,
    /// Nobody can know whether the command took effect: the process died between write and reply.
    pub indeterminate: Option<bool>,
    /// Its time was over before it was done.
    pub timed_out: Option<bool>,
}

impl CommandResponse {
    /// Why it failed; `None` for a success. A peer that is older than the codes gets one from its words.
    pub fn failed(&self) -> Option<CodedError> {
        if self.success {
            return None;
        }
        let error = self.error.as_deref().unwrap_or("the command failed without saying why");
        Some(self.code.unwrap_or_else(|| ErrorCode::of_older_peer(error)).with(error))
    }
}

/// How to run a session.
#[wire(Default)]
pub struct SessionConfig {
    pub harness: String,
    pub cwd: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    /// Resume from this session file (or the harness's own session id).
    pub continue_session: Option<String>,
    pub thinking_level: Option<String>,
    /// The only extensions of the harness that are loaded, as paths on the runner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<String>>")]
    pub extensions: Vec<String>,
    pub title: Option<String>,
    /// Of a program in a terminal.
    pub run: Option<RunConfig>,
    /// Who skips the gate before writes and shell commands; `roles` without it.
    pub gate: Option<GatePolicy>,
    /// Work in a new git worktree of the repository at `cwd`, and not in `cwd` itself.
    pub worktree: Option<WorktreeConfig>,
}

/// A git worktree to make for a session. It is made beside the repository, in `<repository>.worktrees`.
#[wire(Default, Eq)]
pub struct WorktreeConfig {
    /// The branch to make; without it `qd/` and the session's id.
    pub branch: Option<String>,
    /// Where the branch begins; without it at what is checked out.
    pub base: Option<String>,
}

/// Parameters of a command that has none.
#[wire(Copy, Default, Eq)]
pub struct NoParams {}

#[wire]
pub struct SessionCreateParams {
    pub config: SessionConfig,
    /// Only tells whether such a session could be created; nothing is.
    pub check_only: Option<bool>,
}

#[wire(Default, Eq)]
pub struct SessionAttachParams {
    /// The last record the client has; absent for a client that has nothing.
    pub after: Option<u64>,
}

#[wire(Default, Eq)]
pub struct SessionNewParams {
    pub parent_session: Option<String>,
}

#[wire(Eq)]
pub struct SessionSwitchParams {
    pub session_path: String,
}

#[wire(Eq)]
pub struct PromptParams {
    pub message: String,
    pub images: Option<Vec<ImageAttachment>>,
    /// What to do while the agent works; without it such a prompt is refused.
    pub streaming_behavior: Option<StreamingBehavior>,
    /// The client's own name for this prompt; comes back on the message.
    pub client_id: Option<String>,
}

#[wire(words)]
pub enum StreamingBehavior {
    /// Read by the agent before its next step.
    Steer,
    /// Read by the agent when its turn is done.
    FollowUp,
}

#[wire(Eq)]
pub struct SteerParams {
    pub message: String,
    pub images: Option<Vec<ImageAttachment>>,
    pub client_id: Option<String>,
}

/// The queue as it is to be. A message whose text is in the queue keeps what came with it.
#[wire(Default, Eq)]
pub struct QueueSetParams {
    /// Read by the agent before its next step, in this order.
    pub steering: Vec<String>,
    /// Read by the agent when its turn is done, in this order.
    pub follow_up: Vec<String>,
}

/// An image as base64.
#[wire(Eq)]
pub struct ImageAttachment {
    pub data: String,
    #[serde(alias = "mime_type", alias = "mimeType")]
    pub media_type: String,
}

#[wire(Default)]
pub struct InputResponseParams {
    pub request_id: String,
    pub value: Option<String>,
    pub confirmed: Option<bool>,
    /// Of an interview: the answers by the questions' ids.
    #[ts(optional, type = "Record<string, unknown>")]
    pub responses: Option<crate::JsonObject>,
    pub cancelled: Option<bool>,
    /// Of a permission; goes before `confirmed`.
    pub decision: Option<Decision>,
    /// Why not, for the asker and the record.
    pub reason: Option<String>,
    /// How it came: `web`, `cli` or `system`; for the record.
    pub actor: Option<String>,
}

#[wire(Default, Eq)]
pub struct GetMessagesParams {
    /// Messages with a smaller `idx` only.
    pub before: Option<u64>,
    /// How many; without it all, as far as one frame may carry them.
    pub limit: Option<u64>,
}

#[wire(Eq)]
pub struct SetModelParams {
    pub provider: String,
    pub model_id: String,
}

#[wire(Copy, Default, Eq)]
pub struct CycleModelParams {
    pub direction: Option<Direction>,
}

#[wire(words)]
pub enum Direction {
    Forward,
    Backward,
}

#[wire(Eq)]
pub struct BashParams {
    /// Run in the session's directory.
    pub command: String,
    /// Keep command and output from the agent.
    pub exclude_from_context: Option<bool>,
}

#[wire(Default, Eq)]
pub struct ExportHtmlParams {
    /// Within the session's directory; without it a name is made.
    pub output_path: Option<String>,
}

#[wire(Default, Eq)]
pub struct NavigateTreeParams {
    pub target_id: String,
    pub summarize: Option<bool>,
    pub custom_instructions: Option<String>,
    pub replace_instructions: Option<bool>,
    pub label: Option<String>,
}

#[wire(Eq)]
pub struct SetThinkingLevelParams {
    pub level: String,
}

#[wire(Copy, Eq)]
pub struct EnabledParams {
    pub enabled: bool,
}

#[wire(Default, Eq)]
pub struct CompactParams {
    pub instructions: Option<String>,
}

#[wire(Eq)]
pub struct SetSessionNameParams {
    pub name: String,
}

#[wire(Eq)]
pub struct ForkParams {
    pub entry_id: String,
}

#[wire(Default, Eq)]
pub struct SearchParams {
    pub query: String,
    pub role: Option<String>,
    pub limit: Option<u64>,
    pub offset: Option<u64>,
    /// Only in this session.
    pub session_id: Option<String>,
    /// Only in sessions of this runner.
    pub runner_id: Option<String>,
    /// Only in sessions of this harness.
    pub harness: Option<String>,
    /// Only messages made at or after this time, in Unix milliseconds.
    pub from: Option<i64>,
    /// Only messages made before this time, in Unix milliseconds.
    pub to: Option<i64>,
}

#[wire(Eq)]
pub struct DelegateCancelParams {
    pub request_id: String,
}
