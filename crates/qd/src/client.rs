//! The client side: the connection to a server, and a session shown on this terminal.

pub(crate) mod connection;
pub(crate) mod conversation;
pub(crate) mod questions;
pub(crate) mod rest;
pub(crate) mod sessions;
pub(crate) mod terminal;
