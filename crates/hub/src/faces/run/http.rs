//! The routes of the document, with its words for what goes wrong.
//!
//! Apps of the document compare these words, so they stay as they are; our own routes have codes.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get, post};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Uri};
use qd_core::view::run::request::read_input;
use qd_wire::ErrorCode;
use qd_wire::command_table::Permission;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Duration, timeout};

use super::handler::{AppHandler, HOST_OFFLINE, UNKNOWN_RUN, prepare};
use super::lists;
use super::messages::{self, MessagesPage, MessagesQuery};
use crate::access::authenticate::Refusal;
use crate::access::check_request::{check_known, has_token};
use crate::access::principals::Principal;
use crate::command::ask::{CommandAnswer, CommandSender};
use crate::command::send_ready;
use crate::hub::Hub;
use crate::rest::request::{QueryResult, read_query};
use crate::server::Server;
use crate::server::router::refused;
use crate::server::upgrade::{accept_key, speak};

/// Bytes of an input; the original takes as many.
const BODY_BYTES_MAX: usize = 2 << 20;
/// How long a body may take to come.
const BODY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Rows of a list: without a limit, and at most.
const RUNS_DEFAULT: usize = 200;
const RECENT_DEFAULT: usize = 50;
const RUNS_MAX: usize = 200;
/// What may be asked of a log, and what is told without asking for more.
const LOG_LINES: (usize, usize) = (200, 2000);
const LOG_BYTES: (u64, u64) = (200_000, 2_000_000);

/// Everything of the document that this face serves.
pub(super) fn routes() -> Router<Server> {
    Router::new()
        .route("/ws/app", any(app))
        .route("/health", get(health))
        .route("/runs", get(runs))
        // The document calls the same things runs and sessions.
        .route("/sessions", get(runs))
        .route("/sessions/recent", get(recent))
        .route("/sessions/{session_id}", get(session))
        .route("/hosts", get(hosts))
        .route("/runs/{run_id}/messages", get(run_messages))
        .route("/sessions/{session_id}/messages", get(session_messages))
        .route("/runs/{run_id}/input", post(input))
        .route("/server/logs/tail", get(logs))
}

/// An error in the document's form: plain text.
fn plain(status: StatusCode, error: &str) -> Response {
    (status, error.to_owned()).into_response()
}

/// Who asks, if it may.
async fn allowed(
    hub: &Hub,
    uri: &Uri,
    headers: &HeaderMap,
    permission: Permission,
) -> Result<Principal, Response> {
    let principal = check_known(hub, uri, headers).await.map_err(|refusal| match refusal {
        Refusal::NotLoggedIn if !has_token(uri, headers) => plain(
            StatusCode::UNAUTHORIZED,
            // A WebSocket may carry its token in the query, so its sentence does not ask for a bearer.
            if uri.path() == "/ws/app" { "missing token" } else { "missing bearer token" },
        ),
        Refusal::NotLoggedIn => plain(StatusCode::UNAUTHORIZED, "invalid token"),
        refusal @ (Refusal::Host(_)
        | Refusal::Twice(_)
        | Refusal::Origin(_)
        | Refusal::Browser(_)
        | Refusal::Denied(_)
        | Refusal::Store(_)) => refused(&refusal),
    })?;
    let checked = principal.rights().check(uri.path(), permission);
    checked.map_err(|error| plain(StatusCode::FORBIDDEN, &error.message))?;
    Ok(principal)
}

/// Somebody who may see what is here.
struct RunViewer(Principal);

impl FromRequestParts<Server> for RunViewer {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Response> {
        allowed(&server.hub, &parts.uri, &parts.headers, Permission::View).await.map(Self)
    }
}

fn bad_request(error: qd_wire::CodedError) -> Response {
    plain(StatusCode::BAD_REQUEST, &error.message)
}

async fn app(State(hub): State<Arc<Hub>>, RunViewer(principal): RunViewer, request: Request) -> Response {
    let Some(accept) = accept_key(&request) else {
        return plain(StatusCode::BAD_REQUEST, "This address speaks WebSocket (version 13) only");
    };
    // Before the answer: what happens after the app knows that it is connected is not missed.
    let Some((handler, mailbox)) = AppHandler::new(&hub, &principal) else {
        let error = "There are too many connections, or the server stops; try again later";
        return plain(StatusCode::SERVICE_UNAVAILABLE, error);
    };
    speak(hub, request, accept, mailbox, handler)
}

async fn health(State(hub): State<Arc<Hub>>) -> Json<Value> {
    Json(json!({ "name": "quarterdeck", "version": hub.config.server_version }))
}

#[derive(Deserialize, Default)]
struct PageQuery {
    limit: Option<usize>,
    offset: Option<usize>,
}

async fn runs(
    State(hub): State<Arc<Hub>>,
    _: RunViewer,
    query: QueryResult<PageQuery>,
) -> Result<Response, Response> {
    runs_page(&hub, query, RUNS_DEFAULT).await
}

async fn recent(
    State(hub): State<Arc<Hub>>,
    _: RunViewer,
    query: QueryResult<PageQuery>,
) -> Result<Response, Response> {
    runs_page(&hub, query, RECENT_DEFAULT).await
}

async fn runs_page(hub: &Hub, query: QueryResult<PageQuery>, default: usize) -> Result<Response, Response> {
    let query = read_query(query, "limit and offset must be whole numbers from 0").map_err(bad_request)?;
    let limit = query.limit.unwrap_or(default).clamp(1, RUNS_MAX);
    let (runs, total) = lists::runs(hub, query.offset.unwrap_or(0), limit).await.map_err(unreadable)?;
    Ok(([("x-total-count", total.to_string())], Json(runs)).into_response())
}

fn unreadable(error: qd_store::StoreError) -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, &format!("the server cannot read its store: {error}"))
}

async fn session(
    State(hub): State<Arc<Hub>>,
    Path(session_id): Path<String>,
    _: RunViewer,
) -> Result<Json<Value>, Response> {
    let run = lists::run(&hub, &session_id).await.map_err(unreadable)?;
    run.map(Json).ok_or_else(|| plain(StatusCode::NOT_FOUND, "unknown session_id"))
}

async fn hosts(State(hub): State<Arc<Hub>>, _: RunViewer) -> Result<Json<Vec<Value>>, Response> {
    lists::hosts(&hub).await.map(Json).map_err(unreadable)
}

async fn run_messages(
    State(hub): State<Arc<Hub>>,
    Path(run_id): Path<String>,
    _: RunViewer,
    query: QueryResult<MessagesQuery>,
) -> Result<Response, Response> {
    messages_page(&hub, &run_id, query, UNKNOWN_RUN).await
}

async fn session_messages(
    State(hub): State<Arc<Hub>>,
    Path(session_id): Path<String>,
    _: RunViewer,
    query: QueryResult<MessagesQuery>,
) -> Result<Response, Response> {
    messages_page(&hub, &session_id, query, "unknown session_id").await
}

async fn messages_page(
    hub: &Hub,
    run_id: &str,
    query: QueryResult<MessagesQuery>,
    unknown: &str,
) -> Result<Response, Response> {
    let error =
        "before_id, before_seq, since_seq and limit must be whole numbers, include_output true or false";
    let query = read_query(query, error).map_err(bad_request)?;
    let entry = hub.session(run_id).ok_or_else(|| plain(StatusCode::NOT_FOUND, unknown))?;
    messages::page(hub, &entry, &query).await.map(MessagesPage::into_response).map_err(unreadable)
}

async fn input(
    State(hub): State<Arc<Hub>>,
    Path(run_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Response> {
    // Permission before the body: a stranger does not make the hub read megabytes.
    let principal = allowed(&hub, &uri, &headers, Permission::Operate).await?;
    let body = timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"))?;
    let body = body.map_err(|_| {
        plain(StatusCode::PAYLOAD_TOO_LARGE, &format!("the body may have {BODY_BYTES_MAX} bytes"))
    })?;
    let command =
        read_input(&run_id, &body).map_err(|error| plain(StatusCode::BAD_REQUEST, &error.message))?;
    let asker = CommandSender::new(&principal, Arc::from("http"));
    let ready = prepare(&hub, &asker, &command);
    let (ready, _) = ready.map_err(|error| plain(status_of(error.code), &error.message))?;
    let (done, wait) = oneshot::channel();
    let on_answer = Box::new(move |_: &Arc<Hub>, answered: CommandAnswer| {
        // Who asked may have gone; the input is written all the same.
        let _ = done.send(answered);
    });
    send_ready(&hub, &asker, ready, on_answer);
    let answered = wait.await.map_err(|_| plain(StatusCode::SERVICE_UNAVAILABLE, "the server stops"))?;
    if answered.success {
        return Ok(StatusCode::NO_CONTENT);
    }
    if answered.link_lost {
        return Err(plain(StatusCode::BAD_GATEWAY, HOST_OFFLINE));
    }
    // Whether it was written is not known after a timeout; the same input_id can be sent again.
    let status = if answered.timed_out { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::CONFLICT };
    Err(plain(status, &answered.error.unwrap_or_default()))
}

/// As the document has it; where it says nothing, as the table of codes has it.
fn status_of(code: ErrorCode) -> StatusCode {
    if code == ErrorCode::RunnerOffline {
        return StatusCode::BAD_GATEWAY;
    }
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

#[derive(Deserialize, Default)]
struct LogQuery {
    lines: Option<usize>,
    max_bytes: Option<u64>,
}

async fn logs(
    State(hub): State<Arc<Hub>>,
    uri: Uri,
    headers: HeaderMap,
    query: QueryResult<LogQuery>,
) -> Result<Json<Value>, Response> {
    allowed(&hub, &uri, &headers, Permission::Manage).await?;
    let query = read_query(query, "lines and max_bytes must be whole numbers from 1").map_err(bad_request)?;
    let path = hub.config.log_path.as_ref();
    let path = path.ok_or_else(|| plain(StatusCode::NOT_FOUND, "this server writes no log file"))?;
    let lines = query.lines.unwrap_or(LOG_LINES.0).clamp(1, LOG_LINES.1);
    let max_bytes = query.max_bytes.unwrap_or(LOG_BYTES.0).clamp(1, LOG_BYTES.1);
    let (text, truncated) = lists::log_tail(path, lines, max_bytes).await.map_err(|error| {
        let error = format!("failed to read log file: {}: {error}", path.display());
        plain(StatusCode::INTERNAL_SERVER_ERROR, &error)
    })?;
    Ok(Json(json!({ "path": path.display().to_string(), "text": text, "truncated": truncated })))
}
