//! Storage for hub and runner.
//!
//! `HubStore` is one interface over its backends (`hub`); SQLite is the only one so far (`sqlite`). `RunnerStore` is
//! SQLite on every machine. Futures resolve after the commit; while a SQLite store is quiet, callers make short commits
//! themselves (`direct`). Simulated worlds run the same groups without threads (`StoreExecution::Inline`).
//!
//! What may not live here: meaning. The store keeps bytes and columns it is handed; it parses no JSON, mints no
//! ids and reads no wall clock (times are arguments). Nothing outside this crate opens a database, no public signature
//! names a database library, and nothing outside a backend's folder does.
#![forbid(unsafe_code)]

mod error;
mod hub;
mod sqlite;
mod store_future;

/// Makes another body of a stored one; `None` leaves it as it is.
pub type RecordRewrite = fn(&[u8]) -> Option<Vec<u8>>;

pub use error::{DatabaseMessage, Result, StoreError};
pub use hub::*;
pub use sqlite::{
    ACK_FLUSH_INTERVAL, ApprovalRow, CACHE_KIB_DEFAULT, GROUP_UNITS_MAX, InputClaim, OutcomeLimits,
    OutcomeRow, OutcomeStatus, READERS_MAX, READS_WAITING_MAX, RunnerBatch, RunnerSession, RunnerStore,
    SPOOL_READ_BYTES_MAX, SessionCounters, SimulatedDisk, StoreExecution, StoreOptions, TAIL_BYTES_MAX,
    TAIL_LINES_MAX, WRITE_QUEUE_BYTES_MAX,
};
pub use store_future::StoreFuture;
