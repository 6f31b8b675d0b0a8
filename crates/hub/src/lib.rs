//! What clients talk to.
#![forbid(unsafe_code)]
