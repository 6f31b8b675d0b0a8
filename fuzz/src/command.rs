//! Heads of clients' frames.

#[allow(dead_code, unreachable_pub, reason = "the targets use a part of the hub's file")]
#[path = "../../crates/hub/src/command/head.rs"]
mod included;

/// What the hub reads of a frame.
#[derive(Debug, PartialEq)]
pub struct FrameHead {
    pub cmd: String,
    pub session_id: Option<String>,
    pub runner_id: Option<String>,
    pub depends_on: Vec<String>,
    /// Whether the conditions can be read too.
    pub has_conditions: bool,
}

/// Whether it is an object that the hub looks into.
pub fn is_object(text: &str) -> bool {
    included::read_fields(text).is_ok()
}

/// Reads a frame of `/ws/mux`; `None` for one that is refused.
pub fn read_frame(text: &str) -> Option<FrameHead> {
    let fields = included::read_fields(text).ok()?;
    let head = included::read_head(&fields).ok()?;
    let _ = included::wait(&fields);
    Some(owned(head, included::check_conditions(&fields).is_ok() && !included::has_version(&fields)))
}

/// Reads the body of `POST /api/commands`.
pub fn read_body(text: &str) -> Option<FrameHead> {
    let fields = included::read_fields(text).ok()?;
    let head = included::read_body_head(&fields).ok()?;
    Some(owned(head, included::check_conditions(&fields).is_ok()))
}

fn owned(head: included::CommandHead<'_>, has_conditions: bool) -> FrameHead {
    FrameHead {
        cmd: head.cmd.into_owned(),
        session_id: head.session_id.map(Into::into),
        runner_id: head.runner_id.map(Into::into),
        depends_on: head.depends_on,
        has_conditions,
    }
}
