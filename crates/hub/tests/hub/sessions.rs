//! Sessions as clients of `/ws/mux` follow and command them.

mod attach;
mod channels;
mod commands;
mod slow;
mod streams;
