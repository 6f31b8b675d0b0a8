//! The pi-server face: clients written for its document.

mod commands;
mod durability;
mod events;
mod load;
mod order;
mod ports;
pub(crate) mod support;
