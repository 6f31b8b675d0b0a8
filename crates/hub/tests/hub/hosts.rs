//! Hosts that others wrote for the run document.

mod cuts;
mod runs;
pub(crate) mod support;
