//! Small values and their text forms: times, ids, digests. Nothing here knows what they are for.

pub mod encoding;
pub mod fingerprint;
pub mod ids;
pub mod time;
