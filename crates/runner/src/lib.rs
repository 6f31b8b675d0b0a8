//! The runner: owns agent processes and their sessions on one machine.
//!
//! It mints record numbers and message ids, admits commands, keeps versions and outcomes, holds open questions,
//! and spools records until the hub has them. Drivers (`driver`) speak to agents, `process` and `guard` start
//! them so that nothing survives, `session` runs one actor per session around the pure machine in `qd-core`.
//! What sessions say goes out through `hub_delivery`: to the hub over the link that `uplink` keeps, and to clients at
//! the socket of `local_socket`. Sessions keep running whether there is a hub or not.
//! It knows no client protocol but the link's, and never serves HTTP. The only crate with `unsafe` (to hand a
//! descriptor to a child).
#![deny(unsafe_op_in_unsafe_fn)]

/// Ends the function with an error that has this code and these words: `refuse!(NotFound, "no session {id}")`.
macro_rules! refuse {
    ($code:ident, $($words:tt)+) => {
        return Err(qd_wire::ErrorCode::$code.with(format!($($words)+)).into())
    };
}

mod clock;
mod config;
pub mod driver;
pub mod guard;
mod hub_delivery;
mod local_socket;
pub mod process;
mod runner;
mod services;
mod session;
mod submissions;
mod text;
mod uplink;

#[doc(hidden)]
#[cfg(feature = "planted-bugs")]
pub use config::PlantedBug;
pub use config::{RunnerConfig, RunsConfig, SPOOL_BYTES_MAX_DEFAULT};
pub use local_socket::LocalError;
pub use process::program_lookup::{SHIM_MARKER, find_program, is_shim};
pub use runner::{Runner, RunnerError};
pub use services::ServiceConfig;
pub use uplink::run_protocol::RunServer;
pub use uplink::{KeyError, KeyKeeper, Uplink, UplinkStatus};
