//! Logging in: with a name and a password here, with a one-time code in `with_code`.

mod codes;
mod password;
mod throttle;
pub(crate) mod with_code;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Json, Response};
use http::header::{CACHE_CONTROL, RETRY_AFTER, SET_COOKIE, USER_AGENT};
use http::{HeaderMap, StatusCode};
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::{PersonRow, StoreError};
use qd_wire::people::{LoginAnswer, LoginRequest};
use qd_wire::{CodedError, ErrorCode};

use crate::access::authenticate::{self, COOKIE_NAME};
use crate::hub::Hub;
use crate::rest::request::read_json;
use crate::server::Server;
use crate::server::listen::Peer;
use crate::server::router::{failed, failed_as, failed_with, no_randomness};
pub use codes::{LOGIN_CODE_LIFE, LOGIN_CODES_MAX, LOGIN_LINK_LIFE, LoginCodes};
pub(crate) use password::{HashError, Hasher, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
use throttle::{LoginAttempt, LoginThrottle};

const INVALID: &str = "invalid credentials";
/// What a browser says of itself, as far as a list of logins shows it.
const LABEL_CHARS_MAX: usize = 200;

/// Where people log in.
#[derive(Default)]
pub(crate) struct PasswordLogins {
    pub(crate) hasher: Hasher,
    throttle: Mutex<LoginThrottle>,
}

/// Why somebody is not believed to be who they say.
pub(crate) enum LoginRefusal {
    /// It is not their password, or there is no such person, or they are not to come in: nobody is told which.
    Wrong,
    /// Milliseconds to wait.
    TooOften(i64),
    Unavailable(CodedError),
}

impl PasswordLogins {
    /// Checks a name and a password, with the same work for every name.
    pub(crate) async fn prove(
        &self,
        hub: &Hub,
        peer: &Arc<str>,
        username: &str,
        password: String,
    ) -> Result<PersonRow, LoginRefusal> {
        let attempt = LoginAttempt::new(username, peer);
        if let Some(wait_ms) = self.throttle.lock().wait_ms(&attempt, now_ms()) {
            return Err(LoginRefusal::TooOften(wait_ms));
        }
        let unavailable = |code: ErrorCode, error: &dyn std::fmt::Display| {
            LoginRefusal::Unavailable(code.with(format!("The password cannot be checked: {error}")))
        };
        let person = hub.store.person(username).await;
        let person = person.map_err(|error| unavailable(ErrorCode::StoreUnavailable, &error))?;
        let stored = person.as_ref().map(|person| person.password_hash.clone());
        let is_theirs = self.hasher.is_password(password, stored).await;
        let is_theirs = is_theirs.map_err(|error| unavailable(error.code(), &error))?;
        // After the hash: a disabled account must take as long as any other, or its existence could be measured.
        match person.filter(|person| is_theirs && !person.disabled) {
            Some(person) => {
                self.throttle.lock().note_success(&attempt, now_ms());
                Ok(person)
            }
            None => {
                self.throttle.lock().note_failure(&attempt, now_ms());
                Err(LoginRefusal::Wrong)
            }
        }
    }
}

impl LoginRefusal {
    pub(crate) fn response(self) -> Response {
        match self {
            LoginRefusal::Wrong => failed(ErrorCode::NotLoggedIn, INVALID),
            LoginRefusal::TooOften(wait_ms) => {
                let seconds = wait_ms.max(1).cast_unsigned().div_ceil(1000);
                let error = format!("Too many failed logins; try again in {seconds} s");
                let mut response = failed(ErrorCode::RateLimited, &error);
                response.headers_mut().insert(RETRY_AFTER, seconds.into());
                response
            }
            LoginRefusal::Unavailable(error) => failed_as(StatusCode::SERVICE_UNAVAILABLE, &error),
        }
    }
}

/// `POST /auth/login`: the token is for programs, the cookie for browsers; both are the same login.
pub(crate) async fn login(
    State(server): State<Server>,
    Extension(Peer(peer)): Extension<Peer>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // The parser's own words may repeat what was sent.
    let read =
        read_json(body, |_| "The body must be {\"username\":\"…\",\"password\":\"…\"}".to_owned()).await;
    let LoginRequest { username, password } = match read {
        Ok(request) => request,
        Err(error) => return failed_with(&error),
    };
    let hub = &server.hub;
    // What is no name may be anything, a password typed into the wrong field too: it is not written down.
    let shown = authenticate::is_plain_name(&username).then_some(&*username);
    let person = match hub.logins.prove(hub, &peer, &username, password).await {
        Ok(person) => person,
        Err(unproved) => {
            if matches!(unproved, LoginRefusal::Wrong) {
                tracing::warn!(%peer, "a login failed");
                note(hub, shown, false, &peer).await;
            }
            return unproved.response();
        }
    };
    match make_login(hub, Some(&person.username), &headers).await {
        Ok(Some(token)) => {
            note(hub, shown, true, &peer).await;
            let cookie = cookie(hub, &token, hub.config.login_life.as_secs());
            let headers = [(SET_COOKIE, cookie), (CACHE_CONTROL, "no-store".to_owned())];
            (headers, Json(LoginAnswer { access_token: token })).into_response()
        }
        Ok(None) => failed_with(&no_randomness()),
        Err(error) => failed(ErrorCode::StoreUnavailable, &format!("The login cannot be stored: {error}")),
    }
}

/// A new login of a person, or of the hub's owner; `None` when the system has no randomness.
async fn make_login(
    hub: &Hub,
    username: Option<&str>,
    headers: &HeaderMap,
) -> Result<Option<String>, StoreError> {
    let token = authenticate::new_login(&hub.store, &hub.principals, username, label(headers)).await?;
    if token.is_none() {
        return Ok(None);
    }
    // Logins that had to make room are over.
    hub.close_revoked();
    if let Some(username) = username
        && let Err(error) = hub.store.note_person_login(username, now_ms()).await
    {
        tracing::warn!(%error, "the time of a login cannot be noted");
    }
    Ok(token)
}

async fn note(hub: &Hub, username: Option<&str>, ok: bool, peer: &str) {
    let summary = format!("from {peer}");
    hub.note_action("login", username, Some(ok), summary).await;
}

/// What the list of logins shows.
pub(crate) fn label(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown");
    agent.chars().filter(|character| !character.is_control()).take(LABEL_CHARS_MAX).collect()
}

/// The cookie of a login; with an empty token and no life, its end. It never comes with a request that another site has
/// made (`Strict`): the app itself loads without it, and what the app then asks is asked by our own page.
pub(crate) fn cookie(hub: &Hub, token: &str, life_seconds: u64) -> String {
    let secure = if hub.config.tls.is_some() { "; Secure" } else { "" };
    format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life_seconds}{secure}")
}
