//! SQLite storage for hub and runner.
//!
//! Here live the two databases (`hub.db`, `runner.db`), their migrations, and the engine both share: one
//! writer thread with group commit, and a small lazily opened pool of readers. Callers get futures that
//! resolve after the commit; while a store is quiet they make short commits themselves (`direct`). Simulated worlds run the same groups without threads (`Execution::Inline`).
//!
//! What may not live here: meaning. The store keeps bytes and columns it is handed; it parses no JSON, mints no
//! ids and reads no wall clock (times are arguments). Nothing outside this crate opens a database.
#![forbid(unsafe_code)]

mod clock;
mod database;
mod direct;
mod engine;
mod error;
mod execution;
mod group;
mod hub;
mod inline;
mod key;
mod migrate;
mod reader;
mod runner;
mod slab;
mod writer;

/// Makes another body of a stored one; `None` leaves it as it is.
pub type Rewrite = fn(&[u8]) -> Option<Vec<u8>>;

pub use database::{CACHE_KIB_DEFAULT, StoreOptions};
pub use error::{Result, StoreError};
pub use execution::{Disk, Execution};
pub use hub::{
    ACCESS_TOKENS_MAX, AUDIT_PAGE_ROWS_MAX, AUDIT_ROWS_MAX, AccessToken, Appended, AuditQuery, AuditRow,
    BURIED_SESSIONS_MAX, Effect, HistoryQuery, HostRow, HostTrust, HubSession, HubStore, LOGINS_MAX, Login,
    MESSAGE_PAGE_BYTES_MAX, MESSAGE_PAGE_ROWS_MAX, MessagePage, MessageRow, PENDING_HOSTS_MAX, PEOPLE_MAX,
    PUSH_SUBSCRIPTIONS_MAX, PersonChange, PersonPut, PersonRow, PushChange, PushRow, RecordIn, RunnerNote,
    RunnerRow, SEARCH_LIMIT_MAX, SEARCH_TOKENS_MAX, SearchHit, SearchQuery, SessionPatch, SubmissionRow,
    TokenPut, Totals, USAGE_ROWS_MAX, UsageQuery, UsageRow, UsageRows, UsageSum,
};
pub use key::SEQ_MAX;
pub use reader::{READERS_MAX, READS_WAITING_MAX};
pub use runner::{
    ACK_FLUSH_INTERVAL, ApprovalRow, OutcomeLimits, OutcomeRow, OutcomeStatus, RunnerBatch, RunnerSession,
    RunnerStore, SPOOL_READ_BYTES_MAX, SessionCounters, TAIL_BYTES_MAX, TAIL_LINES_MAX,
};
pub use writer::{GROUP_UNITS_MAX, Pending, WRITE_QUEUE_BYTES_MAX};
