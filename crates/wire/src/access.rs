//! Bodies of the REST calls about access tokens: add, list, revoke.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use ts_rs::TS;

/// Answer of `GET /api/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct AccessTokens {
    /// By name.
    pub tokens: Vec<AccessTokenInfo>,
}

/// An access token as lists show it: without the token.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
#[ts(optional_fields)]
pub struct AccessTokenInfo {
    /// Also the name of the principal that its commands are from.
    pub name: String,
    /// Unix milliseconds.
    pub created_at: i64,
    /// Unix milliseconds, to the minute; absent if it was never used.
    pub last_used_at: Option<i64>,
}

/// Body of `POST /api/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct NewAccessToken {
    /// 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
}

/// Answer of `POST /api/tokens`: the only time the token is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, TS, JsonSchema)]
pub struct AddedAccessToken {
    pub name: String,
    pub token: String,
}
