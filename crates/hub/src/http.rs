//! The routes.

use std::sync::Arc;

use axum::Extension;
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{any, delete, get, patch, post};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode, Uri};
use qd_wire::command_table::Permission;
use serde::Deserialize;
use serde_json::json;

use crate::access::{self, Refusal};
use crate::audit::Deed;
use crate::audit_api;
use crate::clock::now_ms;
use crate::commands_api;
use crate::faces::{host, run};
use crate::files_api;
use crate::hosts_api;
use crate::listen::Peer;
use crate::login;
use crate::logins_api;
use crate::people_api;
use crate::pi_port;
use crate::principals::{OWNER, Principal};
use crate::reads;
use crate::registry::Hub;
use crate::runners_api;
use crate::serve::Server;
use crate::tokens_api;
use crate::upgrade::upgrade;

/// Where the WebSockets are.
const SOCKETS: &str = "/ws/";

/// Everything the hub answers to.
pub(crate) fn routes(server: Server) -> Router {
    let hub = Arc::clone(&server.hub);
    let for_people = Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/login", get(login_with_code).head(not_for_head))
        .route("/logout", post(logout))
        .route("/ws/mux", any(mux))
        .route("/ws/pi", any(pi_port::upgrade))
        .route("/api/sessions", get(sessions))
        .route("/api/runners", get(runners_api::list))
        .route("/api/runners/invites", post(runners_api::invite))
        .route("/api/runners/{runner_id}", delete(runners_api::revoke))
        .route("/api/runners/{runner_id}/rotate", post(runners_api::rotate))
        .route("/api/tokens", get(tokens_api::list).post(tokens_api::add))
        .route("/api/tokens/{name}", delete(tokens_api::revoke))
        .route("/auth/login", post(login::login))
        .route("/api/me", get(people_api::me))
        .route("/api/people", get(people_api::list).post(people_api::add))
        .route("/api/people/{username}", patch(people_api::change).delete(people_api::remove))
        .route("/api/logins", get(logins_api::list))
        .route("/api/logins/{login_id}", delete(logins_api::end))
        .route("/api/hosts", get(hosts_api::list).post(hosts_api::add))
        .route("/api/hosts/{host_id}", delete(hosts_api::revoke))
        .route("/api/hosts/{host_id}/confirm", post(hosts_api::confirm))
        .route("/api/audit", get(audit_api::list))
        .route("/api/commands", post(commands_api::run))
        .route("/api/sessions/{session_id}/file", get(files_api::download).put(files_api::upload))
        .merge(run::routes())
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(hub, check_place));
    let for_runners = Router::new()
        .route("/ws/runner", any(runners_api::link))
        .route("/ws/host", any(host::link))
        .route("/api/runners/join", post(runners_api::join))
        .layer(middleware::from_fn(refuse_browsers));
    for_people.merge(for_runners).with_state(server)
}

pub(crate) async fn check_place(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    match access::check_place(&hub.config, request.headers(), authority.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

/// A runner has a secret of its own, and may know the hub by any name. A page, which could use a name made to
/// point here, always says where it comes from.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    match access::check_no_browser(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

/// A refusal as JSON.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Host(_) | Refusal::Origin(_) | Refusal::Browser(_) | Refusal::Denied(_) => {
            StatusCode::FORBIDDEN
        }
        Refusal::Twice(_) => StatusCode::BAD_REQUEST,
        Refusal::NotLoggedIn => StatusCode::UNAUTHORIZED,
        Refusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    failed(status, &refusal.to_string())
}

/// An error as JSON.
pub(crate) fn failed(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

#[derive(Deserialize, Default)]
struct Secrets {
    token: Option<String>,
    code: Option<String>,
}

fn secrets(uri: &Uri) -> Secrets {
    Query::<Secrets>::try_from_uri(uri).map(|Query(secrets)| secrets).unwrap_or_default()
}

/// The token in the query of a WebSocket, whose headers a page cannot set. Everywhere else it would only get into the
/// logs and histories that addresses get into.
fn query_token(uri: &Uri) -> Option<String> {
    secrets(uri).token.filter(|_| uri.path().starts_with(SOCKETS))
}

/// Tells who has sent the request, whatever they may do.
pub(crate) async fn check_known(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Refusal> {
    let token = query_token(uri);
    access::check_access(&hub.config, &hub.store, &hub.principals, headers, token.as_deref()).await
}

/// The same as [`check_access`] on a port where every path is a WebSocket.
pub(crate) async fn check_port_access(
    hub: &Hub,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Principal, Refusal> {
    let token = secrets(uri).token;
    let known = access::check_access(&hub.config, &hub.store, &hub.principals, headers, token.as_deref());
    let principal = known.await?;
    principal.rights().check(uri.path(), Permission::View).map_err(Refusal::Denied)?;
    Ok(principal)
}

/// Checks that the request comes from somebody with this permission.
pub(crate) async fn check_permission(
    hub: &Hub,
    uri: &Uri,
    headers: &HeaderMap,
    permission: Permission,
) -> Result<Principal, Refusal> {
    let principal = check_known(hub, uri, headers).await?;
    principal.rights().check(uri.path(), permission).map_err(Refusal::Denied)?;
    Ok(principal)
}

/// Checks that the request comes from somebody who manages people and machines.
pub(crate) async fn check_owner(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Refusal> {
    check_permission(hub, uri, headers, Permission::Manage).await
}

/// Whether the request has a token, right or wrong.
pub(crate) fn has_token(uri: &Uri, headers: &HeaderMap) -> bool {
    access::bearer(headers).is_some() || query_token(uri).is_some()
}

/// The same on a port where every path is a WebSocket.
pub(crate) fn has_port_token(uri: &Uri, headers: &HeaderMap) -> bool {
    access::bearer(headers).is_some() || secrets(uri).token.is_some()
}

/// Checks that the request comes from somebody who may see what is here.
pub(crate) async fn check_access(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Refusal> {
    check_permission(hub, uri, headers, Permission::View).await
}

async fn mux(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    match check_access(&hub, request.uri(), request.headers()).await {
        Ok(principal) => upgrade(hub, &principal, request),
        Err(refusal) => refused(&refusal),
    }
}

async fn sessions(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(refusal) = check_access(&hub, &uri, &headers).await {
        return refused(&refusal);
    }
    match reads::sessions(&hub).await {
        Ok(sessions) => Json(json!({ "sessions": sessions })).into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn login_with_code(
    State(hub): State<Arc<Hub>>,
    Extension(Peer(peer)): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let code = secrets(&uri).code.unwrap_or_default();
    let Some(end) = hub.config.login_codes.redeem(&code, now_ms()) else {
        let error = "This login link is used up or too old; start 'qd up' again, which prints a new one";
        return failed(StatusCode::UNAUTHORIZED, error);
    };
    let token = access::new_login(&hub.store, &hub.principals, None, login::label(&headers)).await;
    let error = match token {
        Ok(Some(token)) => {
            hub.close_revoked();
            let summary = format!("with a code, from {peer}");
            hub.note_deed(Deed { kind: "login", principal: Some(OWNER), ok: Some(true), summary }).await;
            return to_start(&hub, &token, hub.config.login_life.as_secs());
        }
        Ok(None) => "The system has no randomness; try again".to_owned(),
        Err(error) => format!("The login cannot be stored: {error}. The link stays good; open it again"),
    };
    hub.config.login_codes.give_back(&code, end);
    failed(StatusCode::SERVICE_UNAVAILABLE, &error)
}

/// Forgets the login of a browser or of a program, on both sides.
async fn logout(State(hub): State<Arc<Hub>>, headers: HeaderMap) -> Response {
    match access::end_logins(&hub.store, &headers).await {
        Ok(ended) => {
            ended.iter().for_each(|hash| hub.end_access(hash));
            to_start(&hub, "", 0)
        }
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

/// To the first page, with this cookie.
fn to_start(hub: &Hub, token: &str, life_seconds: u64) -> Response {
    let cookie = login::cookie(hub, token, life_seconds);
    let headers = [
        (SET_COOKIE, &*cookie),
        (LOCATION, "/"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Programs that look at links before people open them must not use codes up.
async fn not_for_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    let headers = [(CONTENT_SECURITY_POLICY, policy), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, Html(include_str!("page.html"))).into_response()
}

async fn healthz(State(hub): State<Arc<Hub>>) -> Json<serde_json::Value> {
    Json(json!({
        "status": "ok",
        "sessions": hub.session_count(),
        "runners": hub.runners().iter().filter(|runner| runner.link().is_some()).count(),
        "connections": hub.connection_count(),
        "apps": hub.run.connection_count(),
    }))
}

async fn not_found() -> Response {
    let error = "There is nothing at this address; the WebSockets are at /ws/mux and /ws/pi";
    failed(StatusCode::NOT_FOUND, error)
}
