//! The one place of this crate that reads the wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
#[allow(clippy::disallowed_methods, reason = "this is the shim the rule asks for")]
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}
