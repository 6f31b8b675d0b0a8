//! The session machine: events of an agent in, records and live events out. One module per topic.
#![allow(clippy::unwrap_used, reason = "all of this is test code, helpers included")]

mod accepted_prompts;
mod answers;
mod gates;
mod golden;
mod properties;
mod questions;
mod queue;
mod resync;
mod runs;
mod support;
mod undelivered;
