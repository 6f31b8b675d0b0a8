//! What clients talk to: the HTTP and WebSocket server, access, the registry of runners and sessions,
//! routing of commands, and the fan-out of events.
//!
//! The hub forwards bytes. Of an event it reads the head (session, number, name) and, for records, what its
//! own tables keep; it never rewrites a body. It runs no agent and decides nothing about a session: the
//! runner is the authority. Other protocols on top of its commands and events are in `faces`.
#![forbid(unsafe_code)]
// A new event, command or state must be looked at wherever they are told apart; tests pick what they check.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]

mod access;
mod channels;
mod command;
mod config;
mod connection;
mod faces;
mod hub;
mod rest;
mod runners;
mod server;
mod sessions;

pub use access::authenticate::OwnerToken;
pub use access::invites::{INVITE_LIFE, INVITES_MAX};
pub use access::login::{LOGIN_CODE_LIFE, LOGIN_CODES_MAX, LOGIN_LINK_LIFE, LoginCodes};
#[cfg(feature = "planted-bugs")]
#[doc(hidden)]
pub use config::PlantedBug;
pub use config::{HubConfig, Limits};
pub use faces::{
    FaceSettings, PiConnector, PiConnectorClosed, PiConnectorEnd, PiServerConfig, PiServerPorts, PushConfig,
    PushKey, PushKeyError,
};
pub use server::assets::AppFile;
pub use server::listen::{FaceListeners, Listen};
pub use server::tls::{self, HubTls};
pub use server::{HubError, LocalRunner, serve, serve_with};
