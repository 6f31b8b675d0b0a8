//! Codecs: one folder per agent program, native bytes in, [`crate::agent::AgentEvent`]s out, and back.

pub mod demo;
pub mod lines;
pub mod pi;
