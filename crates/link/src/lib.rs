//! Framed duplex between hub, runner and clients.
#![forbid(unsafe_code)]
