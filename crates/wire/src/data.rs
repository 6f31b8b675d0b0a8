//! The `data` of command responses, and the state that attach and `get_state` describe.
//!
//! Fields that were added later are optional and left out when empty: a peer of an older version neither sends nor
//! expects them.

mod attach;
mod health;

use std::collections::BTreeMap;

use crate::derive::wire;
use serde_json::Value;

pub use attach::*;
pub use health::*;

use crate::event::AgentPhase;
use crate::input::InputRequest;
use crate::link::{HeartbeatSession, RunnerLoad};
use crate::message::{Message, Role};
use crate::run::RunState;

/// How a session stands, as its runner knows it.
#[wire]
pub struct SessionState {
    pub session_id: String,
    pub runner_id: String,
    pub harness: String,
    pub status: SessionStatus,
    pub phase: Option<AgentPhase>,
    pub detail: Option<String>,
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub model: Option<ModelRef>,
    pub thinking_level: Option<String>,
    pub auto_compaction: Option<bool>,
    pub auto_retry: Option<bool>,
    pub session_version: u64,
    /// The last record's number.
    pub seq: u64,
    pub message_count: u64,
    pub queue: QueueState,
    pub pending_input: Vec<InputRequest>,
    /// What extensions want shown, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[ts(as = "Option<BTreeMap<String, String>>")]
    pub status_texts: BTreeMap<String, String>,
    /// The harness's own name of the conversation.
    pub native_session_id: Option<String>,
    pub native_session_file: Option<String>,
    /// The last fatal error, while the agent is down because of it.
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<String>>")]
    pub capabilities: Vec<String>,
    /// Native events of the agent that nobody knew, since it was started; absent when there were none.
    pub unknown_events: Option<u64>,
    pub process: Option<ProcessStats>,
    /// Unix milliseconds.
    pub created_at: Option<i64>,
    /// The model in the harness's own words.
    #[ts(optional, type = "unknown")]
    pub native_model: Option<Value>,
    /// Of a program in a terminal.
    pub run: Option<Box<RunState>>,
    /// What is checked out where the session works; the beginning of a commit's id where that is no branch.
    pub branch: Option<String>,
    /// The session works in a worktree that was made for it.
    pub worktree: Option<WorktreeState>,
}

/// A git worktree that was made for a session.
#[wire(Eq)]
pub struct WorktreeState {
    /// The directory of the session's configuration, in the repository it was made of.
    pub repository: String,
    /// The branch that was made with it.
    pub branch: String,
}

#[wire(words)]
pub enum SessionStatus {
    /// The agent is being started.
    Starting,
    Idle,
    Working,
    /// No agent process; the next prompt starts one.
    Dormant,
    /// The agent died or could not start; `error` says why. The next prompt or `session.restart` tries again.
    Failed,
    /// Closed by a person; `session.restart` opens it again.
    Closed,
    /// The runner is away; this is what the hub last knew.
    Offline,
}

#[wire(Eq)]
pub struct ModelRef {
    pub provider: String,
    pub model_id: String,
}

/// Inputs accepted but not yet read by the agent.
#[wire(Default, Eq)]
pub struct QueueState {
    pub steering: Vec<String>,
    pub follow_up: Vec<String>,
}

/// Answer of `queue.set`: the queue as it is now.
#[wire(Default, Eq)]
pub struct QueueSetData {
    pub steering: Vec<String>,
    pub follow_up: Vec<String>,
    /// Texts asked for that were not put there, because the agent has read them, or what they were to replace, meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<String>>", optional)]
    pub taken: Vec<String>,
}

/// How far a conversation has come, so that a client can tell whether it has it all.
#[wire(Eq)]
pub struct MessageVersion {
    /// The last record's number.
    pub version: u64,
    pub message_count: Option<u64>,
}

#[wire(Default)]
pub struct ProcessStats {
    pub alive: bool,
    pub pid: Option<u32>,
    pub rss_bytes: Option<u64>,
    pub cpu_pct: Option<f64>,
    pub uptime_s: Option<u64>,
}

/// One line of `list_sessions`, from the hub's copy.
#[wire(Default)]
pub struct SessionSummary {
    pub session_id: String,
    pub runner_id: String,
    pub harness: String,
    /// A word of [`SessionStatus`], or `offline` when its runner is away.
    pub state: String,
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub created_at: i64,
    pub last_activity: i64,
    pub seq: u64,
    pub message_count: u64,
    pub subscriber_count: u64,
    /// Questions waiting for a person.
    pub pending_input_count: u64,
    /// What is checked out where the session works.
    pub branch: Option<String>,
    /// The beginning of the last message of a person or the agent, on one line.
    pub last_text: Option<String>,
    /// What the agent is doing; while it works.
    pub phase: Option<AgentPhase>,
    /// Unix milliseconds; while it works.
    pub working_since: Option<i64>,
    /// Input and output of all messages, also of those that a fork has left behind.
    pub tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    /// The last fatal error, until the agent runs again.
    pub error: Option<String>,
    /// Of a program in a terminal: what runs in it.
    pub run_tool: Option<String>,
    /// The title of the oldest question that waits.
    pub pending_title: Option<String>,
}

/// One line of `get_runners`.
#[wire]
pub struct RunnerInfo {
    pub runner_id: String,
    pub hostname: String,
    pub os: String,
    pub version: String,
    pub status: RunnerStatus,
    pub harnesses: Vec<String>,
    pub max_sessions: u64,
    pub session_count: u64,
    /// Unix milliseconds of its last sign of life; absent when there was none since the hub started.
    pub last_seen: Option<i64>,
    /// When it joined with a code; absent for the runner inside the hub's own process.
    pub joined_at: Option<i64>,
    /// When its key last changed.
    pub rotated_at: Option<i64>,
    /// When it was cut off for good.
    pub revoked_at: Option<i64>,
    /// From its last heartbeat.
    pub load: Option<RunnerLoad>,
    /// Its agents, from its last heartbeat.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[ts(as = "Option<Vec<HeartbeatSession>>")]
    pub sessions: Vec<HeartbeatSession>,
}

#[wire(words)]
pub enum RunnerStatus {
    Online,
    Unhealthy,
    Offline,
}

/// Answer of `session.create`.
#[wire]
pub struct SessionCreatedData {
    pub session_id: String,
    #[serde(flatten)]
    pub attach: AttachData,
}

/// Answer of `get_messages`: a page in conversation order.
#[wire]
pub struct MessagesData {
    pub messages: Vec<Message>,
    /// All messages of the conversation.
    pub total: u64,
    /// Pass as `before` to get the page before this one; absent on the first page.
    pub before: Option<u64>,
}

#[wire]
pub struct SessionsData {
    pub sessions: Vec<SessionSummary>,
}

#[wire]
pub struct RunnersData {
    pub runners: Vec<RunnerInfo>,
}

/// Answer of `get_models`.
#[wire]
pub struct ModelsData {
    pub models: Vec<ModelInfo>,
}

#[wire]
pub struct ModelInfo {
    pub provider: String,
    pub model_id: String,
    pub name: Option<String>,
    pub reasoning: Option<bool>,
    pub context_window: Option<u64>,
    pub max_tokens: Option<u64>,
    /// What `set_thinking_level` takes with this model; absent where the harness does not say.
    pub thinking_levels: Option<Vec<String>>,
}

/// Answer of `get_commands`.
#[wire]
pub struct CommandsData {
    pub commands: Vec<SlashCommand>,
}

#[wire]
pub struct SlashCommand {
    pub name: String,
    pub description: Option<String>,
    pub source: Option<String>,
}

/// Answer of `get_fork_points`.
#[wire]
pub struct ForkPointsData {
    pub fork_points: Vec<ForkPoint>,
}

#[wire]
pub struct ForkPoint {
    pub entry_id: String,
    pub role: Role,
    pub preview: String,
}

/// Answer of `get_stats`.
#[wire(Default)]
pub struct StatsData {
    pub user_messages: u64,
    pub assistant_messages: u64,
    pub tool_calls: u64,
    pub tool_results: u64,
    pub total_messages: u64,
    pub tokens: TokenStats,
    pub cost_usd: f64,
    pub context_tokens: Option<u64>,
    pub context_window: Option<u64>,
}

#[wire(Default, Eq)]
pub struct TokenStats {
    pub input: u64,
    pub output: u64,
    pub cache_read: u64,
    pub cache_write: u64,
    pub total: u64,
}

/// Answer of `search`.
#[wire]
pub struct SearchData {
    pub hits: Vec<SearchHit>,
}

#[wire(Default)]
pub struct SearchHit {
    pub session_id: String,
    pub message_id: String,
    pub idx: u64,
    pub role: String,
    pub created_at: i64,
    /// The place, with the words found in `[` and `]`.
    pub snippet: String,
    /// Lower is better.
    pub score: f64,
    /// Of the session.
    pub title: Option<String>,
    #[serde(default)]
    pub harness: String,
    #[serde(default)]
    pub runner_id: String,
    pub cwd: Option<String>,
}

/// Answer of `runner.sessions`.
#[wire(Default)]
pub struct RunnerSessionsData {
    pub sessions: Vec<SessionState>,
}

/// Answer of `runner.stored_sessions`: session files of harnesses on the machine, newest first.
#[wire(Default)]
pub struct StoredSessionsData {
    pub sessions: Vec<StoredSession>,
}

/// A harness's own session file.
#[wire(Default)]
pub struct StoredSession {
    /// The session of this runner that has the file, else the harness's own name.
    pub session_id: String,
    pub path: String,
    pub cwd: String,
    pub title: Option<String>,
    /// Unix milliseconds.
    pub created_at: i64,
    pub modified_at: i64,
    pub message_count: u64,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub thinking_level: Option<String>,
    /// Whether the file is there; pi writes it with the first answer.
    pub exists: bool,
    /// Whether a session of this runner has it open.
    pub loaded: bool,
}
