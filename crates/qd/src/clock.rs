//! The one place of this crate that reads the clock and the random source of the system.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
#[allow(clippy::disallowed_methods, reason = "this is the crate's clock shim")]
pub(crate) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// `bytes` random bytes as hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> Result<String, getrandom::Error> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer)?;
    Ok(buffer.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Any number, for jitter; a system without randomness gets none.
pub(crate) fn random_number() -> u64 {
    getrandom::u64().unwrap_or(0)
}
