//! Packed blocks: one byte that names the packing, then the block in raw deflate.
//!
//! Each block is packed by itself, without memory of the ones before: a lost link leaves nothing to agree on again.

use bytes::Bytes;
use miniz_oxide::deflate::compress_to_vec;
use miniz_oxide::inflate::{TINFLStatus, decompress_to_vec_with_limit};

/// The first byte of a message in raw deflate.
const DEFLATE: u8 = 1;
/// Fast: lines of JSON shrink well at any level, and the link's task does the work.
const LEVEL: u8 = 1;

/// The packed form of a block; `None` when it is not shorter.
pub(super) fn pack(block: &[u8]) -> Option<Bytes> {
    let deflated = compress_to_vec(block, LEVEL);
    if deflated.len() + 1 >= block.len() {
        return None;
    }
    let mut message = Vec::with_capacity(deflated.len() + 1);
    message.push(DEFLATE);
    message.extend_from_slice(&deflated);
    Some(Bytes::from(message))
}

/// The block of a packed message, at most `bytes_max` long; an error says why the link cannot go on.
pub(super) fn unpack(message: &[u8], bytes_max: usize) -> Result<Bytes, String> {
    let deflated = match message.split_first() {
        Some((&DEFLATE, deflated)) => deflated,
        Some((other, _)) => {
            return Err(format!("the other end sent a block in an unknown packing ({other})"));
        }
        None => return Err("the other end sent an empty binary message".to_owned()),
    };
    // The limit is on the unpacked size: a few kilobytes can unpack to gigabytes.
    match decompress_to_vec_with_limit(deflated, bytes_max) {
        Ok(block) => Ok(Bytes::from(block)),
        Err(error) if error.status == TINFLStatus::HasMoreOutput => {
            Err(format!("the other end sent a packed block of more than {bytes_max} bytes"))
        }
        Err(_) => Err("the other end sent a packed block that cannot be unpacked".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_no_packed_block_is_told_apart() {
        let bomb = pack(&vec![b'x'; 1_000_000]).unwrap();
        assert!(bomb.len() < 10_000, "{}", bomb.len());
        assert!(unpack(&bomb, 999_999).unwrap_err().contains("more than 999999 bytes"));
        assert_eq!(unpack(&bomb, 1_000_000).unwrap().len(), 1_000_000);
        assert!(unpack(&[], 10).unwrap_err().contains("empty"));
        assert!(unpack(&[7, 1, 2], 10).unwrap_err().contains("unknown packing (7)"));
        assert!(unpack(&[1, 0xff, 0xff, 0xff], 10).unwrap_err().contains("cannot be unpacked"));
        assert!(unpack(&bomb[..bomb.len() / 2], 1_000_000).unwrap_err().contains("cannot be unpacked"));
    }

    proptest! {
        #[test]
        fn packing_keeps_every_byte(block in proptest::collection::vec(any::<u8>(), 0..4096), times in 1_usize..20) {
            let block = block.repeat(times);
            if let Some(message) = pack(&block) {
                prop_assert!(message.len() < block.len());
                prop_assert_eq!(unpack(&message, block.len()).unwrap(), block);
            }
        }

        #[test]
        fn unpacking_garbage_neither_panics_nor_grows(message in proptest::collection::vec(any::<u8>(), 0..2048)) {
            if let Ok(block) = unpack(&message, 4096) {
                prop_assert!(block.len() <= 4096);
            }
        }
    }
}
