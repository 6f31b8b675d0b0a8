//! Views: what other protocols' documents say, in terms of our own commands and events.

pub mod pi_server;
pub mod run;
