//! The hub's store: one interface over its backends. The types and bounds of the contract are here; what a backend does
//! for it is in the backend's folder.

mod interface;
mod limits;
mod types;

use std::path::Path;

pub(crate) use limits::TOUCH_MS;
pub use limits::*;
/// Types of the protocol that are stored as they are.
pub use qd_wire::people::{AuditEntry, HostTrust};
pub use qd_wire::rest::{UsageRow, UsageSum};
pub use types::*;

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
