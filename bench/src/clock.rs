//! The only place that reads a clock.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

#[allow(clippy::disallowed_methods)] // Measuring is what this program is for.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds that two processes of one machine may compare.
#[allow(clippy::disallowed_methods)] // As above; `Instant` means nothing in another process.
pub(crate) fn wall_nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
