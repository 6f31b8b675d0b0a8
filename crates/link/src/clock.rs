//! The one place that reads the wall clock for hub and runner. A simulated world puts its own clock in its place.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

thread_local! {
    static SIMULATED: Cell<Option<fn() -> i64>> = const { Cell::new(None) };
}

/// Unix milliseconds.
#[allow(clippy::disallowed_methods, reason = "this is the shim the rule asks for")]
pub fn now_ms() -> i64 {
    if let Some(now) = SIMULATED.get() {
        return now();
    }
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// From now on this thread lives by another clock; `None` is the wall clock again.
#[doc(hidden)]
pub fn simulate(now: Option<fn() -> i64>) {
    SIMULATED.set(now);
}
