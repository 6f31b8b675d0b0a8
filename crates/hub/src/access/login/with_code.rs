//! `/login?code=…` and `/logout`: how a browser gets its cookie by a link, and loses it.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, LOCATION, SET_COOKIE};
use http::{HeaderMap, StatusCode, Uri};
use qd_link::clock::now_ms;
use qd_store::StoreError;
use qd_wire::ErrorCode;

use super::{cookie, make_login};
use crate::access::authenticate;
use crate::access::check_request::{check_known, query_code};
use crate::access::principals::OWNER;
use crate::hub::Hub;
use crate::server::assets::wants_page;
use crate::server::listen::Peer;
use crate::server::router::{failed, failed_as, failed_with, no_randomness, unavailable};

const UNUSABLE: &str = "This sign-in link is used up or too old. Make a new one in the app on a browser that is signed in (Settings), or start 'qd up' again, which prints one";
/// Where the app says the same to a person.
const UNUSABLE_PAGE: &str = "/welcome?link=unusable";

/// `GET /login?code=…`
pub(crate) async fn login(
    State(hub): State<Arc<Hub>>,
    Extension(Peer(peer)): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let text = query_code(&uri);
    let Some(code) = hub.config.login_codes.redeem(&text, now_ms()) else {
        return unusable(&hub, &uri, &headers).await;
    };
    let person = code.person.as_deref();
    let login = match may_come_in(&hub, person).await {
        Ok(true) => make_login(&hub, person, &headers).await,
        Ok(false) => return unusable(&hub, &uri, &headers).await,
        Err(error) => Err(error),
    };
    let response = match login {
        Ok(Some(token)) => {
            let summary = format!("with a code, from {peer}");
            hub.note_action("login", Some(person.unwrap_or(OWNER)), Some(true), summary).await;
            return to_start(&hub, &token, hub.config.login_life.as_secs());
        }
        Ok(None) => failed_with(&no_randomness()),
        Err(error) => {
            let error = format!("The login cannot be stored: {error}. The link stays good; open it again");
            failed(ErrorCode::StoreUnavailable, &error)
        }
    };
    // The code was taken first, so that two requests cannot both use it; a failure of ours must not cost the person the
    // link.
    hub.config.login_codes.give_back(&text, code);
    response
}

/// Whether the maker of a link is still there and not disabled; the hub's owner always is.
async fn may_come_in(hub: &Hub, person: Option<&str>) -> Result<bool, StoreError> {
    let Some(username) = person else { return Ok(true) };
    Ok(hub.store.person(username).await?.is_some_and(|person| !person.disabled))
}

/// A person who opens a link again in the browser it has signed in is where they want to be.
async fn unusable(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Response {
    if !wants_page(headers) {
        return failed_as(StatusCode::UNAUTHORIZED, &ErrorCode::CodeExpired.with(UNUSABLE));
    }
    let place = if check_known(hub, uri, headers).await.is_ok() { "/" } else { UNUSABLE_PAGE };
    (StatusCode::SEE_OTHER, [(LOCATION, place), (CACHE_CONTROL, "no-store")]).into_response()
}

/// Forgets the login of a browser or of a program, on both sides.
pub(crate) async fn logout(State(hub): State<Arc<Hub>>, headers: HeaderMap) -> Response {
    // While it is known here whose it is.
    let known = authenticate::check_access(&hub.config, &hub.store, &hub.principals, &headers, None).await;
    match authenticate::end_logins(&hub.store, &headers).await {
        Ok(ended) => {
            ended.iter().for_each(|hash| hub.end_access(hash));
            if let Ok(principal) = known.as_ref()
                && !ended.is_empty()
            {
                hub.note_change("login", principal, "signed out".to_owned()).await;
            }
            to_start(&hub, "", 0)
        }
        Err(error) => unavailable(&error),
    }
}

/// To the first page, with this cookie.
fn to_start(hub: &Hub, token: &str, life_seconds: u64) -> Response {
    let cookie = cookie(hub, token, life_seconds);
    let headers = [(SET_COOKIE, &*cookie), (LOCATION, "/"), (CACHE_CONTROL, "no-store")];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Programs that look at links before people open them must not use codes up.
pub(crate) async fn not_for_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}
