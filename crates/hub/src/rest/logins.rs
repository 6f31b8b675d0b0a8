//! One's own logins: which there are, how to end one, and how to sign one more browser in.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};
use qd_link::clock::now_ms;
use qd_store::LoginRow;
use qd_wire::ErrorCode;
use qd_wire::people::{LoginInfo, Logins};
use qd_wire::rest::LoginLink;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::access::audit::AuditedAction;
use crate::access::authenticate::Hash;
use crate::access::principals::{Access, Principal};
use crate::server::Server;
use crate::server::router::{check_known, failed, no_randomness, refused, unavailable};

/// Hex digits of a login's id: enough to tell a hundred apart.
const ID_DIGITS: usize = 16;

/// `GET /api/logins`
pub(crate) async fn list(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    match own(&server, &uri, &headers).await {
        Ok((principal, logins)) => {
            let logins = logins.into_iter().map(|login| info(&principal, login)).collect();
            Json(Logins { logins }).into_response()
        }
        Err(response) => response,
    }
}

/// `DELETE /api/logins/{login_id}`: it opens nothing any more, and what it had opened is closed at once.
pub(crate) async fn end(
    State(server): State<Server>,
    Path(login_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let (principal, logins) = match own(&server, &uri, &headers).await {
        Ok(own) => own,
        Err(response) => return response,
    };
    let Some(login) = logins.iter().find(|login| id_of(&login.token_hash) == login_id) else {
        return failed(ErrorCode::NotFound, "You have no such login; see GET /api/logins");
    };
    if let Err(error) = server.hub.store.delete_login(&login.token_hash).await {
        return unavailable(&error);
    }
    if let Ok(hash) = Hash::try_from(&*login.token_hash) {
        server.hub.end_access(&hash);
    }
    let summary = format!("ended {login_id}");
    server
        .hub
        .note_deed(AuditedAction { kind: "login", principal: Some(&principal.name), ok: None, summary })
        .await;
    Json(json!({ "login_id": login_id })).into_response()
}

/// `POST /api/logins/links`: a link that signs in one more browser of the asker, once and soon. What is signed in by it
/// is the asker, with the asker's role.
pub(crate) async fn link(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    let principal = match check_known(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(refusal) => return refused(&refusal),
    };
    if let Access::Token(_) = principal.access {
        // It would be good for more than the token is, and for longer.
        let error = "Permission denied: a token cannot make sign-in links; sign in with your password, or use the owner token";
        return failed(ErrorCode::PermissionDenied, error);
    }
    let Some((code, expires_at)) = server.hub.config.login_codes.issue_for(&principal) else {
        return no_randomness();
    };
    let summary = "made a sign-in link".to_owned();
    server
        .hub
        .note_deed(AuditedAction { kind: "login", principal: Some(&principal.name), ok: None, summary })
        .await;
    let url = format!("{}/login?code={code}", own_address(&server, &uri, &headers));
    Json(LoginLink { url, code, expires_at }).into_response()
}

/// The hub's address as the asker reached it. The place was checked: name and origin are our own.
fn own_address(server: &Server, uri: &Uri, headers: &HeaderMap) -> String {
    // A page knows best: between it and us may be somebody who speaks TLS for us.
    if let Some(origin) = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()) {
        return origin.to_owned();
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
    format!("{}://{host}", if server.hub.config.tls.is_some() { "https" } else { "http" })
}

/// Who asks, and their logins that are not over. Tokens have none, and see none of their owner's.
async fn own(
    server: &Server,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(Principal, Vec<LoginRow>), Response> {
    let principal = check_known(&server.hub, uri, headers).await.map_err(|refusal| refused(&refusal))?;
    if let Access::Token(_) = principal.access {
        let error = "Permission denied: a token sees no logins; log in with your password";
        return Err(failed(ErrorCode::PermissionDenied, error));
    }
    let mut logins =
        server.hub.store.logins_of(principal.person()).await.map_err(|error| unavailable(&error))?;
    let life_ms = i64::try_from(server.hub.config.login_life.as_millis()).unwrap_or(i64::MAX);
    let now = now_ms();
    logins.retain(|login| now.saturating_sub(login.last_used_at) < life_ms);
    Ok((principal, logins))
}

fn info(principal: &Principal, login: LoginRow) -> LoginInfo {
    LoginInfo {
        login_id: id_of(&login.token_hash),
        label: login.label,
        created_at: login.created_at,
        last_used_at: login.last_used_at,
        current: matches!(&principal.access, Access::Login(hash) if hash[..] == login.token_hash[..]),
    }
}

/// A name for a login that says nothing of its token.
fn id_of(token_hash: &[u8]) -> String {
    let digest = Sha256::digest(token_hash);
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()[..ID_DIGITS].to_owned()
}
