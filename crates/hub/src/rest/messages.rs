//! One session, its messages, and search in all of them, over HTTP. The commands of the same name do the work.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode, Uri};
use qd_wire::ErrorCode;
use qd_wire::command_table::CommandName;
use serde::Deserialize;

use crate::access::principals::Principal;
use crate::command::Command;
use crate::hub::Hub;
use crate::rest::commands::ask_and_wait;
use crate::server::Server;
use crate::server::router::{
    check_access, check_known, failed, failed_as, failed_with, refused, unavailable,
};

const NO_SESSION: &str = "There is no such session; GET /api/sessions lists those there are";

pub(crate) fn no_session() -> Response {
    failed_with(&ErrorCode::SessionNotFound.with(NO_SESSION))
}

/// `GET /api/sessions/{session_id}`
pub(crate) async fn session(
    State(hub): State<Arc<Hub>>,
    Path(session_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = check_access(&hub, &uri, &headers).await {
        return refused(&refusal);
    }
    match hub.store.session(&session_id).await {
        Ok(Some(row)) => Json(hub.summary(row)).into_response(),
        Ok(None) => no_session(),
        Err(error) => unavailable(&error),
    }
}

#[derive(Deserialize)]
pub(crate) struct MessagesQuery {
    before: Option<u64>,
    limit: Option<u64>,
}

/// `GET /api/sessions/{session_id}/messages`
pub(crate) async fn messages(
    State(server): State<Server>,
    Path(session_id): Path<String>,
    page: Result<Query<MessagesQuery>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let principal = match check_known(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    let Ok(Query(page)) = page else {
        return failed(ErrorCode::InvalidRequest, "'before' and 'limit' must be whole numbers");
    };
    let MessagesQuery { before, limit } = page;
    let command = Command::new(CommandName::GetMessages).on(session_id);
    let command = command.with("before", before).with("limit", limit);
    ask(&server.hub, &principal, command).await
}

/// The words of `search`, with `q` for the words looked for.
#[derive(Deserialize)]
pub(crate) struct SearchQuery {
    q: String,
    session_id: Option<String>,
    runner_id: Option<String>,
    harness: Option<String>,
    role: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
    limit: Option<u64>,
    offset: Option<u64>,
}

/// `GET /api/search`
pub(crate) async fn search(
    State(server): State<Server>,
    wanted: Result<Query<SearchQuery>, QueryRejection>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let principal = match check_known(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    let Ok(Query(wanted)) = wanted else {
        let error = "Give the words as 'q'; 'from', 'to', 'limit' and 'offset' must be whole numbers";
        return failed(ErrorCode::InvalidRequest, error);
    };
    let session_id = wanted.session_id.filter(|session_id| !session_id.is_empty());
    let command = Command::new(CommandName::Search)
        .with("query", wanted.q)
        .with("runner_id", wanted.runner_id)
        .with("harness", wanted.harness)
        .with("role", wanted.role)
        .with("from", wanted.from)
        .with("to", wanted.to)
        .with("limit", wanted.limit)
        .with("offset", wanted.offset);
    let command = match session_id {
        Some(session_id) => command.on(session_id),
        None => command,
    };
    ask(&server.hub, &principal, command).await
}

/// Asks, and gives the data of the answer as it came.
async fn ask(hub: &Arc<Hub>, principal: &Principal, command: Command<'_>) -> Response {
    let answer = ask_and_wait(hub, principal, command).await;
    let error = match (answer.failed(), answer.data) {
        (None, Some(data)) => {
            return ([(CONTENT_TYPE, "application/json")], Box::<str>::from(data).into_string())
                .into_response();
        }
        (None, None) => ErrorCode::Internal.with("The answer has no data"),
        (Some(error), _) => error,
    };
    if error.code == ErrorCode::SessionNotFound {
        return no_session();
    }
    if [ErrorCode::PermissionDenied, ErrorCode::StoreUnavailable].contains(&error.code) {
        return failed_with(&error);
    }
    failed_as(StatusCode::BAD_REQUEST, &error)
}
