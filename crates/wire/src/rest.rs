//! REST: bodies that have no other home, the one table of routes, and the OpenAPI document that is made of it.

pub mod access;
pub mod fleet;
#[cfg(feature = "codegen")]
pub mod openapi;
pub mod people;
pub mod push;
#[cfg(feature = "codegen")]
pub mod table;

use serde_json::Value;

use crate::data::SessionSummary;
use crate::derive::wire;
use crate::error::ErrorCode;
use crate::message::Message;

#[cfg(feature = "codegen")]
pub use table::{ROUTES, Route};

/// What TypeScript has of these.
#[cfg(feature = "codegen")]
pub(crate) fn visit_types(visitor: &mut impl ts_rs::TypeVisitor) {
    visitor.visit::<ErrorBody>();
    visitor.visit::<Health>();
    visitor.visit::<CommandAnswer>();
    visitor.visit::<UsageData>();
    visitor.visit::<LoginLink>();
    visitor.visit::<ExportData>();
    visitor.visit::<EndedLogin>();
    visitor.visit::<ChangedRunner>();
    visitor.visit::<ChangedHost>();
    visitor.visit::<RemovedPerson>();
    visitor.visit::<RevokedToken>();
    visitor.visit::<crate::people::Logins>();
}

/// What every failed call answers with.
#[wire(Eq)]
pub struct ErrorBody {
    /// What went wrong and what to do about it, for a person.
    pub error: String,
    /// What programs decide by.
    pub code: Option<ErrorCode>,
}

/// Answer of `GET /healthz`.
#[wire(Default, Eq)]
pub struct Health {
    /// `ok`.
    pub status: String,
    pub sessions: u64,
    /// Those connected now.
    pub runners: u64,
    /// Of clients of `/ws/mux`.
    pub connections: u64,
    /// Of apps of the run protocol.
    pub apps: u64,
}

/// Answer of `POST /api/commands`.
#[wire(Default)]
pub struct CommandAnswer {
    pub success: bool,
    /// What the command answers; see the command's own documentation.
    #[ts(optional, type = "unknown")]
    pub data: Option<Value>,
    pub error: Option<String>,
    /// What programs decide by; beside every `error`.
    pub code: Option<ErrorCode>,
    pub session_id: Option<String>,
    pub session_version: Option<u64>,
    /// The outcome is of an earlier submission with the same `idempotency_key`.
    pub replayed: Option<bool>,
    /// Nobody can know whether the command took effect.
    pub indeterminate: Option<bool>,
    pub timed_out: Option<bool>,
}

/// Answer of `GET /api/usage`.
#[wire(Default)]
pub struct UsageData {
    /// The newest days first, else the dearest first.
    pub rows: Vec<UsageRow>,
    /// Of everything in the range, also what is in no row.
    pub total: UsageSum,
    /// There are more rows than these.
    pub truncated: Option<bool>,
}

/// What the messages of a day, a model, a session, or of several of these at once have used.
#[wire(Default)]
pub struct UsageRow {
    /// `2026-01-31`, by the clock that was asked for.
    pub day: Option<String>,
    /// Absent also where the agent does not say which.
    pub model: Option<String>,
    pub provider: Option<String>,
    pub session_id: Option<String>,
    pub title: Option<String>,
    #[serde(flatten)]
    pub sum: UsageSum,
}

#[wire(Copy, Default)]
pub struct UsageSum {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// As far as agents say what it cost.
    pub cost_usd: f64,
    /// Messages that say what they have used.
    pub messages: u64,
}

/// Answer of `POST /api/logins/links`: a link that signs in one more browser as the asker, once.
#[wire(Eq)]
pub struct LoginLink {
    /// What to open there; as the asker reached the hub.
    pub url: String,
    /// The secret in it.
    pub code: String,
    /// Unix milliseconds.
    pub expires_at: i64,
}

/// Answer of `GET /api/sessions/{session_id}/export?format=json`.
#[wire]
pub struct ExportData {
    pub session: SessionSummary,
    /// Unix milliseconds.
    pub exported_at: i64,
    pub messages: Vec<Message>,
}

/// Answer of `DELETE /api/logins/{login_id}`.
#[wire(Eq)]
pub struct EndedLogin {
    pub login_id: String,
}

/// Answer of calls that change a runner.
#[wire(Eq)]
pub struct ChangedRunner {
    pub runner_id: String,
}

/// Answer of calls that change whether a foreign host is let in.
#[wire(Eq)]
pub struct ChangedHost {
    pub host_id: String,
    /// `trusted`, `revoked` or `forgotten`.
    pub state: String,
}

/// Answer of `DELETE /api/people/{username}`.
#[wire(Eq)]
pub struct RemovedPerson {
    pub username: String,
}

/// Answer of `DELETE /api/tokens/{name}`.
#[wire(Eq)]
pub struct RevokedToken {
    pub name: String,
    /// Whose it was; absent for the hub's owner.
    pub owner: Option<String>,
}
