use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds. The one place of this crate that reads the wall clock.
#[allow(clippy::disallowed_methods, reason = "the hub is an edge; its pure parts take times as arguments")]
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
