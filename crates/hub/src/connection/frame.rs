//! Server frames of the WebSocket protocol, encoded once. They carry no mask, so the same bytes serve every client.

use bytes::{BufMut, Bytes, BytesMut};

const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
/// The longest header of a server frame.
pub(crate) const HEADER_BYTES_MAX: usize = 10;
/// A control frame carries at most 125 bytes, two of which are the close code.
const CLOSE_REASON_BYTES_MAX: usize = 123;

/// A ping without payload.
pub(crate) const PING: Bytes = Bytes::from_static(&[0x89, 0]);

/// Writes the header of a text frame.
pub(crate) fn put_text_header(out: &mut BytesMut, payload_bytes: usize) {
    out.put_u8(TEXT);
    match payload_bytes {
        0..=125 => out.put_u8(payload_bytes as u8),
        126..=0xffff => {
            out.put_u8(126);
            out.put_u16(payload_bytes as u16);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(payload_bytes as u64);
        }
    }
}

/// One text frame.
pub(crate) fn text(payload: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(payload.len() + HEADER_BYTES_MAX);
    put_text_header(&mut out, payload.len());
    out.put_slice(payload);
    out.freeze()
}

/// One text frame of several pieces, copied once.
pub(crate) fn text_of(pieces: &[&[u8]]) -> Bytes {
    let length = pieces.iter().map(|part| part.len()).sum();
    let mut out = BytesMut::with_capacity(length + HEADER_BYTES_MAX);
    put_text_header(&mut out, length);
    pieces.iter().for_each(|part| out.put_slice(part));
    out.freeze()
}

/// The first frame of `frames` and its payload, if it is a whole text frame as they are written here.
pub(crate) fn split_text(frames: &[u8]) -> Option<(&[u8], &[u8])> {
    let (start, length) = match *frames {
        [TEXT, length @ 0..=125, ..] => (2, usize::from(length)),
        [TEXT, 126, high, low, ..] => (4, usize::from(u16::from_be_bytes([high, low]))),
        [TEXT, 127, ..] => {
            let length = u64::from_be_bytes(frames.get(2..10)?.try_into().ok()?);
            (10, usize::try_from(length).ok()?)
        }
        _ => return None,
    };
    let end = length.checked_add(start)?;
    Some((frames.get(..end)?, frames.get(start..end)?))
}

/// A close frame; a long reason is cut.
pub(crate) fn close(code: u16, reason: &str) -> Bytes {
    let mut end = reason.len().min(CLOSE_REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let mut out = BytesMut::with_capacity(4 + end);
    out.put_u8(CLOSE);
    out.put_u8(2 + end as u8);
    out.put_u16(code);
    out.put_slice(&reason.as_bytes()[..end]);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use tungstenite::protocol::frame::FrameHeader;

    use super::*;

    #[test]
    fn headers_are_what_the_library_reads() {
        for length in [0, 1, 125, 126, 127, 65_535, 65_536, 70_000] {
            let bytes = text(&vec![b'x'; length]);
            let mut cursor = Cursor::new(&bytes[..]);
            let (header, payload) = FrameHeader::parse(&mut cursor).unwrap().unwrap();
            assert_eq!(payload, length as u64);
            assert!(header.is_final && header.mask.is_none());
            assert_eq!(bytes.len() as u64, cursor.position() + payload);
            let two = [&bytes[..], b"rest"].concat();
            assert_eq!(split_text(&two), Some((&bytes[..], &bytes[bytes.len() - length..])));
            assert_eq!(split_text(&bytes[..bytes.len() - 1]), None);
        }
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let bytes = close(1009, &"ü".repeat(100));
        assert_eq!(bytes[1] as usize, bytes.len() - 2);
        assert!(bytes.len() <= 127 && std::str::from_utf8(&bytes[4..]).is_ok());
    }
}
