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
mod ask;
mod assets;
mod audit;
mod audit_api;
mod channels;
mod clock;
mod command;
mod commands_api;
mod config;
mod connection;
mod effects;
mod envelope;
mod export_api;
mod faces;
mod files_api;
mod finished;
mod frame;
mod head;
mod http;
mod invites;
mod links;
mod listen;
mod login;
mod logins_api;
mod messages_api;
mod patience;
mod pending;
mod people_api;
mod presence;
mod principals;
mod published;
mod reads;
mod registry;
mod reply;
mod rest_routes;
mod ring;
mod runner_link;
mod runners_api;
mod safe_headers;
mod serve;
mod terminals;
pub mod tls;
mod tokens_api;
mod upgrade;
mod usage_api;

pub use access::OwnerToken;
pub use assets::AppFile;
#[doc(hidden)]
pub use config::PlantedBug;
pub use config::{HubConfig, Limits};
pub use faces::{
    FaceSettings, PiDoor, PiDoorClosed, PiDoorEnd, PiServerConfig, PiServerPorts, PushConfig, PushKey,
    PushKeyError,
};
pub use invites::{INVITE_LIFE, INVITES_MAX};
pub use listen::{Listen, WaysIn};
pub use login::{LOGIN_CODE_LIFE, LOGIN_CODES_MAX, LOGIN_LINK_LIFE, LoginCodes};
pub use serve::{HubError, LocalRunner, serve, serve_with};
pub use tls::HubTls;
