//! The gate before writes and shell commands: questions that do not depend on any program, and what they allow.
//!
//! The call that waits is stored with its question. So a gate's question outlives turns, agents, programs and the
//! runner itself; only an answer, its own time limit or whoever asked ends it.

use qd_wire::input::InputOutcome;
use qd_wire::run::{PermissionDetails, PermissionSource};
use qd_wire::{CodedError, ErrorCode, InputRequest};
use serde::{Deserialize, Serialize};

use super::{OpenQuestion, Session, StoredQuestion};
use crate::event_writer::EventWriter;

/// Calls that wait at the gate of one session at once; more are refused, so that an agent's own questions have room.
const GATE_QUESTIONS_MAX: usize = 64;

/// Allowances of one session; who needs more is asked.
const ALLOWANCES_MAX: usize = 256;

/// What a person has allowed for as long as the session lives: one kind of operation, to one asker who came one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    pub principal: String,
    /// How the asker came: `web`, `cli`, `agent`…
    pub actor: String,
    /// `bash`, `rpc.fs.write`…
    pub op_tool: String,
}

impl Allowance {
    /// What an answer to this question allows; nothing where it does not say who asked for what.
    pub fn of(details: &PermissionDetails) -> Option<Self> {
        let PermissionDetails { principal, actor, op_tool, .. } = details;
        Some(Self { principal: principal.clone()?, actor: actor.clone()?, op_tool: op_tool.clone()? })
    }
}

/// Why a call cannot be asked about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("Only a permission with the details of a gate can be asked at the gate")]
    NoDetails,
    #[error("There has been an input request with id '{0}' already; use another")]
    IdUsed(String),
    #[error(
        "{GATE_QUESTIONS_MAX} calls wait for approval in this session already; answer some of them first"
    )]
    TooMany,
}

impl GateError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            GateError::NoDetails => ErrorCode::Internal,
            GateError::IdUsed(_) => ErrorCode::AlreadyExists,
            GateError::TooMany => ErrorCode::Busy,
        }
    }
}

impl From<GateError> for CodedError {
    fn from(error: GateError) -> Self {
        error.code().with(error.to_string())
    }
}

impl Session {
    /// Asks whether a call may be done. It must be a permission whose details say that a gate asks.
    pub fn ask_gate(
        &mut self,
        now: i64,
        request: InputRequest,
        out: &mut EventWriter,
    ) -> Result<(), GateError> {
        let Some(details) = gate_details(&request) else {
            return Err(GateError::NoDetails);
        };
        let id = request.request_id();
        if self.is_known_question(id) {
            return Err(GateError::IdUsed(id.to_owned()));
        }
        if self.gates().count() >= GATE_QUESTIONS_MAX {
            return Err(GateError::TooMany);
        }
        let question = open_gate(now, request, details);
        self.open_question(now, question, out);
        Ok(())
    }

    /// Whether this was allowed for as long as the session lives.
    pub fn allows(&self, wanted: &Allowance) -> bool {
        self.memory.allowances.contains(wanted)
    }

    /// Takes up the questions that were open when we were killed. Those of a gate are open again (a time limit
    /// begins anew); the others are returned, for [`Session::interrupted`]: who asked them is gone.
    pub fn restore_questions(&mut self, now: i64, stored: Vec<StoredQuestion>) -> Vec<StoredQuestion> {
        let mut gone = Vec::new();
        for question in stored {
            match gate_details(&question.request) {
                Some(details) if !self.is_known_question(question.request.request_id()) => {
                    let StoredQuestion { request, asked_seq } = question;
                    self.questions.push(OpenQuestion { asked_seq, ..open_gate(now, request, details) });
                }
                Some(_) => {}
                None => gone.push(question),
            }
        }
        gone
    }

    /// Whoever asked does not wait any more. Returns whether the question was open.
    pub fn withdraw_question(&mut self, now: i64, request_id: &str, out: &mut EventWriter) -> bool {
        let is_open = self.questions.iter().any(|question| question.request.request_id() == request_id);
        if is_open {
            self.settle_question(
                now,
                request_id,
                InputOutcome::Withdrawn,
                super::questions::SettledBy::default(),
                out,
            );
        }
        is_open
    }

    /// The calls whose time at the gate is over since the last time somebody asked, with their ids.
    pub fn take_timed_out_gates(&mut self) -> Vec<(String, PermissionDetails)> {
        std::mem::take(&mut self.timed_out_gates)
    }

    /// The calls that wait at the gate, oldest first.
    pub fn gates(&self) -> impl Iterator<Item = &OpenQuestion> {
        self.questions.iter().filter(|question| question.source == PermissionSource::Gate)
    }

    pub(super) fn allow(&mut self, allowance: Allowance) {
        if !self.allows(&allowance) && self.memory.allowances.len() < ALLOWANCES_MAX {
            self.memory.allowances.push(allowance);
        }
    }
}

fn open_gate(now: i64, request: InputRequest, details: PermissionDetails) -> OpenQuestion {
    let deadline = request.timeout_ms().and_then(|timeout| now.checked_add(i64::try_from(timeout).ok()?));
    let (source, details) = (PermissionSource::Gate, Some(details));
    OpenQuestion { request, asked_at: now, deadline, source, details, asked_seq: None, is_secret: false }
}

/// The details of a permission that a gate asks for. What an agent asks never has them: see [`disown`].
fn gate_details(request: &InputRequest) -> Option<PermissionDetails> {
    let InputRequest::Permission { metadata: Some(metadata), .. } = request else { return None };
    let details = <PermissionDetails as serde::Deserialize>::deserialize(metadata).ok()?;
    (details.source == PermissionSource::Gate).then_some(details)
}

/// An agent says what it likes; that a gate or a screen asks is ours to say, and is believed after a restart.
pub(super) fn disown(request: &mut InputRequest) {
    if let InputRequest::Permission { metadata: Some(serde_json::Value::Object(metadata)), .. } = request
        && metadata.contains_key("source")
    {
        metadata.insert("source".to_owned(), "agent".into());
    }
}
