//! Access tokens: those that people make for programs of theirs, and those by which the owner lets somebody else in
//! under a name.
//!
//! A token never does more than its owner may: scopes only take away. And no token makes tokens, or one that was
//! copied could outlive its end.

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::response::{IntoResponse, Json};
use http::StatusCode;
use http::header::CACHE_CONTROL;
use http::request::Parts;
use qd_link::clock::now_ms;
use qd_store::{ACCESS_TOKENS_MAX, AccessTokenRow, TokenStored};
use qd_wire::access::{AccessTokenInfo, AccessTokens, AddedAccessToken, NewAccessToken};
use qd_wire::command_table::Permission;
use qd_wire::people::Permissions;
use qd_wire::{CodedError, ErrorCode};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::authenticate::{Hash, check_principal_name, hash, random_text, scopes};
use crate::access::principals::{Access, Principal};
use crate::rest::request::{Caller, RestError, RestResult, read_json};
use crate::server::Server;
use crate::server::router::no_randomness;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Ten years; who wants it to last longer leaves the limit out.
const DAYS_MAX: u32 = 3650;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// `GET /api/tokens`: one's own; all of them for those who manage.
pub(crate) async fn list(
    State(server): State<Server>,
    TokenHolder(principal): TokenHolder,
) -> RestResult<Json<AccessTokens>> {
    let tokens = server.hub.store.access_tokens().await?;
    let is_manager = principal.permissions.contains(Permission::Manage);
    // For the hub's owner `person` is none, as is the owner of the tokens they have made.
    let own = tokens.into_iter().filter(|token| is_manager || token.owner.as_deref() == principal.person());
    Ok(Json(AccessTokens { tokens: own.map(info).collect() }))
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
pub(crate) async fn add(
    State(server): State<Server>,
    TokenHolder(principal): TokenHolder,
    body: Body,
) -> RestResult {
    // It could give itself a longer life.
    principal
        .check_no_token("a token cannot make tokens; log in with your password, or use the owner token")?;
    let wanted = read_wanted(body, &principal).await?;
    let token = random_text(TOKEN_BYTES).ok_or_else(no_randomness)?;
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
    match server.hub.store.put_access_token(row).await? {
        TokenStored::Added => {
            tracing::info!(name, "there is a new access token");
            server.hub.note_change("token", &principal, format!("added {name}")).await;
            Ok(([(CACHE_CONTROL, "no-store")], Json(AddedAccessToken { name, token })).into_response())
        }
        TokenStored::NameTaken => {
            let error = "There is a token or a person of this name; take another name, or remove that one first ('qd token revoke')";
            Err(ErrorCode::AlreadyExists.with(error).into())
        }
        TokenStored::TooMany => {
            let error =
                format!("There are {ACCESS_TOKENS_MAX} tokens, which is the limit; remove some first");
            let error = ErrorCode::LimitReached.with(error);
            Err(RestError::with_status(StatusCode::TOO_MANY_REQUESTS, &error))
        }
    }
}

fn words(scopes: &[Permission]) -> String {
    let words: Vec<&str> = Permissions::of(scopes).iter().map(Permission::as_str).collect();
    words.join(" ")
}

async fn read_wanted(body: Body, principal: &Principal) -> Result<NewAccessToken, CodedError> {
    let invalid = |error: String| CodedError::invalid(error);
    let wanted: NewAccessToken = read_json(body, |error| {
        format!("The body must be {{\"name\":…}}, with \"scopes\":[…] and \"days\":… if wanted: {error}")
    })
    .await?;
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
        // Nobody can give away what they do not have.
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
    TokenHolder(principal): TokenHolder,
    Path(name): Path<String>,
    Query(TokenOwnerQuery { owner }): Query<TokenOwnerQuery>,
) -> RestResult<Json<Value>> {
    let owner = match owner {
        Some(owner) if Some(&*owner) != principal.person() => {
            principal.rights().check("another's tokens", Permission::Manage)?;
            (!owner.is_empty()).then_some(owner)
        }
        _ => principal.person().map(str::to_owned),
    };
    if !may_revoke(&principal, &name) {
        let error = "Permission denied: a token can revoke only itself; log in with your password, or use the owner token";
        return Err(ErrorCode::PermissionDenied.with(error).into());
    }
    let hash = server.hub.store.delete_access_token(owner.as_deref(), &name).await?;
    let no_token = || ErrorCode::NotFound.with("There is no token of this name; see 'qd token list'");
    let hash = hash.ok_or_else(no_token)?;
    tracing::warn!(name, "the access token is revoked");
    server.hub.note_change("token", &principal, format!("revoked {name}")).await;
    if let Some(owner) = owner {
        // The person is still there.
        if let Ok(hash) = Hash::try_from(hash) {
            server.hub.end_access(&hash);
        }
        return Ok(Json(json!({ "name": name, "owner": owner })));
    }
    server.hub.revoke_access(&name);
    if let Err(error) = server.hub.faces.revoke(&server.hub, &name).await {
        let error = format!(
            "The token is revoked, but the commands of its bearer are still in the store: {error}; use another name next time"
        );
        return Err(ErrorCode::StoreUnavailable.with(error).into());
    }
    Ok(Json(json!({ "name": name })))
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
pub(crate) struct TokenHolder(Principal);

impl FromRequestParts<Server> for TokenHolder {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> RestResult<Self> {
        let Caller(principal) = Caller::from_request_parts(parts, server).await?;
        if principal.person().is_none() {
            principal.rights().check(parts.uri.path(), Permission::Manage)?;
        }
        Ok(Self(principal))
    }
}
