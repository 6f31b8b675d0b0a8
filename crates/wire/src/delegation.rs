//! Part 8: delegation between agents.

use crate::derive::{JsonSchema, TS};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one session asks of another.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelegateMode {
    Sync,
    Async,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DelegateErrorCode {
    TargetNotFound,
    PermissionDenied,
    Timeout,
    TargetError,
    Cancelled,
    RunnerUnreachable,
}

/// Who may delegate to whom.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionEffect {
    Allow,
    Deny,
}
