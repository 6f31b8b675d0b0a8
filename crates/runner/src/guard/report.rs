//! What the guard tells the runner: one line of JSON each.

use std::io::Write;
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

/// The longest report line; the runner takes a longer one for a broken guard.
pub(crate) const REPORT_BYTES_MAX: usize = 64 * 1024;
/// How many surviving process ids an exit report names at most.
pub(crate) const LEFT_PIDS_MAX: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum GuardReport {
    /// The agent runs: its exec succeeded.
    Pid { pid: i32 },
    /// The agent ended and so did all its descendants, save those `left`.
    Exit {
        exit: ExitReport,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left: Vec<i32>,
    },
    /// The agent could not be started.
    Error { error: String, errno: Option<i32> },
}

/// Neither field is set when the agent could not be killed in time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitReport {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<i32>,
}

impl GuardReport {
    /// Sends the report; a runner that is gone cannot be told, so failures are not passed on.
    pub(super) fn send(&self, control: &mut UnixStream) {
        if let Ok(mut line) = serde_json::to_vec(self) {
            line.push(b'\n');
            // The runner's death shows as end of file on the same socket.
            let _ = control.write_all(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_have_the_agreed_shape() {
        for (report, line) in [
            (GuardReport::Pid { pid: 123 }, r#"{"pid":123}"#),
            (
                GuardReport::Exit { exit: ExitReport { code: Some(3), signal: None }, left: vec![] },
                r#"{"exit":{"code":3}}"#,
            ),
            (
                GuardReport::Exit { exit: ExitReport { code: None, signal: Some(9) }, left: vec![7] },
                r#"{"exit":{"signal":9},"left":[7]}"#,
            ),
            (
                GuardReport::Error { error: "no such file".into(), errno: Some(2) },
                r#"{"error":"no such file","errno":2}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&report).unwrap(), line);
            assert_eq!(serde_json::from_str::<GuardReport>(line).unwrap(), report);
        }
    }
}
