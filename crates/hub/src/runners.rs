//! Runners as the hub sees them: their state, the links they dial in with, and the lines of those links.

pub(crate) mod line_head;
pub(crate) mod link;
pub(crate) mod open_links;
pub(crate) mod runner;
pub(crate) mod stall_timeout;
