//! The clocks of the runner: wall time, which a simulated world replaces, and monotonic time for measuring.

use std::time::Instant;

pub(crate) use qd_link::clock::now_ms;

/// Monotonic time, for durations only.
#[allow(clippy::disallowed_methods, reason = "this is the shim the rule asks for")]
pub(crate) fn monotonic_now() -> Instant {
    Instant::now()
}
