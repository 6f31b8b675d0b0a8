//! Hosts of others that speak the run protocol: which have come, and which are let in.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json};
use axum::routing::{delete, get, post};
use http::header::CACHE_CONTROL;
use qd_core::encoding::hex;
use qd_link::clock::now_ms;
use qd_store::{HostRow, HostTrust};
use qd_wire::people::{
    self, AddedForeignHost, ConfirmForeignHost, ForeignHost, ForeignHosts, NewForeignHost,
};
use qd_wire::{CodedError, ErrorCode};
use serde_json::{Value, json};

use crate::access::authenticate::{check_principal_name, hash, random_text};
use crate::hub::Hub;
use crate::rest::request::{Manager, RestResult, read_body, read_json};
use crate::rest::rest;
use crate::server::Server;
use crate::server::router::no_randomness;

/// Random bytes of a host's token, and of a name that was made up.
const TOKEN_BYTES: usize = 32;
const NAME_BYTES: usize = 9;
/// Bytes of a token's hash that people compare. Nobody finds a second token for these, and they can be read aloud.
const FINGERPRINT_BYTES: usize = 8;
const NO_HOST: &str = "There is no host of this name; see 'qd hosts'";

rest! {
    get "/api/hosts" => list;
    post "/api/hosts" => add;
    post "/api/hosts/{host_id}/confirm" => confirm;
    delete "/api/hosts/{host_id}" => revoke;
}

/// `GET /api/hosts`
async fn list(State(server): State<Server>, _: Manager) -> RestResult<Json<ForeignHosts>> {
    let hosts = server.hub.store.hosts().await?;
    Ok(Json(ForeignHosts { hosts: hosts.into_iter().map(|row| shown(&server.hub, row)).collect() }))
}

fn shown(hub: &Hub, row: HostRow) -> ForeignHost {
    ForeignHost {
        online: !hub.is_away(&row.host_id),
        host_id: row.host_id,
        state: row.trust,
        first_seen_at: row.first_seen_at,
        last_seen_at: row.last_seen_at,
        address: row.address,
        fingerprint: Some(fingerprint(&row.token_hash)),
    }
}

/// `POST /api/hosts`: lets in a host that has not come yet. The answer is the only place where its token is shown.
async fn add(State(server): State<Server>, Manager(principal): Manager, body: Body) -> RestResult {
    let host_id = read_new(body).await?;
    let made_up = || Some(format!("host-{}", random_text(NAME_BYTES)?));
    let (Some(host_id), Some(host_token)) = (host_id.or_else(made_up), random_text(TOKEN_BYTES)) else {
        return Err(no_randomness().into());
    };
    let taken =
        "A host or a runner has this name; take another one, or remove that one first ('qd hosts remove')";
    // Hosts and runners share their names: both own sessions under `runner_id`.
    if server.hub.runner(&host_id).is_some() {
        return Err(ErrorCode::AlreadyExists.with(taken).into());
    }
    let row = HostRow {
        host_id: host_id.clone(),
        token_hash: hash(&host_token).to_vec(),
        trust: HostTrust::Trusted,
        first_seen_at: now_ms(),
        last_seen_at: None,
        address: None,
    };
    if !server.hub.store.put_host(row).await? {
        return Err(ErrorCode::AlreadyExists.with(taken).into());
    }
    server.hub.note_change("host", &principal, format!("added {host_id}")).await;
    Ok(([(CACHE_CONTROL, "no-store")], Json(AddedForeignHost { host_id, host_token })).into_response())
}

async fn read_new(body: Body) -> Result<Option<String>, CodedError> {
    let body = read_body(body).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let NewForeignHost { host_id } = serde_json::from_slice(&body).map_err(|error| {
        CodedError::invalid(format!("The body must be {{}} or {{\"host_id\":…}}: {error}"))
    })?;
    if let Some(host_id) = &host_id {
        check_principal_name("host_id", host_id)?;
    }
    Ok(host_id)
}

/// What a person compares, of a token's hash.
pub(super) fn fingerprint(token_hash: &[u8]) -> String {
    let end = token_hash.len().min(FINGERPRINT_BYTES);
    hex(&token_hash[..end])
}

/// `POST /api/hosts/{host_id}/confirm`: lets in a host that has come, with the token that was shown. Anybody can come
/// under any name first, so the name alone says nothing.
async fn confirm(
    State(server): State<Server>,
    Manager(principal): Manager,
    Path(host_id): Path<String>,
    body: Body,
) -> RestResult<Json<Value>> {
    let store = &server.hub.store;
    let row = store.host(&host_id).await?.ok_or_else(|| ErrorCode::RunnerNotFound.with(NO_HOST))?;
    let wanted: ConfirmForeignHost = read_json(body, |_| {
        "The body must be {\"fingerprint\":\"…\"}, as 'qd hosts' or GET /api/hosts shows it".to_owned()
    })
    .await?;
    let found = fingerprint(&row.token_hash);
    let is_confirmed = wanted.fingerprint == found && store.confirm_host(&host_id, &row.token_hash).await?;
    if !is_confirmed {
        let error = format!(
            "The host {host_id} has come with a token of another fingerprint ({found}); confirm it only if the machine shows the same one"
        );
        return Err(ErrorCode::Conflict.with(error).into());
    }
    tracing::info!(host_id, fingerprint = found, "a host is trusted");
    server.hub.note_change("host", &principal, format!("confirmed {host_id} ({found})")).await;
    Ok(Json(json!({ "host_id": host_id, "state": people::HostTrust::Trusted })))
}

/// `DELETE /api/hosts/{host_id}`: it is cut off and not let in again. The second time it is forgotten, so that one of
/// its name can come anew.
async fn revoke(
    State(server): State<Server>,
    Manager(principal): Manager,
    Path(host_id): Path<String>,
) -> RestResult<Json<Value>> {
    let store = &server.hub.store;
    let row = store.host(&host_id).await?.ok_or_else(|| ErrorCode::RunnerNotFound.with(NO_HOST))?;
    let state = if row.trust == HostTrust::Revoked {
        store.delete_host(&host_id).await?;
        "forgotten"
    } else {
        store.set_host_trust(&host_id, HostTrust::Revoked).await?;
        "revoked"
    };
    server.hub.cut_off(&host_id, "this host was revoked");
    // Also a connection that is only being opened.
    server.fleet.links.end(&host_id);
    server.hub.note_change("host", &principal, format!("{state} {host_id}")).await;
    Ok(Json(json!({ "host_id": host_id, "state": state })))
}
