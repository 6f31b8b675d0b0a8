//! Bytes that come in pieces become text; no character is cut at the edge of a piece.

/// A character of UTF-8 has four bytes at most, so an unfinished one has three.
const REST_BYTES_MAX: usize = 3;

/// Joins pieces of bytes. However they are cut, the text is what the whole would give: what is no UTF-8 becomes
/// U+FFFD, as [`String::from_utf8_lossy`] does it.
#[derive(Debug, Clone, Default)]
pub struct Utf8Joiner {
    /// The beginning of a character whose end has not come.
    rest: [u8; REST_BYTES_MAX],
    rest_len: usize,
}

impl Utf8Joiner {
    /// Adds the text of these bytes to `out`; an unfinished character waits for the next piece.
    pub fn push(&mut self, bytes: &[u8], out: &mut String) {
        if self.rest_len == 0 {
            return self.push_whole(bytes, out);
        }
        // A character ends within three more bytes; the few in question are looked at together with the rest.
        let mut front = [0; 2 * REST_BYTES_MAX];
        let from_bytes = bytes.len().min(REST_BYTES_MAX);
        let rest_len = std::mem::take(&mut self.rest_len);
        front[..rest_len].copy_from_slice(&self.rest[..rest_len]);
        front[rest_len..rest_len + from_bytes].copy_from_slice(&bytes[..from_bytes]);
        let front = &front[..rest_len + from_bytes];
        let taken = match first_character(front) {
            FirstCharacter::Unfinished => {
                // Three bytes more would have ended it, so these are all there are.
                self.keep(front);
                return;
            }
            FirstCharacter::Valid(len) => {
                out.push_str(&String::from_utf8_lossy(&front[..len]));
                len
            }
            FirstCharacter::Invalid(len) => {
                out.push(char::REPLACEMENT_CHARACTER);
                len
            }
        };
        if taken >= rest_len {
            self.push_whole(&bytes[taken - rest_len..], out);
        } else {
            // Only a part of the rest was wrong; what is left of it begins anew.
            let left: Vec<u8> = front[taken..rest_len].iter().chain(bytes).copied().collect();
            self.push_whole(&left, out);
        }
    }

    /// Nothing more comes (or nothing may wait): an unfinished character is U+FFFD.
    pub fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.rest_len) > 0 {
            out.push(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Whether an unfinished character waits.
    pub fn has_rest(&self) -> bool {
        self.rest_len > 0
    }

    fn push_whole(&mut self, bytes: &[u8], out: &mut String) {
        let mut left = bytes;
        loop {
            let error = match std::str::from_utf8(left) {
                Ok(text) => return out.push_str(text),
                Err(error) => error,
            };
            let (valid, after) = left.split_at(error.valid_up_to());
            // Just checked, so nothing is replaced and nothing is copied twice.
            out.push_str(&String::from_utf8_lossy(valid));
            match error.error_len() {
                None => return self.keep(after),
                Some(len) => {
                    out.push(char::REPLACEMENT_CHARACTER);
                    left = &after[len..];
                }
            }
        }
    }

    fn keep(&mut self, rest: &[u8]) {
        debug_assert!(rest.len() <= REST_BYTES_MAX, "a longer one is a character or wrong");
        let len = rest.len().min(REST_BYTES_MAX);
        self.rest[..len].copy_from_slice(&rest[..len]);
        self.rest_len = len;
    }
}

enum FirstCharacter {
    Valid(usize),
    Invalid(usize),
    Unfinished,
}

fn first_character(bytes: &[u8]) -> FirstCharacter {
    match std::str::from_utf8(bytes) {
        Ok(text) => FirstCharacter::Valid(text.chars().next().map_or(0, char::len_utf8)),
        Err(error) if error.valid_up_to() > 0 => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            FirstCharacter::Valid(valid.chars().next().map_or(0, char::len_utf8))
        }
        Err(error) => error.error_len().map_or(FirstCharacter::Unfinished, FirstCharacter::Invalid),
    }
}
