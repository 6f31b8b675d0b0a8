//! Runners: how they join, their links, what becomes of sessions while they are away, and storing what they send.

mod away;
mod fleet;
pub(crate) mod fleet_support;
mod joining;
mod links;
mod lives;
mod storing;
