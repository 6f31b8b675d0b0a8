//! The hub as its clients and its runner see it: a real server and a real store; the runner is a script.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail like tests")]

mod access;
mod floods;
mod garbage;
mod holes;
mod hosts;
mod pi_server;
mod push;
mod rest;
mod run;
mod runners;
mod sessions;
mod support;
mod tls;
