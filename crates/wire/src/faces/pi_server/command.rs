//! The fields of commands.
//!
//! Names and spelling are the document's. Fields that are ours are marked as such.

use std::collections::BTreeMap;

use crate::derive::wire;
use serde_json::Value;

/// What every command may carry beside its own fields.
#[wire(Default, Eq, camelCase)]
pub struct Envelope {
    /// Names the intent: the same id with the same fields is answered with the first outcome.
    pub id: Option<String>,
    /// Commands that must have succeeded before this one runs.
    pub depends_on: Option<Vec<String>>,
    /// Run only at this version of the session.
    pub if_session_version: Option<u64>,
    /// Names the intent across ids, for a while.
    pub idempotency_key: Option<String>,
}

/// A command without fields of its own.
#[wire(Copy, Default, Eq)]
pub struct NoFields {}

#[wire(Eq, camelCase)]
pub struct SessionOnly {
    pub session_id: String,
}

/// The fields after `cwd` are ours; the document has none of them.
#[wire(Default, Eq, camelCase)]
pub struct CreateSession {
    pub session_id: Option<String>,
    pub cwd: Option<String>,
    /// The machine; without it the one with the most room.
    pub runner_id: Option<String>,
    /// `pi` unless said otherwise.
    pub harness: Option<String>,
    pub provider: Option<String>,
    pub model: Option<String>,
    pub thinking_level: Option<String>,
    /// Extensions of the harness to load, as paths on the machine.
    pub extensions: Option<Vec<String>>,
}

#[wire(Default, Eq, camelCase)]
pub struct SwitchSession {
    pub session_id: String,
    /// Ours: send a `session_resync` event after the answer, for a client that was away.
    pub resync: Option<bool>,
}

#[wire(Default, Eq, camelCase)]
pub struct LoadSession {
    pub session_path: String,
    pub session_id: Option<String>,
    /// Ours: the machine that has the file.
    pub runner_id: Option<String>,
    /// Ours: extensions of the harness to load, as paths on the machine.
    pub extensions: Option<Vec<String>>,
}

#[wire(Default, Eq, camelCase)]
pub struct GetCommandHistory {
    pub session_id_filter: Option<String>,
    pub command_id: Option<String>,
    /// Unix milliseconds.
    pub from_timestamp: Option<i64>,
    pub to_timestamp: Option<i64>,
    pub limit: Option<u64>,
}

/// An image in pi's own form.
#[wire(Eq, camelCase)]
pub struct ImageContent {
    /// `image`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Base64.
    pub data: String,
    pub mime_type: String,
}

#[wire(Eq, camelCase)]
pub struct Prompt {
    pub session_id: String,
    pub message: String,
    pub images: Option<Vec<ImageContent>>,
    /// What to do while the agent works; without it the message is read after the turn.
    pub streaming_behavior: Option<StreamingBehavior>,
}

#[wire(Copy, Eq, camelCase)]
pub enum StreamingBehavior {
    Steer,
    FollowUp,
}

#[wire(Eq, camelCase)]
pub struct Steer {
    pub session_id: String,
    pub message: String,
    pub images: Option<Vec<ImageContent>>,
}

#[wire(Eq, camelCase)]
pub struct SetModel {
    pub session_id: String,
    pub provider: String,
    pub model_id: String,
}

#[wire(Eq, camelCase)]
pub struct CycleModel {
    pub session_id: String,
    pub direction: Option<crate::command::Direction>,
}

#[wire(Eq, camelCase)]
pub struct SetThinkingLevel {
    pub session_id: String,
    /// `off` (or `none`), `minimal`, `low`, `medium`, `high`, `xhigh`.
    pub level: String,
}

#[wire(Eq, camelCase)]
pub struct SetSessionName {
    pub session_id: String,
    pub name: String,
}

#[wire(Eq, camelCase)]
pub struct Compact {
    pub session_id: String,
    pub custom_instructions: Option<String>,
}

#[wire(Eq, camelCase)]
pub struct SetEnabled {
    pub session_id: String,
    pub enabled: bool,
}

#[wire(Eq, camelCase)]
pub struct Bash {
    pub session_id: String,
    pub command: String,
    pub exclude_from_context: Option<bool>,
}

#[wire(Eq, camelCase)]
pub struct ExportHtml {
    pub session_id: String,
    /// Within the session's directory.
    pub output_path: Option<String>,
}

#[wire(Eq, camelCase)]
pub struct NewSession {
    pub session_id: String,
    pub parent_session: Option<String>,
}

#[wire(Eq, camelCase)]
pub struct SwitchSessionFile {
    pub session_id: String,
    pub session_path: String,
}

#[wire(Eq, camelCase)]
pub struct Fork {
    pub session_id: String,
    pub entry_id: String,
}

#[wire(Eq, camelCase)]
pub struct NavigateTree {
    pub session_id: String,
    pub target_id: String,
    pub options: Option<NavigateOptions>,
}

#[wire(Default, Eq, camelCase)]
pub struct NavigateOptions {
    pub summarize: Option<bool>,
    pub custom_instructions: Option<String>,
    pub replace_instructions: Option<bool>,
    pub label: Option<String>,
}

#[wire(camelCase)]
pub struct ExtensionUiResponse {
    pub session_id: String,
    pub request_id: String,
    pub response: UiResponse,
}

/// An answer to a dialog.
#[wire]
#[serde(tag = "method", rename_all = "lowercase")]
pub enum UiResponse {
    Select {
        value: String,
    },
    Confirm {
        confirmed: bool,
    },
    Input {
        value: String,
    },
    Editor {
        value: String,
    },
    Interview {
        #[ts(type = "Record<string, unknown>")]
        responses: BTreeMap<String, Value>,
    },
    /// The person dismissed it.
    Cancelled {},
}
