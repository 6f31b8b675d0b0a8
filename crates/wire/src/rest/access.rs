//! Bodies of the REST calls about access tokens: add, list, revoke.

use crate::command_table::Permission;
use crate::derive::wire;

/// Answer of `GET /api/tokens`.
#[wire(Eq)]
pub struct AccessTokens {
    /// By name.
    pub tokens: Vec<AccessTokenInfo>,
}

/// An access token as lists show it: without the token.
#[wire(Eq)]
pub struct AccessTokenInfo {
    /// Of the owner's tokens also the name of the principal that commands are from; a person's act as that person.
    pub name: String,
    /// Unix milliseconds.
    pub created_at: i64,
    /// Unix milliseconds, to the minute; absent if it was never used.
    pub last_used_at: Option<i64>,
    /// Whose it is; absent for the owner's own.
    pub owner: Option<String>,
    /// What it may do; without it all that its owner may.
    pub scopes: Option<Vec<Permission>>,
    /// Unix milliseconds.
    pub expires_at: Option<i64>,
}

/// Body of `POST /api/tokens`.
#[wire(Default, Eq)]
pub struct NewAccessToken {
    /// 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// What it may do; without it all that the asker may.
    pub scopes: Option<Vec<Permission>>,
    /// How long it is good; for ever without it.
    pub days: Option<u32>,
}

/// Answer of `POST /api/tokens`: the only time the token is shown.
#[wire(Eq)]
pub struct AddedAccessToken {
    pub name: String,
    pub token: String,
}
