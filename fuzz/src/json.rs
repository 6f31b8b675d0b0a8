//! Statements about JSON that hold for every text, also for odd ones: numbers that no float holds, halves of characters,
//! names that come twice, values deeper than a parser goes.

use serde::de::IgnoredAny;
use serde_json::Value;

/// Whether a text is JSON by its grammar. Numbers may be out of range and strings may have halves of characters.
pub fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// Whether writing a value that was read gives the same value when it is read again. Numbers with a fraction, an
/// exponent or many digits become floats, and reading those is not exact to the last bit.
pub fn is_exact(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_float =
        bytes.windows(2).any(|pair| pair[0].is_ascii_digit() && matches!(pair[1], b'.' | b'e' | b'E'));
    let is_long = bytes.windows(19).any(|digits| digits.iter().all(u8::is_ascii_digit));
    !is_float && !is_long
}

/// The value, where the usual parser takes it.
pub fn value(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}
