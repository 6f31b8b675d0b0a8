//! The one place of this crate that may read a clock. It is monotonic, because the store must know no wall clock.

use std::time::Instant;

/// The monotonic clock of the writer thread: it paces the lazy flush of acks and nothing else. Inline stores have
/// tokio's clock instead.
#[allow(clippy::disallowed_methods)] // The store is an edge, and this is its one clock shim.
pub(crate) fn now() -> Instant {
    Instant::now()
}
