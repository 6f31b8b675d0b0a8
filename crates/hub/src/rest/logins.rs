//! One's own logins: which there are, how to end one, and how to sign one more browser in.
//!
//! A login is named by a hash of the stored hash of its token: the name can be shown and opens nothing.

use axum::extract::{Path, State};
use axum::response::Json;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Uri};
use qd_core::encoding::hex;
use qd_link::clock::now_ms;
use qd_store::LoginRow;
use qd_wire::ErrorCode;
use qd_wire::people::{LoginInfo, Logins};
use qd_wire::rest::LoginLink;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::access::authenticate::Hash;
use crate::access::principals::{Access, Principal};
use crate::rest::request::{Caller, RestResult};
use crate::server::Server;
use crate::server::router::no_randomness;

/// Hex digits of a login's id: enough to tell a hundred apart.
const ID_DIGITS: usize = 16;

/// `GET /api/logins`
pub(crate) async fn list(
    State(server): State<Server>,
    Caller(principal): Caller,
) -> RestResult<Json<Logins>> {
    let logins = own(&server, &principal).await?;
    Ok(Json(Logins { logins: logins.into_iter().map(|login| info(&principal, login)).collect() }))
}

/// `DELETE /api/logins/{login_id}`: it opens nothing any more, and what it had opened is closed at once.
pub(crate) async fn end(
    State(server): State<Server>,
    Caller(principal): Caller,
    Path(login_id): Path<String>,
) -> RestResult<Json<Value>> {
    let logins = own(&server, &principal).await?;
    let login = logins.iter().find(|login| id_of(&login.token_hash) == login_id);
    let login =
        login.ok_or_else(|| ErrorCode::NotFound.with("You have no such login; see GET /api/logins"))?;
    server.hub.store.delete_login(&login.token_hash).await?;
    if let Ok(hash) = Hash::try_from(&*login.token_hash) {
        server.hub.end_access(&hash);
    }
    let summary = format!("ended {login_id}");
    server.hub.note_action("login", Some(&principal.name), None, summary).await;
    Ok(Json(json!({ "login_id": login_id })))
}

/// `POST /api/logins/links`: a link that signs in one more browser of the asker, once and soon. What is signed in by it
/// is the asker, with the asker's role.
pub(crate) async fn link(
    State(server): State<Server>,
    Caller(principal): Caller,
    uri: Uri,
    headers: HeaderMap,
) -> RestResult<Json<LoginLink>> {
    principal.check_no_token(
        "a token cannot make sign-in links; sign in with your password, or use the owner token",
    )?;
    let Some((code, expires_at)) = server.hub.config.login_codes.issue_for(&principal) else {
        return Err(no_randomness().into());
    };
    let summary = "made a sign-in link".to_owned();
    server.hub.note_action("login", Some(&principal.name), None, summary).await;
    let url = format!("{}/login?code={code}", own_address(&server, &uri, &headers));
    Ok(Json(LoginLink { url, code, expires_at }))
}

/// The hub's address as the asker reached it. The place was checked: name and origin are our own.
fn own_address(server: &Server, uri: &Uri, headers: &HeaderMap) -> String {
    // A page knows best: between it and us may be somebody who speaks TLS for us.
    if let Some(origin) = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok()) {
        return origin.to_owned();
    }
    address_of_host(server, uri, headers)
}

/// The same by the name in the request.
pub(crate) fn address_of_host(server: &Server, uri: &Uri, headers: &HeaderMap) -> String {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
    format!("{}://{host}", if server.hub.config.tls.is_some() { "https" } else { "http" })
}

/// The logins of who asks that are not over. Tokens have none, and see none of their owner's.
async fn own(server: &Server, principal: &Principal) -> RestResult<Vec<LoginRow>> {
    principal.check_no_token("a token sees no logins; log in with your password")?;
    let mut logins = server.hub.store.logins_of(principal.person()).await?;
    let life_ms = i64::try_from(server.hub.config.login_life.as_millis()).unwrap_or(i64::MAX);
    let now = now_ms();
    logins.retain(|login| now.saturating_sub(login.last_used_at) < life_ms);
    Ok(logins)
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
    hex(&Sha256::digest(token_hash))[..ID_DIGITS].to_owned()
}
