//! Faces: other protocols on top of the hub's own commands and events.

pub(crate) mod host;
pub(crate) mod pi_server;
pub(crate) mod run;
