//! How runners come, are listed and go: invites, joining, the link's route, new keys, revoking.
//!
//! A runner proves itself by a key that it made itself; the hub keeps only the hash. An invite code is used once and
//! only for joining, so what is copied between two terminals opens nothing later.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Json, Response};
use http::{HeaderMap, StatusCode, Uri};
use qd_core::encoding::hash_from_hex;
use qd_link::clock::now_ms;
use qd_store::RunnerRow;
use qd_wire::data::RunnersData;
use qd_wire::fleet::{Invite, JoinRequest, Joined};
use qd_wire::{CodedError, ErrorCode};
use serde_json::{Value, json};

use crate::access::authenticate::{self, Hash, KeyRefusal, has_key, is_plain_name};
use crate::access::invites::{InviteError, InviteGrant, InviteRefusal};
use crate::rest::logins::address_of_host;
use crate::rest::request::{Manager, RestError, RestResult, read_json};
use crate::runners::link::RunnerIdentity;
use crate::server::Server;
use crate::server::listen::Peer;
use crate::server::router::{failed, failed_with, no_randomness};
use crate::server::upgrade::upgrade_runner;
use crate::sessions::reads;

/// Who the runner says it is; its key has to prove it.
const RUNNER_HEADER: &str = "x-qd-runner";
/// They mean something else in the paths of this file.
const RESERVED_NAMES: [&str; 4] = ["invites", "join", ".", ".."];
/// What a runner may say of its machine in each field, in bytes; it is only shown.
const DESCRIPTION_BYTES_MAX: usize = 256;

/// `POST /api/runners/invites`
pub(crate) async fn invite(
    State(server): State<Server>,
    Manager(principal): Manager,
    uri: Uri,
    headers: HeaderMap,
) -> RestResult<Json<Invite>> {
    let invite = server.fleet.invites.issue(now_ms()).map_err(|error| match error {
        InviteError::TooMany => ErrorCode::RateLimited.with(error.to_string()),
        InviteError::NoRandomness => no_randomness(),
    })?;
    let tls = server.hub.config.tls.as_ref();
    let code = match tls.filter(|tls| tls.is_pinned()) {
        Some(tls) => format!("{}.{}", invite.secret, tls.fingerprint()),
        None => invite.secret,
    };
    // The place was checked: the host is one of our own names, with a port at most.
    let url = address_of_host(&server, &uri, &headers);
    let command = format!("qd runner join {url} --code {code}");
    let fingerprint = tls.map(|tls| tls.fingerprint().to_string());
    tracing::info!(expires_at = invite.expires_at, "a runner may join with a new code");
    server.hub.note_change("runner", &principal, "made an invite code".to_owned()).await;
    Ok(Json(Invite { code, url, fingerprint, expires_at: invite.expires_at, command }))
}

/// `POST /api/runners/join`: the code is the permission.
pub(crate) async fn join(
    State(server): State<Server>,
    Extension(Peer(peer)): Extension<Peer>,
    body: Body,
) -> RestResult<Json<Joined>> {
    let request = read_join(body).await?;
    let runner_id = request.join.runner_id.clone();
    match admit(&server, request).await {
        Ok(()) => {
            tracing::info!(%peer, runner_id, "a runner has joined");
            // By a code, which names nobody.
            server.hub.note_action("runner", None, Some(true), format!("{runner_id} joined")).await;
            Ok(Json(Joined { runner_id }))
        }
        Err(error) => {
            tracing::warn!(%peer, runner_id, reason = %error, "a join is refused");
            Err(error.into())
        }
    }
}

/// A join that can be read.
struct JoinBody {
    join: JoinRequest,
    key_hash: Hash,
}

async fn read_join(body: Body) -> Result<JoinBody, CodedError> {
    let join: JoinRequest = read_json(body, |error| format!("The body is no join request: {error}")).await?;
    if !is_plain_name(&join.runner_id) {
        return Err(CodedError::invalid("'runner_id' must be 1 to 64 of the characters A-Z a-z 0-9 . _ -"));
    }
    if RESERVED_NAMES.contains(&&*join.runner_id) {
        return Err(CodedError::invalid(format!(
            "'runner_id' cannot be '{}'; take another name (--name)",
            join.runner_id
        )));
    }
    for (name, text) in [("hostname", &join.hostname), ("os", &join.os), ("version", &join.version)] {
        if text.len() > DESCRIPTION_BYTES_MAX || text.chars().any(char::is_control) {
            return Err(CodedError::invalid(format!(
                "'{name}' must be a line of at most {DESCRIPTION_BYTES_MAX} bytes"
            )));
        }
    }
    let key_hash = hash_from_hex(&join.key_hash).ok_or_else(|| {
        CodedError::invalid("'key_hash' must be the SHA-256 of the runner's key in 64 hex digits")
    })?;
    Ok(JoinBody { join, key_hash })
}

/// Makes the runner known, if the code is good and the name free.
async fn admit(server: &Server, JoinBody { join, key_hash }: JoinBody) -> Result<(), CodedError> {
    let fleet = &server.fleet;
    let now = now_ms();
    // The fingerprint in a code is for the runner; that it sends it along does no harm.
    let secret = join.code.split('.').next().unwrap_or_default().trim();
    // Between the check of the code and its use the store is asked. Without this lock two runners could join with one
    // code.
    let _one_at_a_time = fleet.joining.lock().await;
    let permission = fleet.invites.check(secret, &join.runner_id, &key_hash, now).map_err(code_refused)?;
    if fleet.local_runner_id.as_deref() == Some(&*join.runner_id) {
        let reason = "This is the name of the hub's own runner; join with another one (--name)";
        return Err(ErrorCode::AlreadyExists.with(reason));
    }
    let unavailable = |error: qd_store::StoreError| {
        ErrorCode::StoreUnavailable
            .with(format!("The hub cannot use its store: {error}. The code is still valid: retry."))
    };
    let known = server.hub.store.runner(&join.runner_id).await.map_err(unavailable)?;
    let known = known.filter(|row| row.revoked_at.is_none());
    let is_itself = known.as_ref().is_some_and(|row| has_key(row, &key_hash));
    if permission == InviteGrant::Repeat {
        // After it was revoked or got another key, what it did with this code is over.
        return if is_itself { Ok(()) } else { Err(code_refused(InviteRefusal::Used)) };
    }
    if join.known_only == Some(true) && !is_itself {
        return Err(ErrorCode::RunnerNotFound
            .with("This hub has no runner with this name and key; join it again with a new code"));
    }
    if known.is_some() && !is_itself {
        let reason = "A runner of this name has joined before, with another key; take another name, or revoke that one first ('qd runner revoke')";
        return Err(ErrorCode::AlreadyExists.with(reason));
    }
    if !is_itself {
        let row = new_row(&join, &key_hash, now);
        server.hub.store.put_runner(row.clone()).await.map_err(unavailable)?;
        let runner = server.hub.runner_or_new(&Arc::from(&*row.runner_id));
        runner.apply_row(&row);
        server.hub.announce_runner(&runner);
    }
    // Last: if the store failed, the code is still good for another try.
    fleet.invites.use_up(secret, &join.runner_id, &key_hash);
    Ok(())
}

fn new_row(join: &JoinRequest, key_hash: &Hash, now: i64) -> RunnerRow {
    RunnerRow {
        runner_id: join.runner_id.clone(),
        key_hash: key_hash.to_vec(),
        next_key_hash: None,
        hostname: join.hostname.clone(),
        os: join.os.clone(),
        version: join.version.clone(),
        // It says what it can do when it connects.
        harnesses_json: "[]".to_owned(),
        max_sessions: 0,
        joined_at: now,
        last_seen_at: None,
        rotated_at: None,
        revoked_at: None,
    }
}

fn code_refused(refusal: InviteRefusal) -> CodedError {
    let code = match refusal {
        InviteRefusal::Wrong => ErrorCode::NotLoggedIn,
        InviteRefusal::Expired | InviteRefusal::Used => ErrorCode::CodeExpired,
    };
    code.with(refusal.to_string())
}

/// `GET /api/runners`
pub(crate) async fn list(State(server): State<Server>, _: Manager) -> RestResult<Json<RunnersData>> {
    Ok(Json(reads::runners(&server.hub).await?))
}

/// `POST /api/runners/{runner_id}/rotate`: the runner is told to make a new key.
pub(crate) async fn rotate(
    State(server): State<Server>,
    Manager(principal): Manager,
    Path(runner_id): Path<String>,
) -> RestResult {
    check_joined(&server, &runner_id).await?;
    let asked = server.hub.ask_rotation(&runner_id);
    asked.map_err(|error| RestError::with_status(StatusCode::CONFLICT, &error))?;
    tracing::info!(runner_id, "the runner is told to make a new key");
    server.hub.note_change("runner", &principal, format!("new key for {runner_id}")).await;
    Ok((StatusCode::ACCEPTED, Json(json!({ "runner_id": runner_id }))).into_response())
}

/// `DELETE /api/runners/{runner_id}`: its key opens nothing any more, and it is cut off at once.
pub(crate) async fn revoke(
    State(server): State<Server>,
    Manager(principal): Manager,
    Path(runner_id): Path<String>,
) -> RestResult<Json<Value>> {
    check_joined(&server, &runner_id).await?;
    // The store first. A link that opens meanwhile finds the key void, or has its permit and is ended below.
    server.hub.store.revoke_runner(&runner_id, now_ms()).await?;
    server.hub.cut_off(&runner_id, "This runner was revoked; it has to join again with a new code");
    server.fleet.links.end(&runner_id);
    tracing::warn!(runner_id, "the runner is revoked and cut off");
    server.hub.note_change("runner", &principal, format!("revoked {runner_id}")).await;
    Ok(Json(json!({ "runner_id": runner_id })))
}

/// Checks that there is a runner with a key; else the answer that says why there is nothing to do to it.
async fn check_joined(server: &Server, runner_id: &str) -> RestResult<()> {
    if server.fleet.local_runner_id.as_deref() == Some(runner_id) {
        return Err(ErrorCode::Conflict.with("This is the hub's own runner; it has no key").into());
    }
    match server.hub.store.runner(runner_id).await? {
        Some(row) if row.revoked_at.is_none() => Ok(()),
        Some(_) => Err(ErrorCode::Conflict.with("The runner is revoked already").into()),
        None => {
            let error = "No runner of this name has joined; see 'qd runner ls'";
            Err(ErrorCode::RunnerNotFound.with(error).into())
        }
    }
}

/// `/ws/runner`: a joined runner's link.
pub(crate) async fn link(
    State(server): State<Server>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
) -> Response {
    let named = request.headers().get(RUNNER_HEADER).and_then(|value| value.to_str().ok());
    let Some(runner_id) = named.filter(|name| is_plain_name(name)).map(str::to_owned) else {
        tracing::warn!(%peer, "a runner link without a proper name is refused");
        return failed(ErrorCode::InvalidRequest, "The header 'X-Qd-Runner' must hold the runner's name");
    };
    let pass = server.fleet.links.pass(&runner_id);
    let checked = authenticate::check_key(&server.hub.store, &runner_id, request.headers()).await;
    let is_local = server.fleet.local_runner_id.as_deref() == Some(&*runner_id);
    let row = match checked {
        // Without any key the answer is the same for every name.
        Err(KeyRefusal::NoKey) => return link_refused(peer, &runner_id, &KeyRefusal::NoKey),
        _ if is_local => return link_refused(peer, &runner_id, &KeyRefusal::Local),
        Ok(row) => row,
        Err(refusal) => return link_refused(peer, &runner_id, &refusal),
    };
    // The hello needs no store: it finds what is known of its runner in the hub.
    let runner_id: Arc<str> = runner_id.into();
    server.hub.runner_or_new(&runner_id).apply_row(&row);
    let identity = RunnerIdentity { runner_id, is_local: false, peer: peer.to_string() };
    upgrade_runner(server, pass, identity, request)
}

fn link_refused(peer: impl std::fmt::Display, runner_id: &str, refusal: &KeyRefusal) -> Response {
    let reason = refusal.to_string();
    tracing::warn!(%peer, runner_id, reason, "a runner link is refused");
    failed_with(&refusal.answer())
}
