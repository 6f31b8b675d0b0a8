//! Whether a store has threads of its own. Tests of whole fleets need stores without, so that one seed gives one order
//! of events.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Where a store's work runs.
#[derive(Clone, Default)]
pub enum StoreExecution {
    /// A writing thread and up to `READERS_MAX` reading ones per database: what a real hub or runner uses.
    #[default]
    Threads,
    /// No threads at all, for simulated worlds: writes are a task of the tokio runtime in which the store is
    /// opened, reads run in the calling task, and all time is tokio's. A runtime that is dropped is a crash: what
    /// was not committed is lost, what was is there, and the same file can be opened again at once.
    ///
    /// The file is locked while it is open, and nothing is flushed to the real disk: a power cut or a kill of the
    /// whole process may tear it.
    Inline(Arc<dyn SimulatedDisk>),
}

/// The simulated disk of a store that runs inline.
pub trait SimulatedDisk: Send + Sync {
    /// How long the next commit or read takes; zero does it at once.
    fn delay(&self) -> Duration;
}

impl StoreExecution {
    pub(crate) fn is_inline(&self) -> bool {
        matches!(self, Self::Inline(_))
    }
}

impl fmt::Debug for StoreExecution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.is_inline() { "Inline" } else { "Threads" })
    }
}
