//! Numbers and bytes as text: hexadecimal digits for digests and random bytes, base 36 for short ids.

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes that hexadecimal digits stand for, in either case.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|character| u8::try_from(character.to_digit(16)?).ok()).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
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
    fn bytes_are_written_and_read_as_hexadecimal_digits() {
        assert_eq!(hex(&[0, 0x0f, 0xa5]), "000fa5");
        assert_eq!(from_hex("000FA5").as_deref(), Some(&[0, 0x0f, 0xa5][..]));
        for text in ["0", "0g", "+1", "ä"] {
            assert_eq!(from_hex(text), None, "{text}");
        }
    }
}
