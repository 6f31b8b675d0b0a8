//! One session, its messages, and search in all of them, over HTTP. The commands of the same name do the work.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use qd_wire::command_table::CommandName;
use qd_wire::data::SessionSummary;
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::principals::Principal;
use crate::command::Command;
use crate::hub::Hub;
use crate::rest::commands::ask_and_wait;
use crate::rest::request::{Caller, QueryResult, RestError, RestResult, Viewer, read_query};
use crate::server::Server;
use crate::sessions::reads;

const NO_SESSION: &str = "There is no such session; GET /api/sessions lists those there are";

pub(crate) fn no_session() -> CodedError {
    ErrorCode::SessionNotFound.with(NO_SESSION)
}

/// `GET /api/sessions`
pub(crate) async fn sessions(State(hub): State<Arc<Hub>>, _: Viewer) -> RestResult<Json<Value>> {
    let sessions = reads::sessions(&hub).await?;
    Ok(Json(json!({ "sessions": sessions })))
}

/// `GET /api/sessions/{session_id}`
pub(crate) async fn session(
    State(hub): State<Arc<Hub>>,
    _: Viewer,
    Path(session_id): Path<String>,
) -> RestResult<Json<SessionSummary>> {
    let row = hub.store.session(&session_id).await?.ok_or_else(no_session)?;
    Ok(Json(hub.summary(row)))
}

#[derive(Deserialize)]
pub(crate) struct MessagesQuery {
    before: Option<u64>,
    limit: Option<u64>,
}

/// `GET /api/sessions/{session_id}/messages`
pub(crate) async fn messages(
    State(server): State<Server>,
    Caller(principal): Caller,
    Path(session_id): Path<String>,
    page: QueryResult<MessagesQuery>,
) -> RestResult {
    let MessagesQuery { before, limit } = read_query(page, "'before' and 'limit' must be whole numbers")?;
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
    Caller(principal): Caller,
    wanted: QueryResult<SearchQuery>,
) -> RestResult {
    let error = "Give the words as 'q'; 'from', 'to', 'limit' and 'offset' must be whole numbers";
    let wanted = read_query(wanted, error)?;
    let session_id = wanted.session_id.filter(|session_id| !session_id.is_empty());
    let command = Command::new(CommandName::Search)
        .with("query", wanted.q)
        .with("runner_id", wanted.runner_id)
        .with("harness", wanted.harness)
        .with("role", wanted.role)
        .with("from", wanted.from)
        .with("to", wanted.to)
        .with("limit", wanted.limit)
        .with("offset", wanted.offset)
        .on_if(session_id);
    ask(&server.hub, &principal, command).await
}

/// Asks, and gives the data of the answer as it came.
async fn ask(hub: &Arc<Hub>, principal: &Principal, command: Command<'_>) -> RestResult {
    let answer = ask_and_wait(hub, principal, command).await;
    let error = match (answer.failed(), answer.data) {
        (None, Some(data)) => {
            let json = Box::<str>::from(data).into_string();
            return Ok(([(CONTENT_TYPE, "application/json")], json).into_response());
        }
        (None, None) => ErrorCode::Internal.with("The answer has no data"),
        (Some(error), _) => error,
    };
    if error.code == ErrorCode::SessionNotFound {
        return Err(no_session().into());
    }
    if [ErrorCode::PermissionDenied, ErrorCode::StoreUnavailable].contains(&error.code) {
        return Err(error.into());
    }
    Err(RestError::with_status(StatusCode::BAD_REQUEST, &error))
}
