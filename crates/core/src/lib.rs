//! The pure machines: the session, lanes and outcomes, message assembly, approvals, supervision, and the
//! codecs of the agents we drive (`harness`).
//!
//! No I/O, no async, no clock, no randomness: time and ids come in as arguments, effects go out as values.
//! So everything here is tested with data, properties and fuzzing. It may depend on `wire` only.
#![forbid(unsafe_code)]
// A new event or command must be looked at wherever events and commands are told apart; tests pick what they check.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

pub mod agent;
pub mod breaker;
#[cfg(test)]
mod choices;
pub mod command_queue;
mod events;
pub mod harness;
pub mod health;
pub mod ledger;
pub mod projection;
pub mod redact;
pub mod session;
pub mod terminal;
mod values;
pub mod view;

pub use events::{event_writer, record};
pub use values::{encoding, fingerprint, ids, time};
