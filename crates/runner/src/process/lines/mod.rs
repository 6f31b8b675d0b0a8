//! Strict JSON lines from an agent's output.

mod reader;

pub use qd_core::harness::lines::{LINE_BYTES_MAX, LineSplitter, LineTooLong};
pub use reader::{LineReader, READ_BUFFER_BYTES};
