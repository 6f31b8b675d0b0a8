//! What a running server leaves in its data directory for the command line: its address and the owner's token.

use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// The address of a running server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) pid: u32,
    /// Of the server's certificate, so that commands on this machine know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fingerprint: Option<String>,
    /// The address it listens on, which may be "every one of this machine".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listen: Option<String>,
}

impl Endpoint {
    pub(crate) fn path(data_dir: &Path) -> PathBuf {
        data_dir.join("endpoint.json")
    }

    /// The server of this data directory; one whose process is gone does not count.
    pub(crate) fn read(data_dir: &Path) -> Option<Endpoint> {
        let text = std::fs::read_to_string(Self::path(data_dir)).ok()?;
        let endpoint: Endpoint = serde_json::from_str(&text).ok()?;
        is_alive(endpoint.pid).then_some(endpoint)
    }
}

/// Whether a process exists.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match test_kill_process(pid) {
        Ok(()) | Err(rustix::io::Errno::PERM) => true,
        Err(_) => false,
    }
}

/// The file of the owner's token.
pub(crate) fn token_path(data_dir: &Path) -> PathBuf {
    data_dir.join("owner-token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_a_dead_process_does_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let write = |pid: u32| {
            let endpoint =
                Endpoint { url: "http://127.0.0.1:1".into(), pid, fingerprint: None, listen: None };
            std::fs::write(Endpoint::path(directory.path()), serde_json::to_string(&endpoint).unwrap())
                .unwrap();
        };
        assert_eq!(Endpoint::read(directory.path()), None);
        write(std::process::id());
        assert!(Endpoint::read(directory.path()).is_some());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        write(child.id());
        assert_eq!(Endpoint::read(directory.path()), None);
    }
}
