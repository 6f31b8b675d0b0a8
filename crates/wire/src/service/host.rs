//! What the shell and the services about the machine answer.

use crate::derive::wire;
use serde_json::Value;

/// What `host.bash` says while it runs.
#[wire(Default, Eq)]
pub struct BashOutput {
    /// `stdout` or `stderr`.
    pub stream: String,
    pub text: String,
    /// Where in the stream the text begins, in bytes.
    pub offset: Option<u64>,
    /// Bytes left out here, because they came faster than they could be told; the answer has them as far as it goes.
    pub skipped: Option<u64>,
}

/// Answer of `host.bash`, whatever the exit code: a command that failed has said why.
#[wire(Default, Eq)]
pub struct BashData {
    pub stdout: String,
    pub stderr: String,
    /// Absent when a signal ended it.
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub cancelled: bool,
    /// The beginning of one of the streams is missing.
    pub truncated: bool,
    /// All that the command wrote.
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub duration_ms: u64,
}

/// Answer of `host.info`; `host.doctor` and `host.capabilities` add to it.
#[wire(Default)]
pub struct HostInfoData {
    pub host_id: String,
    pub pid: u32,
    pub os: String,
    pub arch: String,
    pub version: String,
    pub hostname: String,
    pub tools: Vec<HostTool>,
    /// Of `host.doctor` and `host.capabilities`.
    pub deps: Option<Vec<HostDependency>>,
    /// Of `host.doctor`.
    #[ts(optional, type = "unknown")]
    pub bin_map: Option<Value>,
    /// Of `host.capabilities`, from here on.
    pub server_base_url: Option<String>,
    pub local_unix_socket: Option<String>,
    pub spool_db_path: Option<String>,
    pub log_path: Option<String>,
    pub supported_rpc: Option<Vec<String>>,
    pub harnesses: Option<Vec<String>>,
    pub workspace_roots: Option<Vec<String>>,
}

#[wire(Default, Eq)]
pub struct HostTool {
    pub tool: String,
    /// Where it is.
    pub bin: Option<String>,
    pub ok: bool,
    pub error: Option<String>,
}

#[wire(Default, Eq)]
pub struct HostDependency {
    pub name: String,
    pub ok: bool,
}

/// Answer of `host.logs`.
#[wire(Default, Eq)]
pub struct HostLogsData {
    pub path: String,
    pub text: String,
    pub truncated: bool,
}
