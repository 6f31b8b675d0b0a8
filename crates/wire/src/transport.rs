//! What carries commands and events: frames of `/ws/mux` with its channels, and lines of the link.

pub mod channel;
pub mod link;
pub mod mux;
