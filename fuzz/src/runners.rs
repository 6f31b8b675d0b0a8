//! Heads of link lines.

#[allow(dead_code, unreachable_pub, reason = "the targets use a part of the hub's file")]
#[path = "../../crates/hub/src/runners/line_head.rs"]
mod included;

pub(crate) mod line_head {
    pub(crate) use super::included::*;
}

pub use api::*;

/// The same for the targets, which are crates of their own.
mod api {
    use super::included::{self, LineHead};

    /// Whether a line of another machine passes the hub's check.
    pub fn is_checked(line: &str) -> bool {
        included::check(line).is_ok()
    }

    /// A line as the hub reads it.
    #[derive(Debug, PartialEq)]
    pub enum ReadLine {
        Event { session_id: String, ts: i64, seq: Option<u64>, event: String, frame: String, body: String },
        Response { id: String, session_id: Option<String>, success: bool, tail: String },
        Other(String),
    }

    /// Reads a line of the runner `runner_id`; `None` for one that is refused.
    pub fn read_line(line: &str, runner_id: &str) -> Option<ReadLine> {
        Some(match included::parse(line, runner_id).ok()? {
            LineHead::Event(head) => ReadLine::Event {
                frame: format!("{{\"channel\":\"agent\",{}", head.tail),
                body: format!("{{{}", &head.tail[head.body_at..]),
                session_id: head.session_id.into_owned(),
                ts: head.ts,
                seq: head.seq,
                event: head.event.into_owned(),
            },
            LineHead::Response(head) => ReadLine::Response {
                id: head.id.into_owned(),
                session_id: head.session_id.map(Into::into),
                success: head.success,
                tail: format!("{{{}", head.tail),
            },
            LineHead::Other(kind) => ReadLine::Other(kind.into_owned()),
        })
    }
}
