//! What a driver and the session machine say to each other, in words no harness owns.
//!
//! A new harness translates into these. What only one harness has travels as an unknown event or as metadata.

use qd_wire::data::QueueState;
use qd_wire::event::{AgentPhase, NotifyLevel};
use qd_wire::message::{Part, Role, StopReason, Usage};
use qd_wire::{InputRequest, JsonObject};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Something an agent did.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// The agent began to work. Repeated starts inside one turn (retries, queued work) change nothing.
    TurnStarted,
    /// A low-level run ended but the turn goes on: retry, compaction or queued work may follow.
    RunEnded {
        will_retry: bool,
    },
    /// The turn is over: the agent waits for input. The only way to idle besides process death.
    TurnSettled {
        aborted: bool,
    },
    MessageStarted(MessageHead),
    TextDelta {
        index: u32,
        delta: String,
    },
    ThinkingDelta {
        index: u32,
        delta: String,
    },
    ToolCallStarted {
        index: u32,
        tool_call_id: String,
        name: String,
    },
    ToolCallDelta {
        index: u32,
        delta: String,
    },
    ToolCallEnded {
        index: u32,
        tool_call_id: String,
        name: String,
        input: Value,
    },
    /// The stream of one answer is complete. Derived from the end of the message where the agent does not say so.
    StreamDone {
        reason: StopReason,
    },
    /// The provider failed in the middle of a stream.
    StreamFailed {
        error: String,
        recoverable: bool,
    },
    MessageEnded(NativeMessage),
    ToolStarted {
        tool_call_id: String,
        name: String,
        input: Option<Value>,
    },
    /// Accumulated output, not a delta.
    ToolProgress {
        tool_call_id: String,
        name: String,
        partial_output: Value,
    },
    ToolEnded {
        tool_call_id: String,
        name: String,
        output: Value,
        is_error: bool,
        duration_ms: Option<u64>,
    },
    RetryStarted {
        attempt: u32,
        max_attempts: u32,
        delay_ms: u64,
        error: String,
    },
    RetryEnded {
        success: bool,
        attempt: u32,
        final_error: Option<String>,
    },
    /// `threshold`, `overflow` or `manual`.
    CompactionStarted {
        reason: String,
    },
    CompactionEnded {
        success: bool,
        will_retry: bool,
        error: Option<String>,
        /// The model could not summarise, so the error may be its provider's. Everything else that fails is the agent's own.
        summary_failed: bool,
        summary: Option<String>,
        tokens_before: Option<u64>,
    },
    QueueChanged(QueueState),
    /// A question for a person; `request_id` is the agent's own.
    InputNeeded(InputRequest),
    Notify {
        level: NotifyLevel,
        message: String,
    },
    Status {
        key: String,
        text: Option<String>,
    },
    /// The bridge extension refines the phase; `None` falls back to generating.
    PhaseHint {
        phase: Option<AgentPhase>,
        detail: Option<String>,
    },
    ModelChanged {
        provider: String,
        model_id: String,
    },
    ThinkingLevelChanged {
        level: String,
    },
    TitleChanged {
        title: String,
    },
    /// An event in the form of those who watch, by an agent that speaks it; comes before what it means.
    Native(Box<str>),
    /// A native event nobody knows: passed on as `x-<harness>.<name>`, and counted.
    Unknown {
        event: String,
        fields: JsonObject,
    },
}

/// The beginning of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageHead {
    pub role: Role,
    /// Unix milliseconds; with the role (and the tool call) it makes the message's id.
    pub created_at: i64,
    pub tool_call_id: Option<String>,
}

/// A finished message as the codec built it; the session machine gives it id and position.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeMessage {
    pub head: MessageHead,
    /// Part ids are `p0`, `p1`… by position: unique within the message.
    pub parts: Vec<Part>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub stop_reason: Option<StopReason>,
    pub usage: Option<Usage>,
    pub tool_name: Option<String>,
    pub is_error: Option<bool>,
    /// Why an answer failed, in the provider's words; goes to `metadata.error`.
    pub error: Option<String>,
    pub metadata: Option<JsonObject>,
}

impl NativeMessage {
    /// A message of which no more is known.
    pub fn new(head: MessageHead, parts: Vec<Part>) -> Self {
        Self {
            head,
            parts,
            model: None,
            provider: None,
            stop_reason: None,
            usage: None,
            tool_name: None,
            is_error: None,
            error: None,
            metadata: None,
        }
    }
}

/// What the session machine wants from an agent. Drivers build native commands from it; a client's JSON is
/// never passed through.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentRequest {
    Prompt { message: String, images: Vec<Image>, when_busy: Option<WhenBusy> },
    Abort,
    Answer { request_id: String, answer: QuestionAnswer },
    GetState,
    GetEntries { since: Option<String> },
    GetStats,
    GetModels,
    GetThinkingLevels,
    GetCommands,
    GetForkPoints,
    SetModel { provider: String, model_id: String },
    CycleModel,
    SetThinkingLevel { level: String },
    CycleThinkingLevel,
    SetAutoCompaction { enabled: bool },
    SetAutoRetry { enabled: bool },
    Compact { instructions: Option<String> },
    AbortRetry,
    ClearQueue,
    SetSessionName { name: String },
    Fork { entry_id: String },
    NewSession { parent_session: Option<String> },
    SwitchSession { session_path: String },
    Bash { command: String, exclude_from_context: bool },
    AbortBash,
    GetMessages,
    GetLastAssistantText,
    ExportHtml { output_path: Option<String> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// Base64.
    pub data: String,
    pub media_type: String,
}

/// Where an input goes while the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenBusy {
    Steer,
    FollowUp,
}

/// A person's answer to a question.
#[derive(Debug, Clone, PartialEq)]
pub enum QuestionAnswer {
    Value(String),
    Confirmed(bool),
    /// Of an interview.
    Responses(JsonObject),
    /// Nobody answered in time; the asker is to see an error.
    TimedOut,
    Cancelled,
}
