//! What the server says: responses, lifecycle, sessions that come and go, events of agents.

use serde_json::Value;

use super::data::SessionInfo;
use crate::derive::wire;
use crate::error::ErrorCode;

/// One frame from the server.
#[wire]
#[serde(tag = "type", rename_all = "snake_case")]
#[ts(rename = "ServerMessage")]
pub enum ServerMessage {
    Response(Response),
    /// First on every connection.
    ServerReady {
        data: ServerReady,
    },
    ServerShutdown {
        data: ServerShutdown,
    },
    SessionCreated {
        data: SessionAnnounced,
    },
    SessionDeleted {
        data: SessionRemoved,
    },
    CommandAccepted {
        data: CommandAccepted,
    },
    CommandStarted {
        data: CommandAccepted,
    },
    CommandFinished {
        data: CommandFinished,
    },
    /// Ours: messages of the kinds above (not responses) were dropped because this client did not read them.
    LifecycleGap {
        data: LifecycleGap,
    },
    Event(SessionEvent),
}

/// The answer to a command, exactly one for each.
#[wire(camelCase)]
pub struct Response {
    #[ts(optional, type = "string")]
    pub id: Option<Value>,
    pub command: String,
    pub success: bool,
    #[ts(optional, type = "unknown")]
    pub data: Option<Value>,
    pub error: Option<String>,
    /// Ours: what programs decide by.
    pub code: Option<ErrorCode>,
    /// Ours: the limit that was reached, of `too_many_in_flight` in commands and of `too_large` in bytes.
    pub limit: Option<u64>,
    pub session_version: Option<u64>,
    pub replayed: Option<bool>,
    pub timed_out: Option<bool>,
    /// Ours: nobody can know whether the command took effect, because a process died in the middle of it.
    pub indeterminate: Option<bool>,
}

#[wire(Eq, camelCase)]
pub struct ServerReady {
    pub server_version: String,
    pub protocol_version: String,
    pub transports: Vec<String>,
}

#[wire(Eq, camelCase)]
pub struct ServerShutdown {
    pub reason: String,
    pub timeout_ms: u64,
}

#[wire(camelCase)]
pub struct SessionAnnounced {
    pub session_id: String,
    pub session_info: SessionInfo,
}

#[wire(Eq, camelCase)]
pub struct SessionRemoved {
    pub session_id: String,
}

/// Of `command_accepted` and `command_started`.
#[wire(Eq, camelCase)]
pub struct CommandAccepted {
    /// The command's `id`, or `anon:…` for one that has none.
    pub command_id: String,
    pub command_type: String,
    pub session_id: Option<String>,
    pub depends_on: Vec<String>,
    pub if_session_version: Option<u64>,
    /// Shown to the command's own principal only.
    pub idempotency_key: Option<String>,
}

#[wire(Eq, camelCase)]
pub struct CommandFinished {
    #[serde(flatten)]
    #[ts(flatten)]
    pub command: CommandAccepted,
    pub success: bool,
    pub error: Option<String>,
    /// Ours: what programs decide by.
    pub code: Option<ErrorCode>,
    pub session_version: Option<u64>,
    pub replayed: Option<bool>,
}

#[wire(Eq, camelCase)]
pub struct LifecycleGap {
    pub missed: u64,
}

/// An event of a session this connection has switched to.
#[wire(camelCase)]
pub struct SessionEvent {
    pub session_id: String,
    /// In pi's own form; [`FaceEvent`] for those that are the server's.
    #[ts(type = "{ type: string, [key: string]: unknown }")]
    pub event: Value,
}

/// Events of a session that the server makes itself.
#[wire]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum FaceEvent {
    /// A question for a person.
    ExtensionUiRequest {
        request_id: String,
        /// `select`, `confirm`, `input`, `editor`, `interview`.
        method: String,
        title: String,
        options: Option<Vec<String>>,
        message: Option<String>,
        placeholder: Option<String>,
        prefill: Option<String>,
        questions: Option<Vec<crate::input::InterviewQuestion>>,
        /// Milliseconds.
        timeout: Option<u64>,
    },
    /// Ours: a question has an answer, or will never have one; dialogs for it can go.
    ExtensionUiResolved { request_id: String, outcome: crate::input::InputOutcome },
    /// Ours: the messages changed without events that show how; they are read again with `get_messages`.
    ConversationChanged {
        /// `replaced` (fork, new, switch, navigation), `added` (messages that came without events of their own),
        /// `compacted`.
        reason: String,
    },
    /// Ours: this client did not read fast enough and events were dropped. A `session_resync` follows.
    EventGap { missed: u64 },
    /// Ours: how the session stands now. Messages are read with `get_messages`.
    SessionResync {
        session_info: SessionInfo,
        /// The answer being generated so far, in pi's form; null when there is none.
        #[ts(type = "unknown")]
        message: Value,
        /// Open questions; each is an `extension_ui_request`.
        #[ts(type = "FaceEvent[]")]
        pending_requests: Vec<Value>,
    },
}
