//! The clients of the pi-server face: how they connect, what each connection does, and which events they get.

pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod followers;
pub(crate) mod handler;
pub(crate) mod natives;
pub(crate) mod port;
pub(crate) mod resync;
pub(crate) mod session_updates;
