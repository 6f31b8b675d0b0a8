//! Questions an agent or a gate asks a person, and the answers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use ts_rs::TS;

/// One open question. `timeout` is in milliseconds from the moment it was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputRequest {
    Select {
        request_id: String,
        title: String,
        options: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        timeout: Option<u64>,
    },
    Confirm {
        request_id: String,
        title: String,
        message: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        timeout: Option<u64>,
    },
    Input {
        request_id: String,
        title: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        placeholder: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        timeout: Option<u64>,
    },
    /// A text of several lines; pi has it, the specification does not.
    Editor {
        request_id: String,
        title: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        prefill: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        timeout: Option<u64>,
    },
    Permission {
        request_id: String,
        title: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional)]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[ts(optional, type = "unknown")]
        metadata: Option<Value>,
    },
}

impl InputRequest {
    /// The identity an answer names.
    pub fn request_id(&self) -> &str {
        match self {
            InputRequest::Select { request_id, .. }
            | InputRequest::Confirm { request_id, .. }
            | InputRequest::Input { request_id, .. }
            | InputRequest::Editor { request_id, .. }
            | InputRequest::Permission { request_id, .. } => request_id,
        }
    }

    /// What the person reads first.
    pub fn title(&self) -> &str {
        match self {
            InputRequest::Select { title, .. }
            | InputRequest::Confirm { title, .. }
            | InputRequest::Input { title, .. }
            | InputRequest::Editor { title, .. }
            | InputRequest::Permission { title, .. } => title,
        }
    }

    /// How long the asker waits, in milliseconds.
    pub fn timeout_ms(&self) -> Option<u64> {
        match self {
            InputRequest::Select { timeout, .. }
            | InputRequest::Confirm { timeout, .. }
            | InputRequest::Input { timeout, .. }
            | InputRequest::Editor { timeout, .. } => *timeout,
            InputRequest::Permission { .. } => None,
        }
    }
}

/// How a question ended; part of `agent.input_resolved`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InputOutcome {
    Answered,
    Cancelled,
    TimedOut,
    /// The agent stopped before anybody answered.
    Withdrawn,
}
