//! Access tokens: those that people make for programs of theirs, and those by which the owner lets somebody else in
//! under a name.

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Json, Response};
use http::header::CACHE_CONTROL;
use http::{HeaderMap, StatusCode, Uri};
use qd_link::clock::now_ms;
use qd_store::{ACCESS_TOKENS_MAX, AccessTokenRow, TokenStored};
use qd_wire::access::{AccessTokenInfo, AccessTokens, AddedAccessToken, NewAccessToken};
use qd_wire::command_table::Permission;
use qd_wire::people::Permissions;
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::json;

use crate::access::audit::AuditedAction;
use crate::access::authenticate::{Hash, check_principal_name, hash, random_text, scopes};
use crate::access::principals::{Access, Principal};
use crate::rest::runners::read_body;
use crate::server::Server;
use crate::server::router::{
    check_known, failed, failed_as, failed_with, no_randomness, refused, unavailable,
};

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Ten years; who wants it to last longer leaves the limit out.
const DAYS_MAX: u32 = 3650;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// `GET /api/tokens`: one's own; all of them for those who manage.
pub(crate) async fn list(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    let principal = match check_holder(&server, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let tokens = match server.hub.store.access_tokens().await {
        Ok(tokens) => tokens,
        Err(error) => return unavailable(&error),
    };
    let is_manager = principal.permissions.contains(Permission::Manage);
    let own = tokens.into_iter().filter(|token| is_manager || token.owner.as_deref() == principal.person());
    Json(AccessTokens { tokens: own.map(info).collect() }).into_response()
}

fn info(token: AccessTokenRow) -> AccessTokenInfo {
    AccessTokenInfo {
        scopes: scopes(&token).map(|scopes| scopes.iter().collect()),
        name: token.name,
        created_at: token.created_at,
        last_used_at: token.last_used_at,
        owner: token.owner,
        expires_at: token.expires_at,
    }
}

/// `POST /api/tokens`: the answer is the only place where the token is ever shown.
pub(crate) async fn add(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let principal = match check_holder(&server, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    if let Access::Token(_) = principal.access {
        // It could give itself a longer life.
        let error = "Permission denied: a token cannot make tokens; log in with your password, or use the owner token";
        return failed(ErrorCode::PermissionDenied, error);
    }
    let wanted = match read_wanted(body, &principal).await {
        Ok(wanted) => wanted,
        Err(error) => return failed_with(&error),
    };
    let Some(token) = random_text(TOKEN_BYTES) else {
        return no_randomness();
    };
    let (now, name) = (now_ms(), wanted.name.clone());
    let row = AccessTokenRow {
        name: wanted.name,
        owner: principal.person().map(str::to_owned),
        token_hash: hash(&token).to_vec(),
        created_at: now,
        last_used_at: None,
        scopes: wanted.scopes.map(|scopes| words(&scopes)),
        expires_at: wanted.days.map(|days| now.saturating_add(i64::from(days) * DAY_MS)),
    };
    match server.hub.store.put_access_token(row).await {
        Ok(TokenStored::Added) => {
            tracing::info!(name, "there is a new access token");
            note(&server, &principal, format!("added {name}")).await;
            ([(CACHE_CONTROL, "no-store")], Json(AddedAccessToken { name, token })).into_response()
        }
        Ok(TokenStored::NameTaken) => {
            let error = "There is a token or a person of this name; take another name, or remove that one first ('qd token revoke')";
            failed(ErrorCode::AlreadyExists, error)
        }
        Ok(TokenStored::TooMany) => {
            let error =
                format!("There are {ACCESS_TOKENS_MAX} tokens, which is the limit; remove some first");
            failed_as(StatusCode::TOO_MANY_REQUESTS, &ErrorCode::LimitReached.with(error))
        }
        Err(error) => unavailable(&error),
    }
}

fn words(scopes: &[Permission]) -> String {
    let words: Vec<&str> = Permissions::of(scopes).iter().map(Permission::as_str).collect();
    words.join(" ")
}

async fn read_wanted(body: Body, principal: &Principal) -> Result<NewAccessToken, CodedError> {
    let invalid = |error: String| CodedError::invalid(error);
    let body = read_body(body).await?;
    let wanted: NewAccessToken = serde_json::from_slice(&body).map_err(|error| {
        invalid(format!(
            "The body must be {{\"name\":…}}, with \"scopes\":[…] and \"days\":… if wanted: {error}"
        ))
    })?;
    check_principal_name("name", &wanted.name)?;
    if wanted.days.is_some_and(|days| !(1..=DAYS_MAX).contains(&days)) {
        return Err(invalid(format!(
            "'days' must be 1 to {DAYS_MAX}; leave it out for a token that does not end"
        )));
    }
    let Some(scopes) = &wanted.scopes else { return Ok(wanted) };
    if scopes.is_empty() {
        return Err(invalid("'scopes' is empty; leave it out, or name what the token may do".to_owned()));
    }
    for scope in scopes {
        principal.rights().check("a token with that scope", *scope)?;
    }
    Ok(wanted)
}

#[derive(Deserialize)]
pub(crate) struct TokenOwnerQuery {
    owner: Option<String>,
}

/// `DELETE /api/tokens/{name}`: it opens nothing any more, and what it had opened is closed at once. One's own, and
/// with `?owner=` for those who manage that of a person, or if it is empty one of the hub's owner.
pub(crate) async fn revoke(
    State(server): State<Server>,
    Path(name): Path<String>,
    Query(TokenOwnerQuery { owner }): Query<TokenOwnerQuery>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let principal = match check_holder(&server, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let owner = match owner {
        Some(owner) if Some(&*owner) != principal.person() => {
            if let Err(error) = principal.rights().check("another's tokens", Permission::Manage) {
                return failed_with(&error);
            }
            (!owner.is_empty()).then_some(owner)
        }
        _ => principal.person().map(str::to_owned),
    };
    if !may_revoke(&principal, &name) {
        let error = "Permission denied: a token can revoke only itself; log in with your password, or use the owner token";
        return failed(ErrorCode::PermissionDenied, error);
    }
    let hash = match server.hub.store.delete_access_token(owner.as_deref(), &name).await {
        Ok(Some(hash)) => hash,
        Ok(None) => {
            return failed(ErrorCode::NotFound, "There is no token of this name; see 'qd token list'");
        }
        Err(error) => return unavailable(&error),
    };
    tracing::warn!(name, "the access token is revoked");
    note(&server, &principal, format!("revoked {name}")).await;
    if let Some(owner) = owner {
        // The person is still there.
        if let Ok(hash) = Hash::try_from(hash) {
            server.hub.end_access(&hash);
        }
        return Json(json!({ "name": name, "owner": owner })).into_response();
    }
    server.hub.revoke_access(&name);
    if let Err(error) = server.hub.faces.revoke(&server.hub, &name).await {
        let error = format!(
            "The token is revoked, but the commands of its bearer are still in the store: {error}; use another name next time"
        );
        return failed(ErrorCode::StoreUnavailable, &error);
    }
    Json(json!({ "name": name })).into_response()
}

/// A token that fell into wrong hands must not lock its owner's other programs out. Whose token it is was looked at
/// before.
fn may_revoke(principal: &Principal, name: &str) -> bool {
    match &principal.access {
        Access::Token(own) => &**own == name || principal.permissions.contains(Permission::Manage),
        Access::OwnerToken | Access::Login(_) => true,
    }
}

/// Somebody who has tokens: a person, or who manages.
async fn check_holder(server: &Server, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Response> {
    let principal = check_known(&server.hub, uri, headers).await.map_err(|refusal| refused(&refusal))?;
    if principal.person().is_none()
        && let Err(error) = principal.rights().check(uri.path(), Permission::Manage)
    {
        return Err(failed_with(&error));
    }
    Ok(principal)
}

async fn note(server: &Server, principal: &Principal, summary: String) {
    let deed = AuditedAction { kind: "token", principal: Some(&principal.name), ok: Some(true), summary };
    server.hub.note_deed(deed).await;
}
