//! The server side: `qd up` and `qd pi-server`, with what both put into the data directory.

pub(crate) mod app;
pub(crate) mod data_dir;
pub(crate) mod endpoint;
mod file_limit;
pub(crate) mod hub_and_runner;
pub(crate) mod pi_server;
pub(crate) mod pi_server_port;
pub(crate) mod runner_socket;
pub(crate) mod stop_signals;
pub(crate) mod tls;
pub(crate) mod up;
