//! The routes of the document, with its words for what goes wrong.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get, post};
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
use super::messages::{self, MessagesQuery};
use crate::access::authenticate::Refusal;
use crate::access::principals::Principal;
use crate::command::ask::{CommandAnswer, CommandSender};
use crate::command::send_ready;
use crate::hub::Hub;
use crate::server::Server;
use crate::server::router::{check_known, has_token, refused};
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
pub(super) fn plain(status: StatusCode, error: &str) -> Response {
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

async fn app(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let principal = match allowed(&hub, request.uri(), request.headers(), Permission::View).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
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

async fn runs(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    listed(&hub, &uri, &headers, RUNS_DEFAULT).await
}

async fn recent(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    listed(&hub, &uri, &headers, RECENT_DEFAULT).await
}

async fn listed(hub: &Hub, uri: &Uri, headers: &HeaderMap, default: usize) -> Response {
    if let Err(response) = allowed(hub, uri, headers, Permission::View).await {
        return response;
    }
    let Ok(Query(query)) = Query::<PageQuery>::try_from_uri(uri) else {
        return plain(StatusCode::BAD_REQUEST, "limit and offset must be whole numbers from 0");
    };
    let limit = query.limit.unwrap_or(default).clamp(1, RUNS_MAX);
    match lists::runs(hub, query.offset.unwrap_or(0), limit).await {
        Ok((runs, total)) => ([("x-total-count", total.to_string())], Json(runs)).into_response(),
        Err(error) => unreadable(&error),
    }
}

pub(super) fn unreadable(error: &qd_store::StoreError) -> Response {
    plain(StatusCode::SERVICE_UNAVAILABLE, &format!("the server cannot read its store: {error}"))
}

async fn session(
    State(hub): State<Arc<Hub>>,
    Path(session_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Err(response) = allowed(&hub, &uri, &headers, Permission::View).await {
        return response;
    }
    match lists::run(&hub, &session_id).await {
        Ok(Some(run)) => Json(run).into_response(),
        Ok(None) => plain(StatusCode::NOT_FOUND, "unknown session_id"),
        Err(error) => unreadable(&error),
    }
}

async fn hosts(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(response) = allowed(&hub, &uri, &headers, Permission::View).await {
        return response;
    }
    match lists::hosts(&hub).await {
        Ok(hosts) => Json(hosts).into_response(),
        Err(error) => unreadable(&error),
    }
}

async fn run_messages(
    State(hub): State<Arc<Hub>>,
    Path(run_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    past(&hub, &run_id, &uri, &headers, UNKNOWN_RUN).await
}

async fn session_messages(
    State(hub): State<Arc<Hub>>,
    Path(session_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    past(&hub, &session_id, &uri, &headers, "unknown session_id").await
}

async fn past(hub: &Hub, run_id: &str, uri: &Uri, headers: &HeaderMap, unknown: &str) -> Response {
    if let Err(response) = allowed(hub, uri, headers, Permission::View).await {
        return response;
    }
    let Ok(Query(query)) = Query::<MessagesQuery>::try_from_uri(uri) else {
        let error =
            "before_id, before_seq, since_seq and limit must be whole numbers, include_output true or false";
        return plain(StatusCode::BAD_REQUEST, error);
    };
    let Some(entry) = hub.session(run_id) else { return plain(StatusCode::NOT_FOUND, unknown) };
    match messages::page(hub, &entry, &query).await {
        Ok(page) => page.into_response(),
        Err(error) => unreadable(&error),
    }
}

async fn input(
    State(hub): State<Arc<Hub>>,
    Path(run_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let principal = match allowed(&hub, &uri, &headers, Permission::Operate).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let body = match timeout(BODY_WAIT_MAX, to_bytes(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let error = format!("the body may have {BODY_BYTES_MAX} bytes");
            return plain(StatusCode::PAYLOAD_TOO_LARGE, &error);
        }
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the body did not come in time"),
    };
    let command = match read_input(&run_id, &body) {
        Ok(command) => command,
        Err(error) => return plain(StatusCode::BAD_REQUEST, &error.message),
    };
    let asker = CommandSender::new(&principal, Arc::from("http"));
    let ready = match prepare(&hub, &asker, &command) {
        Ok((ready, _)) => ready,
        Err(error) => return plain(status_of(error.code), &error.message),
    };
    let (done, wait) = oneshot::channel();
    let on_answer = Box::new(move |_: &Arc<Hub>, answered: CommandAnswer| {
        // Who asked may have gone; the input is written all the same.
        let _ = done.send(answered);
    });
    send_ready(&hub, &asker, ready, on_answer);
    match wait.await {
        Ok(answered) if answered.success => StatusCode::NO_CONTENT.into_response(),
        Ok(answered) if answered.link_lost => plain(StatusCode::BAD_GATEWAY, HOST_OFFLINE),
        // Whether it was written is not known; the same input_id can be sent again.
        Ok(answered) if answered.timed_out => {
            plain(StatusCode::GATEWAY_TIMEOUT, &answered.error.unwrap_or_default())
        }
        Ok(answered) => plain(StatusCode::CONFLICT, &answered.error.unwrap_or_default()),
        Err(_) => plain(StatusCode::SERVICE_UNAVAILABLE, "the server stops"),
    }
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

async fn logs(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(response) = allowed(&hub, &uri, &headers, Permission::Manage).await {
        return response;
    }
    let Ok(Query(query)) = Query::<LogQuery>::try_from_uri(&uri) else {
        return plain(StatusCode::BAD_REQUEST, "lines and max_bytes must be whole numbers from 1");
    };
    let Some(path) = &hub.config.log_path else {
        return plain(StatusCode::NOT_FOUND, "this server writes no log file");
    };
    let lines = query.lines.unwrap_or(LOG_LINES.0).clamp(1, LOG_LINES.1);
    let max_bytes = query.max_bytes.unwrap_or(LOG_BYTES.0).clamp(1, LOG_BYTES.1);
    match lists::log_tail(path, lines, max_bytes).await {
        Ok((text, truncated)) => {
            Json(json!({ "path": path.display().to_string(), "text": text, "truncated": truncated }))
                .into_response()
        }
        Err(error) => {
            let error = format!("failed to read log file: {}: {error}", path.display());
            plain(StatusCode::INTERNAL_SERVER_ERROR, &error)
        }
    }
}
