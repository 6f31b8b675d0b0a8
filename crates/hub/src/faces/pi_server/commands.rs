//! The commands of the pi-server face: admitted, stored in the journal, executed, and announced to every client.

pub(crate) mod execute;
pub(crate) mod history;
pub(crate) mod journal;
pub(crate) mod lifecycle;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod pending_commands;
pub(crate) mod send_order;
pub(crate) mod sessions;
