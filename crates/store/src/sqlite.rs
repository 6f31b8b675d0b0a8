//! SQLite, embedded: the default of the hub and the only store of a runner. Everything that knows SQLite or its library
//! is in this folder; `cargo xtask tidy` holds that.
//!
//! `engine` is what both databases share: one writer thread with group commit, and a small lazily opened pool of
//! readers. `hub` and `runner` are the two databases, their SQL and their migrations.

mod body_slab;
mod clock;
mod database;
mod engine;
mod error;
mod hub;
mod key;
mod lock;
mod migrate;
mod runner;
mod statements;

pub use database::{CACHE_KIB_DEFAULT, StoreOptions};
pub use engine::execution::{SimulatedDisk, StoreExecution};
pub use engine::reader::{READERS_MAX, READS_WAITING_MAX};
pub use engine::writer::{GROUP_UNITS_MAX, WRITE_QUEUE_BYTES_MAX};
pub(crate) use hub::SqliteHub;
pub use runner::{
    ACK_FLUSH_INTERVAL, ApprovalRow, InputClaim, OutcomeLimits, OutcomeRow, OutcomeStatus, RunnerBatch,
    RunnerSession, RunnerStore, SPOOL_READ_BYTES_MAX, SessionCounters, TAIL_BYTES_MAX, TAIL_LINES_MAX,
};
