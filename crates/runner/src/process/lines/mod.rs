//! Strict JSON lines: `\n` ends a line and nothing else does.

mod reader;
mod splitter;
#[cfg(test)]
mod splitter_tests;

pub use reader::{LineReader, READ_BUFFER_BYTES};
pub use splitter::{LINE_BYTES_MAX, LineSplitter, LineTooLong};
