//! Questions an agent or a gate asks a person, and the answers.

use crate::derive::wire;
use serde_json::Value;

/// One open question. `timeout` is in milliseconds from the moment it was asked.
#[wire]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InputRequest {
    Select {
        request_id: String,
        title: String,
        options: Vec<String>,
        timeout: Option<u64>,
    },
    Confirm {
        request_id: String,
        title: String,
        message: String,
        timeout: Option<u64>,
    },
    Input {
        request_id: String,
        title: String,
        placeholder: Option<String>,
        timeout: Option<u64>,
    },
    /// A text of several lines; pi has it, the specification does not.
    Editor {
        request_id: String,
        title: String,
        prefill: Option<String>,
        timeout: Option<u64>,
    },
    /// A form: several questions answered at once.
    Interview {
        request_id: String,
        title: String,
        questions: Vec<InterviewQuestion>,
        timeout: Option<u64>,
    },
    Permission {
        request_id: String,
        title: String,
        description: Option<String>,
        /// [`crate::run::PermissionDetails`] where a gate or a screen asks.
        #[ts(optional, type = "unknown")]
        metadata: Option<Value>,
        timeout: Option<u64>,
    },
}

/// A field that every kind of question has.
macro_rules! common_field {
    ($request:expr, $field:ident) => {
        match $request {
            InputRequest::Select { $field, .. }
            | InputRequest::Confirm { $field, .. }
            | InputRequest::Input { $field, .. }
            | InputRequest::Editor { $field, .. }
            | InputRequest::Interview { $field, .. }
            | InputRequest::Permission { $field, .. } => $field,
        }
    };
}

impl InputRequest {
    /// The identity an answer names.
    pub fn request_id(&self) -> &str {
        common_field!(self, request_id)
    }

    /// What the person reads first.
    pub fn title(&self) -> &str {
        common_field!(self, title)
    }

    /// How long the asker waits, in milliseconds.
    pub fn timeout_ms(&self) -> Option<u64> {
        *common_field!(self, timeout)
    }
}

/// One field of an interview. A field of a kind that a client does not know is shown as a text.
#[wire(Default)]
pub struct InterviewQuestion {
    /// The key of the answer.
    pub id: String,
    /// `text`, `multiline`, `select`, `multiselect`, `confirm`, `number`.
    #[serde(rename = "type", default = "text")]
    pub kind: String,
    #[serde(default)]
    pub question: String,
    pub options: Option<Vec<String>>,
    pub required: Option<bool>,
    pub placeholder: Option<String>,
    #[serde(rename = "default")]
    #[ts(optional, type = "unknown")]
    pub default: Option<Value>,
}

fn text() -> String {
    "text".to_owned()
}

/// How a question ended; part of `agent.input_resolved`.
#[wire(words)]
pub enum InputOutcome {
    Answered,
    Cancelled,
    TimedOut,
    /// The agent stopped before anybody answered.
    Withdrawn,
}
