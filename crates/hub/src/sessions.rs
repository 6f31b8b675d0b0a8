//! The hub's copy of the sessions: what lists show of them, their live events and their subscribers, what their records
//! change in the store, and the reads that need no runner.

pub(crate) mod deleted_sessions;
pub(crate) mod effects;
pub(crate) mod presence;
pub(crate) mod published;
pub(crate) mod reads;
pub(crate) mod ring;
pub(crate) mod session;
pub(crate) mod session_lines;
pub(crate) mod terminal_cleanup;
