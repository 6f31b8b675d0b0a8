//! Numbers and bytes as text: hexadecimal digits for digests and random bytes, base 36 for short ids.

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A SHA-256 hash in 64 hexadecimal digits, of either case.
pub fn hash_from_hex(text: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if text.len() != hash.len() * 2 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, start) in hash.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[start..start + 2], 16).ok()?;
    }
    Some(hash)
}

/// Digits and lower-case letters, shortest form.
pub fn base36(mut number: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let mut digits = Vec::with_capacity(13);
    loop {
        digits.push(char::from(DIGITS[(number % 36) as usize]));
        number /= 36;
        if number == 0 {
            break;
        }
    }
    digits.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_written_and_read_as_hexadecimal_digits() {
        assert_eq!(hex(&[0, 0x0f, 0xa5]), "000fa5");
        let hash = [0xa5; 32];
        assert_eq!(hash_from_hex(&hex(&hash).to_uppercase()), Some(hash));
        for text in ["", "a5", &"+1".repeat(32), &"ä".repeat(32)] {
            assert_eq!(hash_from_hex(text), None, "{text}");
        }
    }
}
