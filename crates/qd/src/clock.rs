//! The clock and the random source of the system, for this crate.

pub(crate) use qd_link::clock::now_ms;

/// `bytes` random bytes as hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> Result<String, getrandom::Error> {
    let mut buffer = vec![0; bytes];
    getrandom::fill(&mut buffer)?;
    Ok(qd_core::encoding::hex(&buffer))
}

/// Any number, for jitter; a system without randomness gets none.
pub(crate) fn random_number() -> u64 {
    getrandom::u64().unwrap_or(0)
}
