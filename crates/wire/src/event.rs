//! Part 2: events, what clients see as it happens.
//!
//! The list is closed for us and open for others: an event of a newer peer, or one under `x-`, is kept and passed on
//! with all its fields. Which events are records is decided in one exhaustive match (`Event::is_record`), so that a
//! new event cannot forget to say.

use crate::derive::{JsonSchema, TS, wire};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A live event for the pi-server face alone: `native` holds an event in pi's own form, with its `type`. It is
/// written last in the line, so that the hub can cut it out without reading it.
pub const NATIVE: &str = "x-native";

use crate::data::{MessageVersion, ProcessStats, QueueState};
use crate::delegation::{DelegateErrorCode, DelegateMode};
use crate::error::ErrorCode;
use crate::input::{InputOutcome, InputRequest};
use crate::message::{Message, Sender, StopReason};
use crate::run::{AwaitingReason, Decision};
use crate::{CommandResponse, JsonObject};

/// An event as it travels: who, where, when, and what. `seq` is there on records only.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct EventEnvelope {
    pub session_id: String,
    pub runner_id: String,
    /// Unix milliseconds.
    pub ts: i64,
    /// The number of the record in its session, 1, 2, 3… without holes.
    pub seq: Option<u64>,
    #[serde(flatten)]
    pub payload: EventPayload,
}

impl<'de> Deserialize<'de> for EventEnvelope {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = JsonObject::deserialize(deserializer)?;
        Ok(EventEnvelope {
            session_id: take_field(&mut object, "session_id")?,
            runner_id: take_field(&mut object, "runner_id")?,
            ts: take_field(&mut object, "ts")?,
            seq: take_seq(&mut object)?,
            payload: EventPayload::from_object(object)?,
        })
    }
}

/// Takes a field of an envelope out of the object, so that the rest is the payload.
pub(crate) fn take_field<T: serde::de::DeserializeOwned, E: serde::de::Error>(
    object: &mut JsonObject,
    name: &'static str,
) -> Result<T, E> {
    let value = object.remove(name).ok_or_else(|| E::missing_field(name))?;
    T::deserialize(value).map_err(|error| E::custom(format_args!("{name}: {error}")))
}

/// The number of a record. The `seq` of `session.resync` is a cursor and stays in the payload.
pub(crate) fn take_seq<E: serde::de::Error>(object: &mut JsonObject) -> Result<Option<u64>, E> {
    let is_cursor = object.get("event").and_then(Value::as_str) == Some("session.resync");
    if is_cursor || !object.contains_key("seq") { Ok(None) } else { take_field(object, "seq") }
}

/// A known event, or one kept as it came (`x-*`, or of a later version).
#[derive(Debug, Clone, PartialEq, Serialize, TS, JsonSchema)]
#[serde(untagged)]
#[allow(
    clippy::large_enum_variant,
    reason = "almost every event is a known one; a box would cost each of them"
)]
pub enum EventPayload {
    Known(Event),
    Other(OtherEvent),
}

impl<'de> Deserialize<'de> for EventPayload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        EventPayload::from_object(JsonObject::deserialize(deserializer)?)
    }
}

impl EventPayload {
    pub(crate) fn from_object<E: serde::de::Error>(object: JsonObject) -> Result<Self, E> {
        if !object.get("event").is_some_and(Value::is_string) {
            return Err(E::missing_field("event"));
        }
        // A known name with a shape we do not know is kept too: a newer peer must not break an older one.
        let value = Value::Object(object);
        match Event::deserialize(&value) {
            Ok(event) => Ok(EventPayload::Known(event)),
            Err(_) => OtherEvent::deserialize(value).map(EventPayload::Other).map_err(E::custom),
        }
    }
}

/// An event this version does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(type = "{ event: `x-${string}`, [key: string]: unknown }")]
pub struct OtherEvent {
    pub event: String,
    #[serde(flatten)]
    pub rest: JsonObject,
}

/// The closed list of events.
#[wire]
#[serde(tag = "event")]
// Browsers have an `Event` of their own.
#[ts(rename = "KnownEvent")]
pub enum Event {
    // --- session lifecycle ---
    #[serde(rename = "session.created")]
    SessionCreated {
        resumed: bool,
        harness: String,
        cwd: Option<String>,
        /// The commands this harness can serve beyond the core ones.
        capabilities: Option<Vec<String>>,
    },
    #[serde(rename = "session.closed")]
    SessionClosed { reason: Option<String> },
    #[serde(rename = "session.heartbeat")]
    SessionHeartbeat { process: ProcessStats },
    #[serde(rename = "session.title_changed")]
    SessionTitleChanged { title: String },
    /// Something else is checked out where the session works; absent when that is no repository any more.
    #[serde(rename = "session.branch_changed")]
    SessionBranchChanged { branch: Option<String> },
    /// The agent moved to another conversation file (new, switch, fork).
    #[serde(rename = "session.native_changed")]
    SessionNativeChanged { native_session_id: String, native_session_file: Option<String> },
    /// The client was too slow and missed live events. `resume` is `gap`; `seq` is the cursor the client now has and
    /// the records after it follow. `state`, `pending_input` and `partial` are as of now, that is of `state.seq`.
    #[serde(rename = "session.resync")]
    SessionResync {
        #[serde(flatten)]
        attach: Box<crate::data::AttachData>,
    },

    // --- agent state ---
    #[serde(rename = "agent.idle")]
    AgentIdle {
        /// How the turn ended; absent when there was none.
        reason: Option<StopReason>,
        message_version: Option<MessageVersion>,
    },
    #[serde(rename = "agent.working")]
    AgentWorking { phase: AgentPhase, detail: Option<String> },
    #[serde(rename = "agent.error")]
    AgentError { error: String, recoverable: bool, phase: Option<AgentPhase>, code: Option<ErrorCode> },
    #[serde(rename = "agent.input_needed")]
    AgentInputNeeded { request: InputRequest },
    #[serde(rename = "agent.input_resolved")]
    AgentInputResolved {
        request_id: String,
        outcome: Option<InputOutcome>,
        /// Who answered.
        user_id: Option<String>,
        /// Of a permission.
        decision: Option<Decision>,
        /// How the answer came: `web`, `cli` or `system`.
        actor: Option<String>,
        /// The record of the question. From here on that record is kept without the secrets in it: who had to decide
        /// has seen them.
        asked_seq: Option<u64>,
        /// What was answered: the text typed, the option chosen, `yes` or `no`, the reason given with a decision.
        /// Recognised secrets are redacted. Absent where the question asks for a password or another secret.
        answer: Option<String>,
    },

    // --- streaming ---
    #[serde(rename = "stream.message_start")]
    MessageStart { message_id: String, role: String },
    #[serde(rename = "stream.text_delta")]
    TextDelta {
        message_id: String,
        delta: String,
        content_index: u32,
        /// Characters of this block before the delta.
        offset: Option<u64>,
    },
    #[serde(rename = "stream.thinking_delta")]
    ThinkingDelta { message_id: String, delta: String, content_index: u32, offset: Option<u64> },
    #[serde(rename = "stream.tool_call_start")]
    ToolCallStart { message_id: String, tool_call_id: String, name: String, content_index: u32 },
    #[serde(rename = "stream.tool_call_delta")]
    ToolCallDelta {
        message_id: String,
        tool_call_id: String,
        delta: String,
        content_index: u32,
        offset: Option<u64>,
    },
    #[serde(rename = "stream.tool_call_end")]
    ToolCallEnd { message_id: String, tool_call_id: String, tool_call: ToolCall, content_index: u32 },
    #[serde(rename = "stream.message_end")]
    MessageEnd { message: Message },
    #[serde(rename = "stream.done")]
    StreamDone { reason: StopReason },

    // --- tools ---
    #[serde(rename = "tool.start")]
    ToolStart {
        tool_call_id: String,
        name: String,
        #[ts(optional, type = "unknown")]
        input: Option<Value>,
    },
    #[serde(rename = "tool.progress")]
    ToolProgress {
        tool_call_id: String,
        name: String,
        #[ts(type = "unknown")]
        partial_output: Value,
    },
    #[serde(rename = "tool.end")]
    ToolEnd {
        tool_call_id: String,
        name: String,
        #[ts(type = "unknown")]
        output: Value,
        is_error: bool,
        duration_ms: Option<u64>,
    },

    // --- recovery ---
    #[serde(rename = "retry.start")]
    RetryStart { attempt: u32, max_attempts: u32, delay_ms: u64, error: String },
    #[serde(rename = "retry.end")]
    RetryEnd { success: bool, attempt: u32, final_error: Option<String> },
    #[serde(rename = "compact.start")]
    CompactStart {
        /// `threshold`, `overflow`, or `manual` when a person asked for it.
        reason: String,
    },
    #[serde(rename = "compact.end")]
    CompactEnd {
        success: bool,
        will_retry: bool,
        error: Option<String>,
        summary: Option<String>,
        tokens_before: Option<u64>,
    },

    // --- configuration ---
    #[serde(rename = "config.model_changed")]
    ModelChanged { provider: String, model_id: String },
    #[serde(rename = "config.thinking_level_changed")]
    ThinkingLevelChanged { level: String },

    // --- queue ---
    #[serde(rename = "queue.changed")]
    QueueChanged { queue: QueueState },

    // --- notifications ---
    #[serde(rename = "notify")]
    Notify { level: NotifyLevel, message: String },
    #[serde(rename = "status")]
    Status {
        key: String,
        // `null` clears the text, so it must be said.
        #[serialize_always]
        #[ts(optional = false)]
        text: Option<String>,
    },

    // --- programs in terminals ---
    #[serde(rename = "run.started")]
    RunStarted { tool: String, cwd: String, command: String, pid: Option<u32>, cols: u16, rows: u16 },
    /// What the program wrote; never cut inside a character. What is no UTF-8 is U+FFFD.
    #[serde(rename = "run.output")]
    RunOutput {
        /// `stdout`; a terminal has no other.
        stream: String,
        text: String,
    },
    #[serde(rename = "run.resized")]
    RunResized { cols: u16, rows: u16 },
    /// The program seems to wait for a person; nothing is held back because of it.
    #[serde(rename = "run.awaiting_input")]
    RunAwaitingInput { reason: AwaitingReason, prompt: Option<String>, request_id: Option<String> },
    /// An input was written to the program.
    #[serde(rename = "run.input")]
    RunInput {
        actor: String,
        input_id: String,
        text_redacted: String,
        /// SHA-256 in hex; of a text that could be guessed, keyed with a secret of the runner.
        text_sha256: String,
        user_id: Option<String>,
    },
    /// The last record of what the program did.
    #[serde(rename = "run.exited")]
    RunExited {
        /// -1 where there is none.
        exit_code: i32,
        signal: Option<i32>,
        error: Option<String>,
    },

    // --- services of the machine ---
    #[serde(rename = "tool.call")]
    ServiceCall {
        request_id: String,
        tool: String,
        actor: String,
        /// Secrets redacted, long texts cut.
        #[ts(type = "unknown")]
        args: Value,
        user_id: Option<String>,
    },
    #[serde(rename = "tool.result")]
    ServiceResult {
        request_id: String,
        tool: String,
        actor: String,
        ok: bool,
        duration_ms: u64,
        /// A summary: what was read or written is not repeated here.
        #[ts(optional, type = "unknown")]
        result: Option<Value>,
        error: Option<String>,
        user_id: Option<String>,
    },

    // --- synchronisation ---
    #[serde(rename = "messages")]
    Messages { messages: Vec<Message> },
    #[serde(rename = "persisted")]
    Persisted { message_count: u64 },

    // --- delegation ---
    #[serde(rename = "delegate.start")]
    DelegateStart {
        request_id: String,
        target_session_id: String,
        target_runner_id: String,
        mode: DelegateMode,
    },
    #[serde(rename = "delegate.delta")]
    DelegateDelta { request_id: String, delta: String },
    #[serde(rename = "delegate.end")]
    DelegateEnd { request_id: String, response: Message, responder: Sender, duration_ms: Option<u64> },
    #[serde(rename = "delegate.error")]
    DelegateError { request_id: String, error: String, code: DelegateErrorCode },

    // --- command answers ---
    /// How far a command has come that is not answered yet; for its sender alone.
    #[serde(rename = "progress")]
    Progress {
        /// The command's own `id`, as it came.
        #[ts(optional, type = "string")]
        id: Option<Value>,
        cmd: String,
        #[ts(type = "unknown")]
        data: Value,
    },
    #[serde(rename = "response")]
    Response(CommandResponse),
}

/// What the agent is doing while it works.
#[wire(words)]
pub enum AgentPhase {
    Generating,
    Thinking,
    ToolRunning,
    Compacting,
    Retrying,
    Initializing,
}

#[wire(words)]
pub enum NotifyLevel {
    Info,
    Warning,
    Error,
}

/// A finished tool call of the model.
#[wire]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    #[ts(type = "unknown")]
    pub input: Value,
}

impl Event {
    /// Whether the event is a record: durable, numbered, spooled until acknowledged.
    pub fn is_record(&self) -> bool {
        match self {
            Event::SessionCreated { .. }
            | Event::SessionClosed { .. }
            | Event::SessionTitleChanged { .. }
            | Event::SessionBranchChanged { .. }
            | Event::SessionNativeChanged { .. }
            | Event::AgentIdle { .. }
            | Event::AgentError { .. }
            | Event::AgentInputNeeded { .. }
            | Event::AgentInputResolved { .. }
            | Event::MessageEnd { .. }
            | Event::ToolStart { .. }
            | Event::ToolEnd { .. }
            | Event::RetryStart { .. }
            | Event::RetryEnd { .. }
            | Event::CompactStart { .. }
            | Event::CompactEnd { .. }
            | Event::ModelChanged { .. }
            | Event::ThinkingLevelChanged { .. }
            | Event::QueueChanged { .. }
            | Event::Notify { .. }
            | Event::Messages { .. }
            | Event::RunStarted { .. }
            | Event::RunOutput { .. }
            | Event::RunResized { .. }
            | Event::RunAwaitingInput { .. }
            | Event::RunInput { .. }
            | Event::RunExited { .. }
            | Event::ServiceCall { .. }
            | Event::ServiceResult { .. }
            | Event::DelegateStart { .. }
            | Event::DelegateEnd { .. }
            | Event::DelegateError { .. } => true,
            Event::SessionHeartbeat { .. }
            | Event::SessionResync { .. }
            | Event::AgentWorking { .. }
            | Event::MessageStart { .. }
            | Event::TextDelta { .. }
            | Event::ThinkingDelta { .. }
            | Event::ToolCallStart { .. }
            | Event::ToolCallDelta { .. }
            | Event::ToolCallEnd { .. }
            | Event::StreamDone { .. }
            | Event::ToolProgress { .. }
            | Event::Status { .. }
            | Event::Persisted { .. }
            | Event::DelegateDelta { .. }
            | Event::Progress { .. }
            | Event::Response(_) => false,
        }
    }
}

impl EventPayload {
    /// Extensions are records: nobody knows how to rebuild what they said.
    pub fn is_record(&self) -> bool {
        match self {
            EventPayload::Known(event) => event.is_record(),
            EventPayload::Other(_) => true,
        }
    }
}
