//! Framed duplex between hub, runner and clients. One JSON object per line; lines travel in blocks of whole
//! lines, so that a burst costs one wake-up.
//!
//! `memory` joins hub and runner in one process, `socket` joins them over WebSockets and unix sockets, `runner`
//! dials the hub; `client` is the typed client of `/ws/mux`, `rest` of the hub's JSON calls,
//! over `http`. What the lines mean
//! is not known here.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod client;
pub mod clock;
pub mod host;
pub mod http;
pub mod memory;
pub mod mutex;
pub mod net;
mod open;
pub mod rest;
pub mod runner;
pub mod socket;
pub mod tls;
pub mod url;
