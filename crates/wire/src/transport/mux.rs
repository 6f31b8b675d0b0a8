//! Part 4: frames of `/ws/mux`.

use serde_json::Value;

use crate::channel::{ChannelScope, FilesCommand, FilesEvent, TerminalCommand, TerminalEvent};
use crate::data::{RunnerInfo, RunnerStatus, SessionSummary};
use crate::derive::wire;
use crate::error::ErrorCode;
use crate::{Command, EventEnvelope};

/// The channels of the multiplexed WebSocket.
#[wire(words)]
pub enum Channel {
    Agent,
    Files,
    Terminal,
    Hstry,
    Trx,
    System,
}

/// What a client sends on `agent`.
#[wire]
pub struct ClientFrame {
    pub channel: Channel,
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
    /// The same key runs at most once, through any reconnect, restart or retry.
    pub idempotency_key: Option<String>,
    /// Commands (their `id`s) that must have succeeded before.
    pub depends_on: Option<Vec<String>>,
    /// Run only when the session's version is this.
    pub if_session_version: Option<u64>,
    /// When the runner is away: wait for it instead of failing at once.
    pub wait: Option<bool>,
    /// With `wait`: how long at most, in milliseconds.
    pub wait_ms: Option<u64>,
    #[serde(flatten)]
    pub command: Command,
}

/// What the hub sends.
#[wire]
#[serde(tag = "channel", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "most frames are events; a box would cost each of them")]
pub enum ServerFrame {
    Agent(EventEnvelope),
    Files(FilesFrame),
    Terminal(TerminalFrame),
    System(SystemEvent),
}

/// What the hub sends on `files`.
#[wire]
pub struct FilesFrame {
    /// That of the command it answers.
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    #[serde(flatten)]
    pub event: FilesEvent,
}

/// What the hub sends on `terminal`.
#[wire]
pub struct TerminalFrame {
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    #[serde(flatten)]
    pub event: TerminalEvent,
}

/// What a client sends on `files`.
#[wire]
pub struct FilesClientFrame {
    pub channel: Channel,
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    #[serde(flatten)]
    pub place: ChannelScope,
    #[serde(flatten)]
    pub command: FilesCommand,
}

/// What a client sends on `terminal`.
#[wire]
pub struct TerminalClientFrame {
    pub channel: Channel,
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    #[serde(flatten)]
    pub place: ChannelScope,
    #[serde(flatten)]
    pub command: TerminalCommand,
}

/// The `system` channel.
#[wire]
#[serde(tag = "type")]
pub enum SystemEvent {
    /// The first frame.
    #[serde(rename = "connected")]
    Connected { protocol_version: String, server_version: String, connection_id: String },
    /// A frame that could not be understood.
    #[serde(rename = "error")]
    Error {
        #[ts(optional, type = "string")]
        id: Option<Value>,
        error: String,
        code: Option<ErrorCode>,
    },
    /// Something people should know that is no error.
    #[serde(rename = "notice")]
    Notice { message: String },
    /// A session came, changed its state, or went; for lists.
    #[serde(rename = "session.changed")]
    SessionChanged {
        session_id: String,
        runner_id: String,
        change: SessionChange,
        /// Its line in `list_sessions` as it is now; absent when it is deleted.
        session: Option<Box<SessionSummary>>,
    },
    /// A runner came, went, or shows signs of trouble.
    #[serde(rename = "runner.changed")]
    RunnerChanged { runner_id: String, status: RunnerStatus, runner: Option<Box<RunnerInfo>> },
    /// The hub stops; reconnect later.
    #[serde(rename = "shutdown")]
    Shutdown { reason: String },
}

#[wire(words)]
pub enum SessionChange {
    Created,
    Updated,
    Closed,
    Deleted,
}

/// What a client sends on `system`.
#[wire(Eq)]
pub struct SystemClientFrame {
    pub channel: Channel,
    #[serde(flatten)]
    pub command: SystemCommand,
}

#[wire(Eq)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SystemCommand {
    /// What the person looks at on this connection, until the next such frame or its end: nothing, a session, or,
    /// without one, the list of all.
    Presence { visible: bool, session_id: Option<String> },
}
