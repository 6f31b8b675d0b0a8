//! Access tokens: how the owner lets somebody else in under a name, and takes that back.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode, Uri};
use qd_store::{ACCESS_TOKENS_MAX, AccessToken, StoreError, TokenPut};
use qd_wire::access::{AccessTokenInfo, AccessTokens, AddedAccessToken, NewAccessToken};
use serde_json::json;

use crate::access::{hash, is_plain_name, random_text};
use crate::clock::now_ms;
use crate::http::{check_owner, failed, refused};
use crate::principals::{ANONYMOUS, OWNER};
use crate::runners_api::read_body;
use crate::serve::Server;

/// Principals that are somebody already, and names that mean something else in a path.
const RESERVED_NAMES: [&str; 4] = [OWNER, ANONYMOUS, ".", ".."];
/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// `GET /api/tokens`
pub(crate) async fn list(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(refusal) = check_owner(&server.hub, &uri, &headers).await {
        return refused(&refusal);
    }
    let tokens = match server.hub.store.access_tokens().await {
        Ok(tokens) => tokens,
        Err(error) => return unavailable(&error),
    };
    let info = |AccessToken { name, created_at, last_used_at, .. }| AccessTokenInfo {
        name,
        created_at,
        last_used_at,
    };
    Json(AccessTokens { tokens: tokens.into_iter().map(info).collect() }).into_response()
}

/// `POST /api/tokens`: the answer is the only place where the token is ever shown.
pub(crate) async fn add(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    if let Err(refusal) = check_owner(&server.hub, &uri, &headers).await {
        return refused(&refusal);
    }
    let name = match read_name(body).await {
        Ok(name) => name,
        Err(error) => return failed(StatusCode::BAD_REQUEST, &error),
    };
    let Some(token) = random_text(TOKEN_BYTES) else {
        return failed(StatusCode::SERVICE_UNAVAILABLE, "The system has no randomness; try again");
    };
    let row = AccessToken {
        name: name.clone(),
        token_hash: hash(&token).to_vec(),
        created_at: now_ms(),
        last_used_at: None,
    };
    match server.hub.store.put_access_token(row).await {
        Ok(TokenPut::Added) => {
            tracing::info!(name, "there is a new access token");
            ([(CACHE_CONTROL, "no-store")], Json(AddedAccessToken { name, token })).into_response()
        }
        Ok(TokenPut::NameTaken) => {
            let error = "There is a token of this name; take another name, or remove that one first ('qd token revoke')";
            failed(StatusCode::CONFLICT, error)
        }
        Ok(TokenPut::TooMany) => {
            let error =
                format!("There are {ACCESS_TOKENS_MAX} tokens, which is the limit; remove some first");
            failed(StatusCode::TOO_MANY_REQUESTS, &error)
        }
        Err(error) => unavailable(&error),
    }
}

async fn read_name(body: Body) -> Result<String, String> {
    let body = read_body(body).await?;
    let NewAccessToken { name } =
        serde_json::from_slice(&body).map_err(|error| format!("The body must be {{\"name\":…}}: {error}"))?;
    if !is_plain_name(&name) {
        return Err("'name' must be 1 to 64 of the characters A-Z a-z 0-9 . _ -".to_owned());
    }
    if RESERVED_NAMES.contains(&&*name) {
        return Err(format!("'name' cannot be '{name}'; take another one"));
    }
    Ok(name)
}

/// `DELETE /api/tokens/{name}`: it opens nothing any more, and what it had opened is closed at once.
pub(crate) async fn revoke(
    State(server): State<Server>,
    Path(name): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    if let Err(refusal) = check_owner(&server.hub, &uri, &headers).await {
        return refused(&refusal);
    }
    match server.hub.store.delete_access_token(&name).await {
        Ok(true) => {}
        Ok(false) => {
            return failed(StatusCode::NOT_FOUND, "There is no token of this name; see 'qd token list'");
        }
        Err(error) => return unavailable(&error),
    }
    server.hub.revoke_access(&name);
    tracing::warn!(name, "the access token is revoked");
    if let Err(error) = server.hub.pi_server.revoke(&server.hub, &name).await {
        let error = format!(
            "The token is revoked, but the commands of its bearer are still in the store: {error}; use another name next time"
        );
        return failed(StatusCode::SERVICE_UNAVAILABLE, &error);
    }
    Json(json!({ "name": name })).into_response()
}

fn unavailable(error: &StoreError) -> Response {
    failed(StatusCode::SERVICE_UNAVAILABLE, &format!("The hub cannot use its store: {error}"))
}
