//! What travels: the types of the canonical protocol (messages, events, commands, channels, runner link,
//! delegation) with the one table that declares every command, and those of the faces (`pi_server`).
//!
//! Nothing here does anything: no I/O, no clock, no state. TypeScript and JSON Schema are generated from
//! these types by `cargo xtask codegen` (feature `codegen`). Compatibility is for ever: fields are added, never renamed.
#![forbid(unsafe_code)]

#[cfg(feature = "codegen")]
pub mod codegen;
pub mod command;
pub mod data;
pub mod delegation;
mod derive;
pub mod error;
pub mod event;
mod faces;
pub mod input;
pub mod message;
pub mod rest;
pub mod run;
pub mod service;
mod transport;

// The folders are for the eye; everything is known by these shorter paths.
pub use command::{answer, table as command_table};
pub use faces::{pi_server, run_protocol};
pub use rest::{access, fleet, people, push};
pub use transport::{channel, link, mux};

pub use command::{Command, CommandHead, CommandResponse};
pub use error::{CodedError, ErrorCode};
pub use event::{Event, EventEnvelope, EventPayload};
pub use input::InputRequest;
pub use message::{Message, Part, Role, StopReason, Usage};

/// A JSON object.
pub type JsonObject = serde_json::Map<String, serde_json::Value>;

/// The version a client sees in the first frame of `/ws/mux`.
pub const PROTOCOL_VERSION: &str = "1.0.0";

/// The pseudo session of commands that belong to no session.
pub const SYSTEM_SESSION: &str = "_system";
