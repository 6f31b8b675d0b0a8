//! Logging in: with a name and a password here, with a one-time code in `with_code`.

mod codes;
mod password;
mod throttle;
pub(crate) mod with_code;

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Json, Response};
use http::header::{CACHE_CONTROL, RETRY_AFTER, SET_COOKIE, USER_AGENT};
use http::{HeaderMap, StatusCode};
use qd_link::clock::now_ms;
use qd_link::mutex::Mutex;
use qd_store::{PersonRow, StoreError};
use qd_wire::people::{LoginAnswer, LoginRequest};
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::Semaphore;

use crate::access::authenticate::{self, COOKIE_NAME, cookie_named, random_text};
use crate::hub::Hub;
use crate::rest::request::read_json;
use crate::server::Server;
use crate::server::listen::Peer;
use crate::server::router::{failed, failed_as, failed_with, no_randomness};
pub use codes::{LOGIN_CODE_LIFE, LOGIN_CODES_MAX, LOGIN_LINK_LIFE, LoginCodes};
pub(crate) use password::{HashError, Hasher, PASSWORD_BYTES_MAX, PASSWORD_CHARS_MIN};
pub(crate) use throttle::LoginAttempt;
use throttle::LoginThrottle;

const INVALID: &str = "invalid credentials";
/// What a browser says of itself, as far as a list of logins shows it.
const LABEL_CHARS_MAX: usize = 200;
/// The cookie by which a browser is known again in which somebody has logged in. It permits nothing; failures there are
/// only counted apart.
const BROWSER_COOKIE_NAME: &str = "qd_browser";
/// A year: who logs in now and then stays known.
const BROWSER_COOKIE_SECONDS: u64 = 365 * 24 * 3600;
/// Random bytes of it, far beyond guessing.
const BROWSER_TOKEN_BYTES: usize = 16;
/// Attempts from slow addresses that may wait or be checked. Hashes have places for many more, which stay for others.
const SLOW_PLACES_MAX: usize = 4;

/// Where people log in.
pub(crate) struct PasswordLogins {
    pub(crate) hasher: Hasher,
    throttle: Mutex<LoginThrottle>,
    slow_places: Semaphore,
    /// One attempt at a time.
    slow_turn: Semaphore,
}

impl Default for PasswordLogins {
    fn default() -> Self {
        Self {
            hasher: Hasher::default(),
            throttle: Mutex::default(),
            slow_places: Semaphore::new(SLOW_PLACES_MAX),
            slow_turn: Semaphore::new(1),
        }
    }
}

/// Why somebody is not believed to be who they say.
pub(crate) enum LoginRefusal {
    /// It is not their password, or there is no such person, or they are not to come in: nobody is told which.
    Wrong,
    /// Milliseconds to wait.
    TooOften(i64),
    Unavailable(CodedError),
}

/// Checks a name and a password, with the same work for every name. A client that hangs up meanwhile has made its
/// attempt: the check goes on, and a failure counts.
pub(crate) async fn prove(
    hub: &Arc<Hub>,
    attempt: LoginAttempt,
    username: &str,
    password: String,
) -> Result<PersonRow, LoginRefusal> {
    let (own, username) = (Arc::clone(hub), username.to_owned());
    let proving = hub.tasks.spawn(async move {
        let logins = &own.logins;
        logins.prove(&own, &attempt, &username, password).await
    });
    proving.await.unwrap_or_else(|error| Err(unavailable(ErrorCode::Internal, &error)))
}

fn unavailable(code: ErrorCode, error: &dyn std::fmt::Display) -> LoginRefusal {
    LoginRefusal::Unavailable(code.with(format!("The password cannot be checked: {error}")))
}

impl PasswordLogins {
    async fn prove(
        &self,
        hub: &Hub,
        attempt: &LoginAttempt,
        username: &str,
        password: String,
    ) -> Result<PersonRow, LoginRefusal> {
        let busy = || unavailable(ErrorCode::Busy, &HashError::Busy);
        let (wait_ms, is_slow) = {
            let throttle = self.throttle.lock();
            (throttle.wait_ms(attempt, now_ms()), throttle.is_slow(attempt, now_ms()))
        };
        if let Some(wait_ms) = wait_ms {
            return Err(LoginRefusal::TooOften(wait_ms));
        }
        let _slow = match is_slow {
            false => None,
            true => {
                let place = self.slow_places.try_acquire().map_err(|_| busy())?;
                Some((place, self.slow_turn.acquire().await.map_err(|_| busy())?))
            }
        };
        let person = hub.store.person(username).await;
        let person = person.map_err(|error| unavailable(ErrorCode::StoreUnavailable, &error))?;
        let stored = person.as_ref().map(|person| person.password_hash.clone());
        let is_theirs = self.hasher.is_password(password, stored).await;
        let is_theirs = is_theirs.map_err(|error| unavailable(error.code(), &error))?;
        // After the hash: a disabled account must take as long as any other, or its existence could be measured.
        match person.filter(|person| is_theirs && !person.disabled) {
            Some(person) => {
                self.throttle.lock().note_success(attempt, now_ms());
                Ok(person)
            }
            None => {
                self.throttle.lock().note_failure(attempt, now_ms());
                Err(LoginRefusal::Wrong)
            }
        }
    }

    /// The token of a browser in which somebody has logged in for the first time; it has one already otherwise.
    fn new_browser_token(&self, attempt: &LoginAttempt, username: &str) -> Option<String> {
        let mut throttle = self.throttle.lock();
        let token = random_text(BROWSER_TOKEN_BYTES).filter(|_| throttle.is_new_browser(attempt))?;
        throttle.note_browser(username, &token, now_ms());
        Some(token)
    }
}

/// By which a browser says that somebody has logged in there.
pub(crate) fn browser_token(headers: &HeaderMap) -> Option<&str> {
    cookie_named(headers, BROWSER_COOKIE_NAME)
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
    let attempt = LoginAttempt::new(&username, &peer, browser_token(&headers));
    let person = match prove(hub, attempt.clone(), &username, password).await {
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
            let known = hub.logins.new_browser_token(&attempt, &person.username);
            let known = known.map(|known| {
                (SET_COOKIE, lasting_cookie(hub, BROWSER_COOKIE_NAME, &known, BROWSER_COOKIE_SECONDS))
            });
            let headers = [(SET_COOKIE, cookie), (CACHE_CONTROL, "no-store".to_owned())];
            let answer = Json(LoginAnswer { access_token: token });
            (AppendHeaders(headers), AppendHeaders(known), answer).into_response()
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
    lasting_cookie(hub, COOKIE_NAME, token, life_seconds)
}

fn lasting_cookie(hub: &Hub, name: &str, value: &str, life_seconds: u64) -> String {
    let secure = if hub.config.tls.is_some() { "; Secure" } else { "" };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life_seconds}{secure}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::{test_hub, wait_until};

    /// Otherwise a guess whose sender hangs up before the answer costs nothing.
    #[tokio::test]
    async fn an_attempt_counts_although_nobody_waits_for_its_end() {
        let (hub, _directory) = test_hub(|_| {});
        let attempt = LoginAttempt::new("alice", &Arc::from("127.0.0.1:5"), None);
        for _ in 0..5 {
            let mut guess = Box::pin(prove(&hub, attempt.clone(), "alice", "a guess".to_owned()));
            assert!(futures_util::poll!(&mut guess).is_pending());
        }
        let waits = || hub.logins.throttle.lock().wait_ms(&attempt, now_ms()).is_some();
        let counted = tokio::time::timeout(std::time::Duration::from_secs(20), wait_until(waits)).await;
        assert!(counted.is_ok());
    }
}
