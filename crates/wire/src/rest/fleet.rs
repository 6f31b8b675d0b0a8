//! Bodies of the REST calls about runners: invite, join, list, rotate, revoke.

use crate::derive::wire;

/// Answer of `POST /api/runners/invites`: good for one runner, for a few minutes.
#[wire(Eq)]
pub struct Invite {
    /// What the joining machine is given; with TLS it carries the fingerprint of the hub's certificate.
    pub code: String,
    /// Where the hub is, as the asker reached it.
    pub url: String,
    /// SHA-256 of the hub's certificate, in hex; absent without TLS.
    pub fingerprint: Option<String>,
    /// Unix milliseconds.
    pub expires_at: i64,
    /// What to type on the other machine.
    pub command: String,
}

/// Body of `POST /api/runners/join`. Repeating it with the same key is no second use of the code.
#[wire(Eq)]
pub struct JoinRequest {
    /// The secret part of the invite's code.
    pub code: String,
    pub runner_id: String,
    /// SHA-256 of the key the runner has made for itself, in hex; the key never leaves the runner until it connects.
    pub key_hash: String,
    pub hostname: String,
    pub os: String,
    pub version: String,
    /// Only if this hub knows the runner by this key already (its address has changed); otherwise 404, and the code
    /// stays good. So a key is never shown to a hub it was not made for.
    pub known_only: Option<bool>,
}

/// Answer of `POST /api/runners/join`.
#[wire(Eq)]
pub struct Joined {
    pub runner_id: String,
}
