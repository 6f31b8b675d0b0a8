//! Documents of the faces, each with its own words and its own table.

pub mod pi_server;
pub mod run_protocol;
