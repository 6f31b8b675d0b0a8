//! Hosts that others wrote for the run document: `/ws/host`.
//!
//! The hub plays the document's server towards such a host. Each connection gets an adapter, which is a tiny runner
//! towards the hub's own runner links: what the host sends becomes link lines, the hub's commands become messages of
//! the document. So there is one way into the hub, and what holds for runners holds for hosts: a run belongs to its
//! first host for ever, what is not committed is not acked, a newer connection takes the place of the older one.

mod adapter;
mod api;
mod commands;
mod events;
mod inputs;
mod reading;
mod send_queue;

use std::sync::Arc;

use axum::extract::{Query, Request, State};
use axum::response::Response;
use axum::routing::any;
use axum::{Extension, Router};
use qd_link::clock::now_ms;
use qd_link::socket::SocketOptions;
use qd_store::{HostRow, HostTrust, StoreError};
use qd_wire::ErrorCode;
use serde::Deserialize;

use super::Face;
use crate::access::authenticate::{self, is_plain_name};
use crate::config::HubConfig;
use crate::runners::link::RunnerIdentity;
use crate::runners::open_links::LinkPermit;
use crate::server::Server;
use crate::server::listen::Peer;
use crate::server::router::failed;
use crate::server::upgrade::{NO_WEBSOCKET, UpgradedStream, accept_key, socket_link, switch};
use adapter::HostAdapter;

/// The longest message of a host; the original's library takes as much.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// The document wants both in the query; nothing of it is ever logged.
#[derive(Deserialize, Default)]
struct HostSecrets {
    #[serde(default)]
    host_id: String,
    #[serde(default)]
    host_token: String,
}

/// Why a host is not let in.
#[derive(Debug, thiserror::Error)]
enum HostRefusal {
    #[error("missing host_id/host_token query params")]
    Missing,
    #[error("'host_id' must be 1 to 64 of the characters A-Z a-z 0-9 . _ -")]
    BadName,
    #[error("host {host_id} waits to be confirmed: qd hosts confirm {host_id} {fingerprint}")]
    Pending { host_id: String, fingerprint: String },
    #[error("invalid host_id/host_token")]
    Wrong,
    #[error(
        "host {host_id} was revoked; an owner can let it in again: qd hosts confirm {host_id} {fingerprint}"
    )]
    Revoked { host_id: String, fingerprint: String },
    #[error("the hub cannot read its store: {0}")]
    Store(#[from] StoreError),
}

impl HostRefusal {
    const fn code(&self) -> ErrorCode {
        match self {
            HostRefusal::Missing | HostRefusal::Wrong => ErrorCode::NotLoggedIn,
            HostRefusal::Revoked { .. } => ErrorCode::RunnerRevoked,
            HostRefusal::BadName => ErrorCode::InvalidRequest,
            HostRefusal::Pending { .. } => ErrorCode::PermissionDenied,
            HostRefusal::Store(_) => ErrorCode::StoreUnavailable,
        }
    }
}

/// Everything of the face is in its connections, which are links.
pub(super) struct HostFace;

impl HostFace {
    pub(super) fn new(_config: &HubConfig) -> Self {
        Self
    }
}

impl Face for HostFace {
    fn routes(&self) -> Router<Server> {
        api::routes()
    }

    #[cfg(test)]
    fn described_routes(&self) -> &'static [(&'static str, &'static str)] {
        api::REST
    }

    fn machine_routes(&self) -> Router<Server> {
        Router::new().route("/ws/host", any(link))
    }
}

/// `GET /ws/host?host_id=…&host_token=…`
async fn link(
    State(server): State<Server>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Response {
    let secrets =
        Query::<HostSecrets>::try_from_uri(request.uri()).map(|Query(secrets)| secrets).unwrap_or_default();
    let host_id = secrets.host_id.clone();
    // Taken before the host is looked up: so who revokes it either comes before that, or finds the pass.
    let pass = server.fleet.links.pass(&host_id);
    if let Err(refusal) = check(&server, &secrets, &peer).await {
        // A name that is none is not repeated in the log.
        let host_id = if is_plain_name(&host_id) { host_id.as_str() } else { "?" };
        tracing::warn!(%peer, host_id, reason = %refusal, "a foreign host is refused");
        return failed(refusal.code(), &refusal.to_string());
    }
    let Some(accept) = accept_key(&request) else {
        return failed(ErrorCode::InvalidRequest, NO_WEBSOCKET);
    };
    let identity = RunnerIdentity { runner_id: host_id.into(), is_local: true, peer: peer.to_string() };
    let hub = Arc::clone(&server.hub);
    switch(&hub, request, accept, move |upgraded| {
        if let Some(upgraded) = upgraded {
            server.hub.tasks.clone().spawn(start(server, pass, identity, upgraded));
        }
    })
}

async fn start(server: Server, pass: LinkPermit, identity: RunnerIdentity, upgraded: UpgradedStream) {
    let options = SocketOptions {
        message_bytes_max: MESSAGE_BYTES_MAX,
        takes_packed: false,
        ..SocketOptions::default()
    };
    let socket = socket_link(upgraded, &options).await;
    let (hub_end, own_end) = qd_link::memory::pair();
    let adapter = HostAdapter::new(&server.hub, &identity.runner_id, own_end.sender);
    let links = &server.fleet.links;
    links.start(&server.hub, pass, identity, hub_end);
    links.spawn(adapter.run(socket, own_end.receiver));
}

/// Whether the host may come in. One that nobody has seen before is noted, and waits for an owner.
async fn check(server: &Server, secrets: &HostSecrets, peer: &str) -> Result<(), HostRefusal> {
    let HostSecrets { host_id, host_token } = secrets;
    if host_id.is_empty() || host_token.is_empty() {
        return Err(HostRefusal::Missing);
    }
    if !is_plain_name(host_id) {
        return Err(HostRefusal::BadName);
    }
    let store = &server.hub.store;
    let is_local = server.fleet.local_runner_id.as_deref() == Some(&**host_id);
    let runner = store.runner(host_id).await?;
    if is_local || runner.is_some_and(|row| !row.key_hash.is_empty()) {
        return Err(HostRefusal::Wrong);
    }
    let token_hash = authenticate::hash(host_token);
    let fingerprint = api::fingerprint(&token_hash);
    let pending = || HostRefusal::Pending { host_id: host_id.clone(), fingerprint: fingerprint.clone() };
    let host = match store.host(host_id).await? {
        Some(host) => host,
        None => {
            let host = HostRow {
                host_id: host_id.clone(),
                token_hash: token_hash.to_vec(),
                trust: HostTrust::Pending,
                first_seen_at: now_ms(),
                last_seen_at: Some(now_ms()),
                address: Some(peer.to_owned()),
            };
            store.put_host(host).await?;
            // Another one of the same name may have been quicker.
            store.host(host_id).await?.ok_or_else(pending)?
        }
    };
    if !authenticate::is_key(&host.token_hash, &token_hash) {
        return Err(HostRefusal::Wrong);
    }
    match host.trust {
        HostTrust::Trusted => {}
        HostTrust::Pending => return Err(pending()),
        HostTrust::Revoked => return Err(HostRefusal::Revoked { host_id: host_id.clone(), fingerprint }),
    }
    if let Err(error) = store.touch_host(host_id, now_ms()).await {
        tracing::warn!(host_id, %error, "it cannot be noted that a host has come");
    }
    Ok(())
}
