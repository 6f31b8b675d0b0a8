//! The routes, and the answers that refuse a request. Who may do what is checked in `access/check_request`.

use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, head, post};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use qd_store::StoreError;
use qd_wire::rest::Health;
use qd_wire::{CodedError, ErrorCode};
use serde_json::json;

use crate::access::authenticate::{self, Refusal};
use crate::access::login::with_code;
use crate::hub::Hub;
use crate::rest;
use crate::rest::request::Viewer;
use crate::rest::runners;
use crate::server::upgrade::upgrade;
use crate::server::{Server, assets, safe_headers};

/// The framework's own words for what it cannot read are a line.
const REJECTION_BYTES_MAX: usize = 4096;

/// Everything the hub answers to.
pub(crate) fn routes(server: Server) -> Router {
    let hub = Arc::clone(&server.hub);
    let for_people = rest::routes()
        .route("/login", head(with_code::not_for_head))
        .route("/ws/mux", any(mux))
        .merge(server.hub.faces.routes())
        .method_not_allowed_fallback(wrong_method)
        .fallback(assets::app)
        .layer(middleware::from_fn_with_state(hub, check_host_and_origin));
    let for_runners = Router::new()
        .route("/ws/runner", any(runners::link))
        .route("/api/runners/join", post(runners::join))
        .merge(server.hub.faces.machine_routes())
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn(refuse_browsers));
    for_people.merge(for_runners).layer(middleware::from_fn(safe_headers::add)).with_state(server)
}

pub(crate) async fn check_host_and_origin(
    State(hub): State<Arc<Hub>>,
    request: Request,
    next: Next,
) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    match authenticate::check_host_and_origin(&hub.config, request.headers(), authority.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

/// A runner has a secret of its own, and may know the hub by any name. A page, which could use a name made to
/// point here, always says where it comes from.
async fn refuse_browsers(request: Request, next: Next) -> Response {
    match authenticate::check_no_browser(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

/// A refusal as JSON.
pub(crate) fn refused(refusal: &Refusal) -> Response {
    failed_with(&refusal.code().with(refusal.to_string()))
}

/// An error as JSON, with the status of its code.
pub(crate) fn failed(code: ErrorCode, error: &str) -> Response {
    failed_with(&code.with(error))
}

/// An error as JSON, with the status of its code.
pub(crate) fn failed_with(error: &CodedError) -> Response {
    let status = StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    failed_as(status, error)
}

/// The hub's store does not answer.
pub(crate) fn unavailable(error: &StoreError) -> Response {
    failed(ErrorCode::StoreUnavailable, &format!("The hub cannot use its store: {error}"))
}

/// The operating system cannot make a secret now.
pub(crate) fn no_randomness() -> CodedError {
    ErrorCode::Busy.with("The system has no randomness; try again")
}

/// An error as JSON, with a status that a route had before its error had a code.
pub(crate) fn failed_as(status: StatusCode, error: &CodedError) -> Response {
    (status, Json(json!({ "error": error.message, "code": error.code }))).into_response()
}

/// The address exists, but not for this method. The header `Allow` names those that it takes.
pub(crate) async fn wrong_method() -> Response {
    let error = "This address does not take this method; see /api/openapi.json";
    failed_as(StatusCode::METHOD_NOT_ALLOWED, &ErrorCode::UnknownCommand.with(error))
}

/// Gives a code to what the framework refuses by itself, in plain text: a path or a query that it cannot read.
pub(crate) async fn code_rejections(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if response.status() != StatusCode::BAD_REQUEST
        || !kind.is_some_and(|kind| kind.starts_with("text/plain"))
    {
        return response;
    }
    let text = to_bytes(response.into_body(), REJECTION_BYTES_MAX).await.unwrap_or_default();
    failed(ErrorCode::InvalidRequest, &String::from_utf8_lossy(&text))
}

async fn mux(State(hub): State<Arc<Hub>>, Viewer(principal): Viewer, request: Request) -> Response {
    upgrade(hub, &principal, request)
}

/// `GET /healthz`
pub(crate) async fn healthz(State(hub): State<Arc<Hub>>) -> Json<Health> {
    let mut health = Health {
        status: "ok".to_owned(),
        sessions: hub.session_count() as u64,
        runners: hub.runners().iter().filter(|runner| runner.link().is_some()).count() as u64,
        connections: hub.connection_count() as u64,
        ..Health::default()
    };
    hub.faces.show_health(&mut health);
    Json(health)
}
