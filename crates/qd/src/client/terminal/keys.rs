//! What a person types: text for the program, or the key that leaves it.

use std::io::Read;

use tokio::sync::mpsc;

use crate::error::Result;

/// Ctrl-], which terminals use for leaving and programs hardly ever for anything else.
const LEAVE: u8 = 0x1d;
/// Pieces of input that may wait; a pipe that is faster waits itself.
const PIECES_MAX: usize = 16;
const PIECE_BYTES: usize = 4096;

/// What a piece of input means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyInput {
    Text(String),
    /// The person leaves; what was typed with the key is not sent.
    Detach,
}

/// Joins characters over the edges of pieces, and finds the key that leaves: pressed twice, it is passed on once.
pub(super) struct KeyDecoder {
    has_leave_key: bool,
    rest: Vec<u8>,
}

impl KeyDecoder {
    pub(super) fn new(has_leave_key: bool) -> KeyDecoder {
        KeyDecoder { has_leave_key, rest: Vec::new() }
    }

    pub(super) fn take(&mut self, bytes: &[u8]) -> KeyInput {
        let mut bytes = bytes.to_vec();
        if self.has_leave_key && bytes.contains(&LEAVE) {
            if bytes == [LEAVE] || !bytes.windows(2).any(|pair| pair == [LEAVE, LEAVE]) {
                return KeyInput::Detach;
            }
            bytes.dedup_by(|left, right| *left == LEAVE && *right == LEAVE);
        }
        self.rest.append(&mut bytes);
        // The end of a piece may be the middle of a character.
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(_) => self.rest.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.rest.len(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        KeyInput::Text(text)
    }
}

/// Reads stdin as it comes; the channel ends with it. A thread does it, because a read of a terminal cannot be taken
/// back.
pub(super) fn read_stdin() -> Result<mpsc::Receiver<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel(PIECES_MAX);
    let read = move || {
        let mut buffer = [0; PIECE_BYTES];
        loop {
            match std::io::stdin().lock().read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    if sender.blocking_send(buffer[..count].to_vec()).is_err() {
                        return;
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("stdin".to_owned()).spawn(read)?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_joined_and_the_leave_key_is_found() {
        let mut keys = KeyDecoder::new(true);
        let euro = "€".as_bytes();
        assert_eq!(keys.take(&euro[..1]), KeyInput::Text(String::new()));
        assert_eq!(keys.take(&euro[1..]), KeyInput::Text("€".to_owned()));
        assert_eq!(keys.take(b"\x03"), KeyInput::Text("\u{3}".to_owned()), "Ctrl-C is the program's");
        assert_eq!(keys.take(&[LEAVE]), KeyInput::Detach);
        assert_eq!(keys.take(&[b'a', LEAVE, LEAVE]), KeyInput::Text("a\u{1d}".to_owned()));
        let mut pipe = KeyDecoder::new(false);
        assert_eq!(pipe.take(&[LEAVE]), KeyInput::Text("\u{1d}".to_owned()));
        assert_eq!(pipe.take(b"\xff!"), KeyInput::Text("\u{fffd}!".to_owned()));
    }
}
