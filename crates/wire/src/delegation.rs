//! Part 8: delegation between agents.

use crate::derive::wire;
use serde_json::Value;

/// What one session asks of another.
#[wire]
pub struct DelegateRequest {
    pub target_session_id: String,
    pub target_runner_id: Option<String>,
    pub message: String,
    pub mode: DelegateMode,
    pub sandbox_profile: Option<String>,
    pub timeout_ms: Option<u64>,
    pub max_tokens: Option<u64>,
    #[ts(optional, type = "unknown")]
    pub context: Option<Value>,
}

#[wire(words)]
pub enum DelegateMode {
    Sync,
    Async,
}

#[wire(words)]
pub enum DelegateErrorCode {
    TargetNotFound,
    PermissionDenied,
    Timeout,
    TargetError,
    Cancelled,
    RunnerUnreachable,
}

/// Who may delegate to whom.
#[wire(Eq)]
pub struct DelegationPermission {
    pub source: String,
    pub target: String,
    pub effect: PermissionEffect,
    pub required_sandbox: Option<String>,
    #[serde(default = "default_max_depth")]
    pub max_depth: u32,
    #[serde(default = "default_allow_async")]
    pub allow_async: bool,
    pub description: Option<String>,
}

fn default_max_depth() -> u32 {
    3
}

fn default_allow_async() -> bool {
    true
}

#[wire(words)]
pub enum PermissionEffect {
    Allow,
    Deny,
}
