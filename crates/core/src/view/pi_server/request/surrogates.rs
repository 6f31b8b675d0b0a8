//! Halves of characters: a JavaScript client that cuts a text inside an emoji sends `\ud83d` alone, which its own
//! parser takes and ours does not.
//!
//! The original accepts such frames, so refusing them would break clients that work with it.

/// What stands for a character that cannot be read.
const REPLACEMENT: &str = "\\ufffd";

/// The text with every half of a character replaced; `None` if there is none.
pub fn whole_characters(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let mut whole = String::new();
    let (mut from, mut at) = (0, 0);
    while let Some(found) = memchr::memchr(b'\\', &bytes[at..]) {
        let escape = at + found;
        at = match unit(bytes, escape) {
            Some(0xd800..=0xdbff) if matches!(unit(bytes, escape + 6), Some(0xdc00..=0xdfff)) => escape + 12,
            Some(0xd800..=0xdfff) => {
                whole.push_str(&text[from..escape]);
                whole.push_str(REPLACEMENT);
                from = escape + 6;
                from
            }
            Some(_) => escape + 6,
            // Another escape: its second byte is not the beginning of one.
            None => (escape + 2).min(bytes.len()),
        };
        at = at.min(bytes.len());
    }
    if from == 0 {
        return None;
    }
    whole.push_str(&text[from..]);
    Some(whole)
}

/// The number in the `\uXXXX` that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_replaced_and_whole_ones_stay() {
        for (sent, meant) in [
            (r#""a\ud83d""#, Some(r#""a\ufffd""#)),
            (r#""\ude00b""#, Some(r#""\ufffdb""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\ud83d\n""#, Some(r#""\ufffd\n""#)),
            (r#""\ud83d\ude00""#, None),
            (r#""\\ud83d""#, None),
            (r#""\u00e9 \"""#, None),
            (r#""\u12"#, None),
            ("\\", None),
        ] {
            assert_eq!(whole_characters(sent).as_deref(), meant, "{sent}");
        }
    }
}
