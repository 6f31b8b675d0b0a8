//! SQLite, embedded: the default of the hub and the only store of a runner. Everything that knows SQLite or its library
//! is in this folder; `cargo xtask tidy` holds that.
//!
//! `engine` is what both databases share: one writer thread with group commit, and a small lazily opened pool of
//! readers. `hub` and `runner` are the two databases, their SQL and their migrations.

mod body_slab;
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
mod lock;
mod migrate;
mod reader;
mod runner;
mod statements;
mod writer;

pub use database::{CACHE_KIB_DEFAULT, StoreOptions};
pub use execution::{SimulatedDisk, StoreExecution};
pub(crate) use hub::SqliteHub;
pub use reader::{READERS_MAX, READS_WAITING_MAX};
pub use runner::{
    ACK_FLUSH_INTERVAL, ApprovalRow, InputClaim, OutcomeLimits, OutcomeRow, OutcomeStatus, RunnerBatch,
    RunnerSession, RunnerStore, SPOOL_READ_BYTES_MAX, SessionCounters, TAIL_BYTES_MAX, TAIL_LINES_MAX,
};
pub use writer::{GROUP_UNITS_MAX, WRITE_QUEUE_BYTES_MAX};
