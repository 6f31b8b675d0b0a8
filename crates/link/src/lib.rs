//! Framed duplex between hub, runner and clients. One JSON object per line; lines travel in blocks of whole
//! lines, so that a burst costs one wake-up.
//!
//! `memory` joins hub and runner in one process; `client` is the typed client of `/ws/mux`. What the lines
//! mean is not known here.
#![forbid(unsafe_code)]

pub mod client;
pub mod memory;
