//! The run document as a view: records become its events, its commands become ours, answers become `rpc.response`.
//!
//! A session is a run, a runner is a host. What stands in the document is in `qd_wire::run_protocol`.

pub mod answer;
pub mod event;
pub mod history;
pub mod host;
pub mod request;

pub use crate::record::{self, SessionKind};
