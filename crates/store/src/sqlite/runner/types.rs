//! The rows of the runner's store and the unit in which they change. Everything that must be true together after a
//! crash (records, outcomes, questions, inputs) travels in one `RunnerBatch`.

use bytes::Bytes;

use crate::RecordRewrite;

/// A session as its runner keeps it. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunnerSession {
    pub session_id: String,
    /// How the session was asked for, so that its agent can be started again after a restart.
    pub config_json: String,
    /// The harness's own ids and file paths.
    pub native_json: String,
    /// The session version that clients name in `if_session_version`; it must not go back after a crash.
    pub version: u64,
    /// The `seq` of the next record. When read it is also after every line of the spool, whatever the row says.
    pub next_seq: u64,
    /// The place of the next message in the conversation.
    pub next_idx: u64,
    pub state: String,
    pub title: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub extra_json: Option<String>,
}

/// The part of a session that changes with almost every unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionCounters {
    pub version: u64,
    pub next_seq: u64,
    pub next_idx: u64,
    pub state: String,
    pub updated_at: i64,
}

/// One atomic unit of one session; an empty field changes nothing.
#[derive(Debug, Clone, Default)]
pub struct RunnerBatch {
    pub session_id: String,
    pub session_row: Option<RunnerSession>,
    /// Applied after `session_row`; fails the unit if the session is not stored. Not needed for `next_seq` alone, which
    /// follows from the lines.
    pub counters: Option<SessionCounters>,
    /// Lines by `seq`. One that is stored already stays as it is.
    pub spool: Vec<(u64, Bytes)>,
    pub outcomes: Vec<OutcomeRow>,
    /// Applied before `index_put`.
    pub index_truncate_from: Option<u64>,
    /// Message ids by `idx`.
    pub index_put: Vec<(u64, String)>,
    pub approvals_put: Vec<ApprovalRow>,
    /// Request ids; applied after `approvals_put`.
    pub approvals_delete: Vec<String>,
    /// Lines that are replaced by what this makes of them, as far as they are here; applied after `spool`.
    pub rewrites: Vec<(u64, RecordRewrite)>,
    /// Inputs that were taken and written: whoever sends one of them again is told that it was.
    pub inputs_settle: Vec<String>,
    /// Inputs that were taken and then refused: their names may come again.
    pub inputs_delete: Vec<String>,
    /// Images of inputs that were accepted, by a name of the caller's.
    pub images_put: Vec<(String, Bytes)>,
    /// Names of images whose inputs need them no more; applied after `images_put`.
    pub images_delete: Vec<String>,
}

/// What a session knew of an input when it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputClaim {
    /// Nothing; its name is taken from now on.
    New,
    /// It was begun and has no outcome: it is under way, or a crash cut it off.
    Begun,
    /// It was written.
    Settled,
}

/// How far a submission is known to have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeStatus {
    /// Stored before it runs. The runner makes those that it finds at its start `Indeterminate`.
    InFlight,
    /// It has a response, which repeats of the submission get.
    Done,
    /// A crash came between its start and its outcome, so nobody can know whether it took effect.
    Indeterminate,
}

/// The stored fate of one submission, which is (principal, id, session, key). Storing it again updates it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomeRow {
    pub principal: String,
    pub id: String,
    /// The scope of the key; empty for commands that belong to no session.
    pub session_id: String,
    pub idempotency_key: Option<String>,
    /// Tells a repeat from another command under the same key.
    pub fingerprint: Bytes,
    pub cmd: String,
    /// `None` as long as there is no outcome.
    pub response_json: Option<Bytes>,
    pub created_at: i64,
    pub status: OutcomeStatus,
}

/// What pruning leaves: the newest that fit. What is in flight counts but is never removed.
#[derive(Debug, Clone, Copy)]
pub struct OutcomeLimits {
    pub rows_max: u64,
    pub bytes_max: u64,
    /// Those created before this go in any case.
    pub created_before: i64,
}

/// An open question. It outlives the runner's process, so that a person can still answer after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalRow {
    pub session_id: String,
    pub request_id: String,
    pub body_json: Bytes,
}

impl OutcomeStatus {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Done => "done",
            Self::Indeterminate => "indeterminate",
        }
    }

    /// The schema admits only these three words.
    pub(super) fn parse(word: &str) -> Self {
        match word {
            "in_flight" => Self::InFlight,
            "done" => Self::Done,
            _ => Self::Indeterminate,
        }
    }
}
