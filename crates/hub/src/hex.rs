//! Hex digits of bytes, and hashes read from them.

use crate::access::authenticate::Hash;

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A hash in 64 hex digits.
pub(crate) fn hash_from_hex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != hash.len() * 2 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, place) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[place..place + 2], 16).ok()?;
    }
    Some(hash)
}
