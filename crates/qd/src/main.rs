//! The one binary, `qd`.
#![forbid(unsafe_code)]

fn main() {}
