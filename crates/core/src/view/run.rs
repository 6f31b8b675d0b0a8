//! The run document as a view: records become its events, its commands become ours, answers become `rpc.response`.
//!
//! A session is a run, a runner is a host. What stands in the document is in `qd_wire::run_protocol`.

pub mod answer;
pub mod event;
pub mod facts;
pub mod history;
pub mod host;
pub mod record;
pub mod request;

/// RFC 3339 with milliseconds, of Unix milliseconds.
pub fn timestamp(unix_ms: i64) -> String {
    crate::harness::pi::time::iso_8601(unix_ms)
}

/// What kind of session a run is, as far as its records are read differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A program in a terminal: its records are the document's events.
    Terminal,
    /// Any other agent: the document's events are made of what it says.
    Agent,
}

impl Kind {
    pub fn of(harness: &str) -> Kind {
        if qd_wire::run::is_terminal(harness) { Kind::Terminal } else { Kind::Agent }
    }
}
