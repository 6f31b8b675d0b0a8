//! Any bytes as pi's output: no panic, the same events however the bytes are cut, and bounded memory.
//!
//! Its corpus has lines of `crates/core/tests/fixtures/pi`; more of them make a longer run better.
#![no_main]

use libfuzzer_sys::fuzz_target;
use qd_core::harness::lines::{LineSplitter, LineTooLong};
use qd_core::harness::pi::{PiCodec, PiOutput, conversation_from_file};

const LINE_BYTES_MAX: usize = 64 * 1024;
const RETAINED_BYTES_MAX: usize = 256 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let whole = decode(bytes, bytes.len().max(1));
    assert_eq!(whole, decode(bytes, 3));
    // Reading a file of anything ends, well or with an error.
    drop(conversation_from_file(bytes));
});

fn decode(bytes: &[u8], chunk: usize) -> Vec<PiOutput> {
    let mut splitter = LineSplitter::new(LINE_BYTES_MAX);
    let mut codec = PiCodec::new();
    let mut out = Vec::new();
    let mut each = |line: Result<&[u8], LineTooLong>| {
        if let Ok(line) = line {
            codec.line(line, 0, &mut out);
        }
        assert!(codec.retained_bytes() < RETAINED_BYTES_MAX);
    };
    for mut piece in bytes.chunks(chunk) {
        while let Some(line) = splitter.next_line(&mut piece) {
            each(line);
        }
    }
    if let Some(line) = splitter.finish() {
        each(line);
    }
    out
}
