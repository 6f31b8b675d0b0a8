//! The pure machines: no I/O, no async, no clock, no randomness.
#![forbid(unsafe_code)]
