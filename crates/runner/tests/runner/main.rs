//! A whole runner in the test's own process, with the test as its hub, its local clients or a foreign server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[cfg(target_os = "linux")]
mod check_create;
mod conversation_moves;
mod local_socket;
mod native_events;
#[cfg(target_os = "linux")]
mod pi_server;
#[cfg(target_os = "linux")]
mod queue_and_worktree;
mod restarts;
#[cfg(target_os = "linux")]
mod rights;
mod runs;
mod second_harness;
#[cfg(target_os = "linux")]
mod services;
#[cfg(target_os = "linux")]
mod session_programs;
#[cfg(target_os = "linux")]
mod supervision;
mod support;
mod uplink;
