//! Part 5: the lines between runner and hub.
//!
//! Both ends may be of different versions: fields are only added, lines that one end does not know are skipped, and
//! blocks are packed only after both have said that they can.

use crate::derive::{JsonSchema, TS, wire};
use serde::{Deserialize, Deserializer, Serialize};

use crate::data::{ProcessStats, SessionState};
use crate::delegation::DelegateRequest;
use crate::error::ErrorCode;
use crate::event::{take_field, take_seq};
use crate::{CommandResponse, EventEnvelope, EventPayload, JsonObject};

/// One line of the link, either way. The hub reads the heads of events only; this type is for everything else.
#[wire]
#[serde(tag = "type")]
#[allow(clippy::large_enum_variant, reason = "most lines are events; a box would cost each of them")]
pub enum LinkLine {
    /// Runner → hub, first line.
    #[serde(rename = "runner.hello")]
    Hello(RunnerHello),
    /// Hub → runner, answer to hello.
    #[serde(rename = "runner.welcome")]
    Welcome(RunnerWelcome),
    #[serde(rename = "runner.heartbeat")]
    Heartbeat(RunnerHeartbeat),
    /// Hub → runner.
    #[serde(rename = "command")]
    Command(LinkCommand),
    /// Runner → hub.
    #[serde(rename = "event")]
    Event(LinkEvent),
    /// Runner → hub.
    #[serde(rename = "response")]
    Response(LinkResponse),
    /// Runner → hub: how far a command has come that is not answered yet; for its sender alone. May be dropped.
    #[serde(rename = "progress")]
    Progress(LinkProgress),
    /// Hub → runner: everything up to `seq` is committed.
    #[serde(rename = "ack")]
    Ack { session_id: String, seq: u64 },
    /// Hub → runner: whether to send the session's events in the words of the pi-server document too, as live
    /// events named [`crate::event::NATIVE`]. Said again after every welcome.
    #[serde(rename = "session.watch")]
    SessionWatch { session_id: String, on: bool },
    /// Hub → runner: no welcome; the link ends.
    #[serde(rename = "runner.refused")]
    Refused { reason: String, code: Option<ErrorCode> },
    /// Hub → runner: this session is not this runner's; nothing more of it is taken.
    #[serde(rename = "session.refused")]
    SessionRefused(RefusedSession),
    /// Hub → runner: make a new key.
    #[serde(rename = "runner.rotate")]
    Rotate {},
    /// Runner → hub: the SHA-256 of its next key, in hex.
    #[serde(rename = "runner.rekey")]
    Rekey { key_hash: String },
    /// Hub → runner: the next key counts from now on; the old one until the next has been used.
    #[serde(rename = "runner.rekeyed")]
    Rekeyed { key_hash: String },
    /// Runner → hub: route this delegation.
    #[serde(rename = "delegate.escalate")]
    DelegateEscalate { session_id: String, request: DelegateRequest, correlation_id: Option<String> },
}

/// What a command says of itself before its answer.
#[wire(Default)]
pub struct LinkProgress {
    /// The command's.
    pub id: String,
    #[ts(type = "unknown")]
    pub data: serde_json::Value,
}

// Without options, so that TypeScript gets its optional lists from serde's attributes.
#[wire(nulls, Default)]
pub struct RunnerHello {
    pub runner_id: String,
    pub hostname: String,
    pub harnesses: Vec<String>,
    pub max_sessions: u64,
    pub version: String,
    pub os: String,
    /// The runner's sessions and how far their records go.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<HelloSession>,
    /// Ways of packing blocks of lines that the runner understands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compression: Vec<String>,
}

#[wire]
pub struct HelloSession {
    pub session_id: String,
    pub last_seq: u64,
    pub state: Option<Box<SessionState>>,
}

#[wire(Default, Eq)]
pub struct RunnerWelcome {
    pub runner_id: String,
    /// What the hub has committed, so that the runner sends only what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<WelcomeSession>,
    /// Sessions of the hello that are another runner's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedSession>,
    /// The packing both understand, one of the hello's; absent for none.
    pub compression: Option<String>,
}

#[wire(Eq)]
pub struct RefusedSession {
    pub session_id: String,
    pub reason: String,
    /// Absent from hubs older than the codes.
    pub code: Option<ErrorCode>,
}

#[wire(Eq)]
pub struct WelcomeSession {
    pub session_id: String,
    pub last_seq: u64,
}

#[wire(Default)]
pub struct RunnerHeartbeat {
    pub runner_id: String,
    pub uptime_s: u64,
    pub sessions: Vec<HeartbeatSession>,
    pub load: Option<RunnerLoad>,
}

/// How busy a runner's machine is.
#[wire(Default)]
pub struct RunnerLoad {
    /// Agents running or starting.
    pub agents: u64,
    pub cpu_count: u64,
    /// Processes that wanted a core, averaged over a minute.
    pub load_1m: Option<f64>,
    pub memory_total_bytes: Option<u64>,
    pub memory_available_bytes: Option<u64>,
    /// Records the hub has not acknowledged yet.
    pub spool_bytes: u64,
}

#[wire]
pub struct HeartbeatSession {
    pub session_id: String,
    pub harness: String,
    pub process: ProcessStats,
}

/// A client's command on its way to the runner. The parameters are kept as they came.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(type = "{ id: string, session_id: string, user_id?: string, cmd: string, [key: string]: unknown }")]
pub struct LinkCommand {
    pub id: String,
    pub session_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    pub cmd: String,
    #[serde(flatten)]
    pub rest: JsonObject,
}

/// An event on its way to the hub; a runner that leaves out `runner_id` means itself, without `ts` it means now.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct LinkEvent {
    pub session_id: String,
    pub runner_id: Option<String>,
    /// Unix milliseconds; 0 when the line has none.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[ts(optional, as = "Option<i64>")]
    pub ts: i64,
    pub seq: Option<u64>,
    #[serde(flatten)]
    pub payload: EventPayload,
}

impl<'de> Deserialize<'de> for LinkEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut object = JsonObject::deserialize(deserializer)?;
        let runner_id = object.contains_key("runner_id").then(|| take_field(&mut object, "runner_id"));
        let ts = object.contains_key("ts").then(|| take_field(&mut object, "ts"));
        Ok(LinkEvent {
            session_id: take_field(&mut object, "session_id")?,
            runner_id: runner_id.transpose()?.flatten(),
            ts: ts.transpose()?.unwrap_or(0),
            seq: take_seq(&mut object)?,
            payload: EventPayload::from_object(object)?,
        })
    }
}

fn is_zero(ts: &i64) -> bool {
    *ts == 0
}

impl From<EventEnvelope> for LinkEvent {
    fn from(event: EventEnvelope) -> Self {
        LinkEvent {
            session_id: event.session_id,
            runner_id: Some(event.runner_id),
            ts: event.ts,
            seq: event.seq,
            payload: event.payload,
        }
    }
}

#[wire]
pub struct LinkResponse {
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
    /// Unix milliseconds.
    pub ts: Option<i64>,
    #[serde(flatten)]
    pub response: CommandResponse,
}
