//! Keys of records and spooled lines: a session's short number and a `seq` in one integer. New rows of a session then
//! always go to the end of its range, and a session is read or deleted as one range.

use crate::error::{Result, StoreError};
pub(crate) use crate::hub::SEQ_MAX;

const SEQ_BITS: u32 = 40;
const _: () = assert!(SEQ_MAX == (1 << SEQ_BITS) - 1, "a record's number fills its part of the key");
/// How many sessions fit beside a 40-bit `seq` in a positive 64-bit key.
const SESSION_KEY_MAX: i64 = (1 << (63 - SEQ_BITS)) - 1;

/// The first key of a session's range; `base + seq` is the key of one record.
pub(crate) fn session_base(session_key: i64) -> Result<i64> {
    if (0..=SESSION_KEY_MAX).contains(&session_key) {
        return Ok(session_key << SEQ_BITS);
    }
    Err(StoreError::Invalid(format!("more than {SESSION_KEY_MAX} sessions in one database: delete old ones")))
}

/// A record's `seq` as the database's integer; records start at 1.
pub(crate) fn record_seq(seq: u64) -> Result<i64> {
    match i64::try_from(seq) {
        Ok(value) if (1..=SEQ_MAX).contains(&seq) => Ok(value),
        _ => Err(StoreError::Invalid(format!("seq {seq} is outside 1..={SEQ_MAX}"))),
    }
}

/// A cursor: like `record_seq`, but 0 means before the first, and anything greater than all means the end.
pub(crate) fn cursor_seq(seq: u64) -> i64 {
    seq.min(SEQ_MAX).cast_signed()
}

/// The inverse of `session_base` plus `record_seq`: the session's part of the key is masked away.
pub(crate) fn seq_of(record_key: i64) -> u64 {
    record_key.cast_unsigned() & SEQ_MAX
}

/// A limit as the database's integer; one that is greater than all means no limit.
pub(crate) fn row_limit(limit: impl TryInto<i64>) -> i64 {
    limit.try_into().unwrap_or(i64::MAX)
}

/// Counters travel as `u64` and are stored as SQLite's signed integers.
pub(crate) fn counter(name: &str, value: u64) -> Result<i64> {
    i64::try_from(value).map_err(|_| StoreError::Invalid(format!("{name} {value} is too great")))
}
