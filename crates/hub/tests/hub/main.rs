//! The hub as its clients and its runner see it: a real server and a real store; the runner is a script.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

mod access;
mod attach;
mod away;
mod commands;
mod fleet;
mod fleet_support;
mod garbage;
mod joining;
mod links;
mod lives;
mod pi_ports;
mod pi_server;
mod pi_server_durability;
mod pi_server_events;
mod pi_server_load;
mod pi_server_order;
mod pi_server_support;
mod slow;
mod storing;
mod streams;
mod support;
mod tls;
mod tokens;
