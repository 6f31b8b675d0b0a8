//! Part 5: the lines between runner and hub.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use ts_rs::TS;

use crate::data::{ProcessStats, SessionState};
use crate::delegation::DelegateRequest;
use crate::event::{take_field, take_seq};
use crate::{CommandResponse, EventEnvelope, EventPayload, JsonObject};

/// One line of the link, either way. The hub reads the heads of events only; this type is for everything else.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
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
    /// Hub → runner: everything up to `seq` is committed.
    #[serde(rename = "ack")]
    Ack { session_id: String, seq: u64 },
    /// Runner → hub: route this delegation.
    #[serde(rename = "delegate.escalate")]
    DelegateEscalate { session_id: String, request: DelegateRequest, correlation_id: Option<String> },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
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
}

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct HelloSession {
    pub session_id: String,
    pub last_seq: u64,
    pub state: Option<Box<SessionState>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct RunnerWelcome {
    pub runner_id: String,
    /// What the hub has, so that the runner sends only what is missing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<WelcomeSession>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct WelcomeSession {
    pub session_id: String,
    pub last_seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
pub struct RunnerHeartbeat {
    pub runner_id: String,
    pub uptime_s: u64,
    pub sessions: Vec<HeartbeatSession>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
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

#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct LinkResponse {
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
    /// Unix milliseconds.
    pub ts: Option<i64>,
    #[serde(flatten)]
    pub response: CommandResponse,
}
