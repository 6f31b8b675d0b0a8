//! What one event says of its session. Bodies are read here, once for all who want to know.
//!
//! Only the fields that lists, notifications and the state of offline sessions need are read; a body with other
//! fields, or of a later version, still says what it can.

use std::sync::Arc;

use qd_wire::data::SessionStatus;
use qd_wire::event::AgentPhase;
use qd_wire::input::InputRequest;
use qd_wire::message::StopReason;
use qd_wire::run::PTY_HARNESS;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What an event says of its session, beside being part of its history.
#[derive(Debug, Clone, PartialEq)]
pub enum ProjectionChange {
    /// Its agent runs: for the first time, or again.
    Created {
        harness: String,
        cwd: Option<String>,
    },
    /// A program was started in its terminal.
    Started {
        tool: Option<String>,
        command: Option<String>,
    },
    /// The program is over; calls that wait for somebody's yes still wait.
    Exited {
        exit_code: Option<i32>,
    },
    Closed,
    Working(Option<AgentPhase>),
    Idle {
        reason: Option<StopReason>,
    },
    /// The agent has failed for good.
    Failed {
        error: String,
    },
    Asked(PendingQuestion),
    Answered(Box<ResolvedQuestion>),
    /// A call was made, or something typed, under the name of a question: who asked does not record decisions.
    Acted {
        request_id: String,
    },
    Titled(String),
    ModelChanged {
        provider: String,
        model_id: String,
    },
    BranchChanged(Option<String>),
    /// Its last message, and how many there are; without a text the one before is the last that has one.
    Said {
        text: Option<String>,
        count: u64,
    },
    /// The runner has said how the session stands.
    Described(Box<SessionDescription>),
}

impl ProjectionChange {
    /// Whether it tells of a moment only: what its runner said later counts more.
    pub fn is_of_a_moment(&self) -> bool {
        match self {
            ProjectionChange::Working(_)
            | ProjectionChange::Idle { .. }
            | ProjectionChange::Exited { .. }
            | ProjectionChange::Closed
            | ProjectionChange::Asked(_)
            | ProjectionChange::Answered(_)
            | ProjectionChange::Acted { .. } => true,
            ProjectionChange::Created { .. }
            | ProjectionChange::Started { .. }
            | ProjectionChange::Failed { .. }
            | ProjectionChange::Titled(_)
            | ProjectionChange::ModelChanged { .. }
            | ProjectionChange::BranchChanged(_)
            | ProjectionChange::Said { .. }
            | ProjectionChange::Described(_) => false,
        }
    }
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingQuestion {
    pub request_id: String,
    pub title: String,
    /// All of it; `None` for a kind of question that this version does not know.
    pub request: Option<Arc<InputRequest>>,
}

impl From<&InputRequest> for PendingQuestion {
    fn from(request: &InputRequest) -> Self {
        PendingQuestion {
            request_id: request.request_id().to_owned(),
            title: request.title().to_owned(),
            request: Some(Arc::new(request.clone())),
        }
    }
}

impl<'de> Deserialize<'de> for PendingQuestion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct QuestionHead {
            request_id: String,
            #[serde(default)]
            title: String,
        }
        let value = Value::deserialize(deserializer)?;
        let QuestionHead { request_id, title } =
            QuestionHead::deserialize(&value).map_err(serde::de::Error::custom)?;
        let request = serde_json::from_value(value).ok().map(Arc::new);
        Ok(PendingQuestion { request_id, title, request })
    }
}

/// How a question ended.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ResolvedQuestion {
    pub request_id: String,
    pub outcome: Option<String>,
    pub decision: Option<String>,
    pub user_id: Option<String>,
    pub actor: Option<String>,
    /// The record of the question.
    pub asked_seq: Option<u64>,
}

/// How a session stands, as its runner says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SessionDescription {
    pub status: SessionStatus,
    #[serde(default, deserialize_with = "known_phase")]
    pub phase: Option<AgentPhase>,
    #[serde(rename = "pending_input")]
    pub questions: Vec<PendingQuestion>,
    /// The last record that it takes in.
    pub seq: u64,
}

/// A phase of a later version is none we could name.
fn known_phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AgentPhase>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// The fields of events that say something; the others are not read.
macro_rules! bodies {
    ($( $name:ident { $( $(#[$meta:meta])* $field:ident: $type:ty ),* } )*) => {
        $(
            #[derive(Deserialize)]
            struct $name { $( $(#[$meta])* $field: $type, )* }
        )*
    };
}
bodies! {
    CreatedBody { harness: String, cwd: Option<String> }
    StartedBody { tool: Option<String>, command: Option<String> }
    DirectoryBody { cwd: Option<String> }
    ExitedBody { exit_code: i32 }
    WorkingBody { #[serde(default, deserialize_with = "known_phase")] phase: Option<AgentPhase> }
    IdleBody { reason: Option<StopReason> }
    ErrorBody { recoverable: bool, #[serde(default)] error: String }
    AskedBody { request: PendingQuestion }
    TitleBody { title: String }
    ModelBody { provider: String, model_id: String }
    BranchBody { branch: Option<String> }
    ActedBody { request_id: Option<String>, input_id: Option<String> }
    ResyncBody { state: SessionDescription }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

/// Whether events of this name may say something of their session. Deltas are nearly all there is, and do not.
pub fn is_telling(event: &str) -> bool {
    if event.starts_with("stream.") {
        return false;
    }
    matches!(
        event,
        "session.resync"
            | "session.created"
            | "session.closed"
            | "session.title_changed"
            | "session.branch_changed"
            | "config.model_changed"
            | "agent.working"
            | "agent.idle"
            | "agent.error"
            | "agent.input_needed"
            | "agent.input_resolved"
            | "tool.result"
    ) || event.starts_with("run.") && event != "run.output"
}

/// Reads what an event says of its session. `text` is the event as a JSON object, whatever stands before its own
/// fields; `seq` is its number if it is a record. Messages are left to who stores them ([`ProjectionChange::Said`]).
pub fn read(event: &str, seq: Option<u64>, text: &str) -> Vec<ProjectionChange> {
    let mut changes = Vec::new();
    let is_first = seq == Some(1);
    if is_first && event.starts_with("run.") {
        // A run of a foreign host has no other first record.
        let cwd = parse::<DirectoryBody>(text).and_then(|body| body.cwd);
        changes.push(ProjectionChange::Created { harness: PTY_HARNESS.to_owned(), cwd });
    }
    if is_telling(event) {
        changes.extend(read_one(event, text));
    }
    changes
}

fn read_one(event: &str, text: &str) -> Option<ProjectionChange> {
    Some(match event {
        "session.resync" => ProjectionChange::Described(Box::new(parse::<ResyncBody>(text)?.state)),
        "session.created" => {
            let CreatedBody { harness, cwd } = parse(text)?;
            ProjectionChange::Created { harness, cwd }
        }
        "session.closed" => ProjectionChange::Closed,
        "session.title_changed" => ProjectionChange::Titled(parse::<TitleBody>(text)?.title),
        "session.branch_changed" => ProjectionChange::BranchChanged(parse::<BranchBody>(text)?.branch),
        "config.model_changed" => {
            let ModelBody { provider, model_id } = parse(text)?;
            ProjectionChange::ModelChanged { provider, model_id }
        }
        "agent.working" => ProjectionChange::Working(parse::<WorkingBody>(text).and_then(|body| body.phase)),
        "agent.idle" => {
            ProjectionChange::Idle { reason: parse::<IdleBody>(text).and_then(|body| body.reason) }
        }
        "agent.error" => {
            let ErrorBody { error, .. } = parse::<ErrorBody>(text).filter(|body| !body.recoverable)?;
            ProjectionChange::Failed { error }
        }
        "agent.input_needed" => ProjectionChange::Asked(parse::<AskedBody>(text)?.request),
        "agent.input_resolved" => ProjectionChange::Answered(Box::new(parse(text)?)),
        "run.started" => {
            let StartedBody { tool, command } = parse(text)?;
            ProjectionChange::Started { tool, command }
        }
        "run.exited" => {
            ProjectionChange::Exited { exit_code: parse::<ExitedBody>(text).map(|body| body.exit_code) }
        }
        "run.input" | "tool.result" => {
            let ActedBody { request_id, input_id } = parse(text)?;
            ProjectionChange::Acted { request_id: request_id.or(input_id)? }
        }
        _ => return None,
    })
}
