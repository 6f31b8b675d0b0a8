//! The rows and questions of the hub's store, in terms that every backend can keep. They are plain data: what the JSON
//! in them means, and whether a change is allowed, is decided by the hub.
//!
//! No type of a backend appears here. Fields whose names end in `_json` are kept by every backend as they are.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use qd_wire::people::{AuditEntry, HostTrust};
use qd_wire::rest::{UsageRow, UsageSum};

use crate::RecordRewrite;

/// A session as the hub lists it. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HubSession {
    pub session_id: String,
    pub runner_id: String,
    pub harness: String,
    pub cwd: String,
    pub title: Option<String>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub state: String,
    pub created_at: i64,
    pub updated_at: i64,
    /// The greatest stored `seq`. Written by `append`; an upsert can raise it but never lower it.
    pub last_seq: u64,
    pub closed: bool,
    pub meta_json: Option<String>,
    /// Active messages. Counted when sessions are listed; an upsert does not look at it, nor at what follows.
    pub message_count: u64,
    pub branch: Option<String>,
    /// Of its last message that has one.
    pub last_text: Option<String>,
    /// Of all messages, active or not.
    pub totals: SessionTotals,
    pub error: Option<String>,
    /// What runs in its terminal; an upsert without it leaves what is there.
    pub run_tool: Option<String>,
}

/// What the messages of a session have cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SessionTotals {
    pub tokens: i64,
    pub cost_usd: f64,
}

/// One durable record on its way into the log.
#[derive(Debug, Clone)]
pub struct NewRecord {
    pub session_id: Arc<str>,
    /// Whose session it is: written with the session's row when its first record comes, whatever that record says.
    pub runner_id: Arc<str>,
    /// From 1, without holes; the store keeps what it is given and does not look for holes.
    pub seq: u64,
    pub ts: i64,
    pub event: Cow<'static, str>,
    /// The exact bytes clients will get.
    pub body: Bytes,
    /// Who did what, where the record says so; stored together with the record, and like `effect` only if it is new.
    pub audit: Option<Box<AuditEntry>>,
    /// Applied in the same transaction, and only if the record is new: a repeated record changes nothing.
    pub effect: Option<RecordEffect>,
}

/// What a record changes beside the log.
#[derive(Debug, Clone)]
pub enum RecordEffect {
    UpsertSession(Box<HubSession>),
    SessionPatch(Box<SessionPatch>),
    Message(Box<MessageRow>),
    /// The whole list after fork, switch or new: messages not in it become inactive.
    ReplaceMessages(Vec<MessageRow>),
    /// The body of an earlier record of the same session is replaced.
    Rewrite {
        seq: u64,
        with: RecordRewrite,
    },
}

/// Fields to change; `None` leaves one as it is.
#[derive(Debug, Clone, Default)]
pub struct SessionPatch {
    pub runner_id: Option<String>,
    pub harness: Option<String>,
    pub cwd: Option<String>,
    pub title: Option<String>,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub state: Option<String>,
    /// `state` is not taken where the row says `failed`.
    pub keeps_failed: bool,
    pub updated_at: Option<i64>,
    pub closed: Option<bool>,
    pub meta_json: Option<String>,
    /// An empty text takes it away, as with the next two.
    pub branch: Option<String>,
    pub error: Option<String>,
    pub run_tool: Option<String>,
}

/// A canonical message, taken apart into columns by the caller.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessageRow {
    pub id: String,
    pub idx: i64,
    pub role: String,
    /// Flattened text and thinking: what search looks at.
    pub content: String,
    pub parts_json: String,
    pub created_at: i64,
    pub model: Option<String>,
    pub provider: Option<String>,
    pub tokens: Option<i64>,
    pub cost_usd: Option<f64>,
    pub metadata: Option<String>,
    pub stop_reason: Option<String>,
    pub usage_json: Option<String>,
    pub tool_call_id: Option<String>,
    pub tool_name: Option<String>,
    pub is_error: Option<bool>,
    pub client_id: Option<String>,
    /// What a list of sessions shows of it while it is the last one; kept with the session, not with the message.
    pub last_text: Option<String>,
    /// The whole message; pages return it unchanged.
    pub message_json: Bytes,
}

/// What an append did. `heads` has each session of the batch with its greatest stored `seq`: what may be acked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AppendSummary {
    pub inserted: u64,
    pub duplicates: u64,
    pub heads: Vec<(Arc<str>, u64)>,
    /// Sessions whose messages have a cost among the new ones, with what it comes to now.
    pub totals: Vec<(Arc<str>, SessionTotals)>,
}

/// A page of the active messages, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MessagePage {
    pub messages: Vec<Bytes>,
    /// `idx` of the first message here: the `before` of the page that precedes this one.
    pub first_idx: Option<i64>,
    /// All active messages of the session, this page and others.
    pub total: u64,
}

#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// Words, all of which must occur; a trailing `*` matches any ending.
    pub text: String,
    pub session_id: Option<String>,
    /// Only in sessions of this runner.
    pub runner_id: Option<String>,
    /// Only in sessions of this harness.
    pub harness: Option<String>,
    pub role: Option<String>,
    /// Only messages created at or after this time, in unix milliseconds.
    pub after: Option<i64>,
    /// Only messages created before this time.
    pub before: Option<i64>,
    /// Also messages that a fork or switch has left behind.
    pub include_inactive: bool,
    pub limit: u32,
    pub offset: u32,
}

/// One found message, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub session_id: String,
    pub session_title: Option<String>,
    pub runner_id: String,
    pub harness: String,
    pub cwd: String,
    pub message_id: String,
    pub idx: i64,
    pub role: String,
    pub created_at: i64,
    /// An excerpt with the matches in `[` and `]`.
    pub snippet: String,
    /// bm25: the smaller, the better.
    pub rank: f64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoginRow {
    pub token_hash: Vec<u8>,
    /// Whose it is; `None` for the hub's owner.
    pub username: Option<String>,
    pub created_at: i64,
    pub last_used_at: i64,
    pub label: String,
}

/// A person with an account. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonRow {
    pub username: String,
    /// The argon2id hash as text, with its parameters and salt.
    pub password_hash: String,
    pub role: String,
    pub created_at: i64,
    pub last_login_at: Option<i64>,
    pub disabled: bool,
}

/// What to change of a person; `None` leaves it as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonChange {
    pub password_hash: Option<String>,
    pub role: Option<String>,
    pub disabled: Option<bool>,
}

/// What came of adding a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonStored {
    Added,
    /// A person, or a token of the hub's owner, has the name.
    NameTaken,
    TooMany,
}

/// A machine of somebody else that speaks the run protocol to the hub. Times are unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRow {
    pub host_id: String,
    /// Of the token it came with first, or was given.
    pub token_hash: Vec<u8>,
    pub trust: HostTrust,
    pub first_seen_at: i64,
    pub last_seen_at: Option<i64>,
    /// Where it first came from.
    pub address: Option<String>,
}

/// Which rows of the audit to list; what is `None` does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditQuery {
    pub session_id: Option<String>,
    pub principal: Option<String>,
    pub tool: Option<String>,
    pub kind: Option<String>,
    /// Only what this principal may see without managing: what was done in sessions, and their own deeds.
    pub visible_to: Option<String>,
    /// Only rows with a smaller id.
    pub before: Option<u64>,
    /// At most `AUDIT_PAGE_ROWS_MAX`.
    pub limit: usize,
}

/// A runner that joined. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunnerRow {
    pub runner_id: String,
    /// Hash of the key it connects with; empty for the hub's own runner, which has none.
    pub key_hash: Vec<u8>,
    /// Hash of the key that a rotation has prepared; its first use makes it the key.
    pub next_key_hash: Option<Vec<u8>>,
    pub hostname: String,
    pub os: String,
    pub version: String,
    pub harnesses_json: String,
    pub max_sessions: u64,
    pub joined_at: i64,
    pub last_seen_at: Option<i64>,
    pub rotated_at: Option<i64>,
    pub revoked_at: Option<i64>,
}

/// What a runner says of itself when it connects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunnerNote {
    pub runner_id: String,
    pub hostname: String,
    pub os: String,
    pub version: String,
    pub harnesses_json: String,
    pub max_sessions: u64,
    pub seen_at: i64,
}

/// A submission to the pi-server face that carries a name of its client's. Its text is not kept, only a
/// fingerprint of it. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubmissionRow {
    /// The hub's own name for it, unique.
    pub uid: Arc<str>,
    pub principal: Arc<str>,
    /// What the client calls it.
    pub command_id: Option<String>,
    /// Where its idempotency key counts: a session, or the server.
    pub scope: String,
    pub idempotency_key: Option<String>,
    pub session_id: Option<String>,
    /// The type of the command.
    pub command: String,
    pub fingerprint: [u8; 32],
    pub accepted_at: i64,
    /// None while it is under way.
    pub finished_at: Option<i64>,
    pub success: Option<bool>,
    /// What came of it, without its data: that is read with every history.
    pub outcome_json: Option<Bytes>,
    /// The data of its answer, which may be great.
    pub data_json: Option<Bytes>,
}

/// Which submissions of a principal to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    pub principal: Arc<str>,
    pub session_id: Option<String>,
    pub command_id: Option<String>,
    /// Only those accepted at or after this time, in unix milliseconds.
    pub from: Option<i64>,
    /// Only those accepted at or before this time.
    pub to: Option<i64>,
    pub limit: usize,
}

/// A named token that opens the hub. Names are unique among the tokens of one owner. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessTokenRow {
    pub name: String,
    /// The person whose it is; `None` for those that the hub's owner has made for others.
    pub owner: Option<String>,
    pub token_hash: Vec<u8>,
    pub created_at: i64,
    pub last_used_at: Option<i64>,
    /// Words with spaces between them; `None` for all that its owner may do.
    pub scopes: Option<String>,
    pub expires_at: Option<i64>,
}

/// What came of adding a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStored {
    Added,
    /// Its owner has one of this name; or, if it is the hub's owner, a person has the name.
    NameTaken,
    TooMany,
}

/// A browser that somebody wants to be told on. Times are unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushRow {
    pub subscription_id: String,
    /// A person's name, or that of the hub's owner.
    pub principal: String,
    /// The login it was made with, which it ends with; `None` for the owner's token.
    pub login_hash: Option<Vec<u8>>,
    /// Where its push service takes messages. One subscription each.
    pub endpoint: String,
    /// The browser's public key, and a secret it shares with us.
    pub p256dh: Vec<u8>,
    pub auth: Vec<u8>,
    pub label: String,
    /// Words with spaces between them.
    pub topics: String,
    /// Whether messages may say what they are about.
    pub content: bool,
    pub created_at: i64,
    pub last_success_at: Option<i64>,
    pub last_failure_at: Option<i64>,
    pub last_failure: Option<String>,
}

/// What is to be changed; `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PushChange {
    pub label: Option<String>,
    pub topics: Option<String>,
    pub content: Option<bool>,
}

/// Whose usage is added up, and what it is told apart by. Every message counts that the store has, also those that a fork
/// or switch has left behind: they were paid for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageQuery {
    /// Only messages created at or after this time, in unix milliseconds.
    pub from: Option<i64>,
    /// Only messages created before this time.
    pub to: Option<i64>,
    pub session_id: Option<String>,
    pub by_day: bool,
    pub by_model: bool,
    pub by_session: bool,
    /// What a day's clock is ahead of UTC, in milliseconds.
    pub day_offset_ms: i64,
    /// How many rows; the sum counts all.
    pub limit: usize,
}

/// The newest days first, else the dearest and then the greatest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageRows {
    pub rows: Vec<UsageRow>,
    /// Of all messages that count, also those of rows beyond the limit.
    pub total: UsageSum,
    /// Whether there are more rows than these.
    pub truncated: bool,
}
