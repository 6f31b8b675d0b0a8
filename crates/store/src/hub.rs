//! The hub's store: one interface over its backends. The types and bounds of the contract are here; what a backend does
//! for it is in the backend's folder.

mod interface;
mod limits;
mod push;
mod types;
mod usage;

use std::path::Path;

pub(crate) use limits::TOUCH_MS;
pub use limits::{
    ACCESS_TOKENS_MAX, AUDIT_PAGE_ROWS_MAX, AUDIT_ROWS_MAX, DELETED_SESSIONS_MAX, LOGINS_MAX,
    MESSAGE_PAGE_BYTES_MAX, MESSAGE_PAGE_ROWS_MAX, PENDING_HOSTS_MAX, PEOPLE_MAX, PUSH_SUBSCRIPTIONS_MAX,
    SEARCH_LIMIT_MAX, SEARCH_TOKENS_MAX, SEQ_MAX, USAGE_ROWS_MAX,
};
pub use push::{PushChange, PushRow};
pub use types::{
    AccessTokenRow, AppendSummary, AuditQuery, AuditRow, HistoryQuery, HostRow, HostTrust, HubSession,
    LoginRow, MessagePage, MessageRow, NewRecord, PersonChange, PersonRow, PersonStored, RecordEffect,
    RunnerNote, RunnerRow, SearchHit, SearchQuery, SessionPatch, SessionTotals, SubmissionRow, TokenStored,
};
pub(crate) use usage::finite;
pub use usage::{UsageQuery, UsageRow, UsageRows, UsageSum};

use crate::error::Result;
use crate::sqlite::{SqliteHub, StoreOptions};

/// The hub's copy of all sessions, and what else it must remember. Clones share one database. Its methods are in
/// `interface`.
#[derive(Clone)]
pub struct HubStore {
    backend: Backend,
}

/// Where the data is. Another backend is one more variant here, one arm in `interface`, and one line of the contract
/// suite.
#[derive(Clone)]
enum Backend {
    Sqlite(SqliteHub),
}

impl HubStore {
    /// Opens or creates a SQLite database. Blocks for a few milliseconds: call it at start. With `StoreExecution::Inline` it
    /// must be called inside a tokio runtime, which the store then lives and dies with.
    pub fn open(path: &Path, options: StoreOptions) -> Result<Self> {
        Ok(Self { backend: Backend::Sqlite(SqliteHub::open(path, options)?) })
    }
}
