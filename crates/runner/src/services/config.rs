//! What a runner is told about its services.

use std::path::PathBuf;
use std::time::Duration;

use qd_wire::people::{Rights, Role};

/// Settings of a runner's services.
#[derive(Debug, Clone)]
pub struct ServiceConfig {
    /// Directories a call may work in that names no session; it may also work in a session's directory.
    pub workspace_roots: Vec<PathBuf>,
    /// Who changes files and runs shell commands unasked, where the session has no rule of its own.
    pub gate_skip_roles: Vec<Role>,
    /// How long the question before such a call stays open; `None` for as long as it takes.
    pub gate_timeout: Option<Duration>,
    /// The file this process logs to.
    pub log_path: Option<PathBuf>,
    /// The hub's address, for people.
    pub server_base_url: Option<String>,
}

impl ServiceConfig {
    /// Whether a request with these rights passes the gate unasked, where the session has no rule of its own. Less than
    /// the whole role does not: a token with fewer scopes was made to be able to do less.
    pub(crate) fn skips_gate(&self, rights: Rights) -> bool {
        rights.has_whole_role() && self.gate_skip_roles.contains(&rights.role)
    }
}

impl Default for ServiceConfig {
    fn default() -> Self {
        ServiceConfig {
            workspace_roots: Vec::new(),
            gate_skip_roles: vec![Role::Owner],
            gate_timeout: None,
            log_path: None,
            server_base_url: None,
        }
    }
}
