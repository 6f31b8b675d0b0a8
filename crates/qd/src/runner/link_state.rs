//! How the link to the hub stands, left in the data directory by a running runner for `qd runner status`.

use std::path::{Path, PathBuf};

use qd_runner::UplinkStatus;
use qd_wire::ErrorCode;
use serde::{Deserialize, Serialize};

use crate::private_files;
use crate::server::endpoint::is_alive;

/// The link as it was when it last changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkState {
    pid: u32,
    /// Unix milliseconds; absent while there is no link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) connected_since: Option<i64>,
    /// Why there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_failure: Option<String>,
    /// The same for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failure_code: Option<ErrorCode>,
}

impl LinkState {
    pub(super) fn of(status: &UplinkStatus) -> LinkState {
        LinkState {
            pid: std::process::id(),
            connected_since: status.connected_since,
            last_failure: status.last_failure.as_deref().map(brief).map(str::to_owned),
            failure_code: status.failure_code,
        }
    }

    /// Leaves it for others. It is only shown, so a disk that takes nothing is no reason to stop.
    pub(super) fn write(&self, data_dir: &Path) {
        let text = serde_json::to_string(self).unwrap_or_default();
        if let Err(error) = private_files::write_private(&path(data_dir), &text) {
            tracing::debug!(%error, "the state of the link could not be written");
        }
    }

    /// What the running runner has left; nothing when none runs.
    pub(crate) fn read(data_dir: &Path) -> Option<LinkState> {
        let text = std::fs::read_to_string(path(data_dir)).ok()?;
        let state: LinkState = serde_json::from_str(&text).ok()?;
        is_alive(state.pid).then_some(state)
    }
}

/// A reason without the address of a library's manual, which some end with.
pub(super) fn brief(reason: &str) -> &str {
    match reason.split_once("peer closed connection without sending TLS close_notify") {
        Some(_) => "the hub ended the connection",
        None => reason.split(": https://docs.rs").next().unwrap_or(reason),
    }
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("runner").join("link.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_short() {
        let rustls = "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/x";
        assert_eq!(brief(rustls), "the hub ended the connection");
        assert_eq!(brief("odd: https://docs.rs/x"), "odd");
        assert_eq!(brief("no route"), "no route");
    }

    #[test]
    fn the_state_of_a_dead_runner_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        private_files::make_private_dir(&directory.path().join("runner")).unwrap();
        let status = UplinkStatus { last_failure: Some("no route".into()), ..UplinkStatus::default() };
        let mut state = LinkState::of(&status);
        state.write(directory.path());
        assert_eq!(LinkState::read(directory.path()), Some(state.clone()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        state.pid = child.id();
        state.write(directory.path());
        assert_eq!(LinkState::read(directory.path()), None);
    }
}
