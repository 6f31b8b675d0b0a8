//! Codecs: one folder per agent program, native bytes in, [`crate::agent::AgentEvent`]s out, and back.
//!
//! [`Codec`] is what they have in common. The session machine sees none of them: it speaks the words of
//! [`crate::agent`] with whatever driver there is.

pub mod demo;
pub mod lines;
pub mod pi;

use qd_wire::ErrorCode;
use serde_json::Value;

use crate::agent::{AgentEvent, AgentRequest};

/// What one line of an agent means.
#[derive(Debug, Clone, PartialEq)]
pub enum Decoded<Private> {
    Event(AgentEvent),
    Reply(AgentReply),
    /// For the harness's own driver and nobody else.
    Private(Private),
    /// Not a record of the agent: not JSON, or a known record with fields of another kind.
    Malformed {
        error: String,
        preview: String,
    },
}

/// The answer to a request. An agent repeats the id as it got it; an answer to a line it could not read has none.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentReply {
    pub id: Option<String>,
    /// The agent's own name of what it answers; empty where it does not say so.
    pub command: String,
    pub result: Result<Value, AgentRefusal>,
}

/// The agent said no, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentRefusal {
    /// This version of the agent has no such command.
    #[error("{0}")]
    UnknownCommand(String),
    #[error("{0}")]
    Failed(String),
}

impl AgentRefusal {
    pub const fn code(&self) -> ErrorCode {
        match self {
            AgentRefusal::UnknownCommand(_) => ErrorCode::Unsupported,
            AgentRefusal::Failed(_) => ErrorCode::AgentFailed,
        }
    }
}

/// The agent has no such request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnsupportedRequest;

/// Translates for an agent that speaks lines. It remembers what a line cannot say alone, and no more.
pub trait Codec {
    /// What the agent says to its driver.
    type Private;

    /// Decodes one line, without its end. A blank line means nothing.
    fn decode(&mut self, line: &[u8], now_ms: i64, out: &mut Vec<Decoded<Self::Private>>);

    /// One line with its end. `id` comes back in the reply.
    fn encode(&self, id: &str, request: &AgentRequest) -> Result<Vec<u8>, UnsupportedRequest>;
}
