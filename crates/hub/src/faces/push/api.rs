//! One's own browsers that take pushes: which there are, what they are told, and answers that come from them.

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::response::{IntoResponse, Json};
use axum::routing::{delete, get, patch, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use qd_link::clock::now_ms;
use qd_store::{PushChange, PushRow};
use qd_wire::push::{
    ChangePushSubscription, NewPushSubscription, PushAnswer, PushAnswered, PushState, PushSubscriptionInfo,
    PushTest, PushTestResult, PushTested, PushTopic, RemovedPushSubscription,
};
use qd_wire::{CodedError, ErrorCode};

use super::{AnswerResult, answer as answer_question, check_subscription, send_test};
use crate::access::authenticate::random_text;
use crate::access::login;
use crate::access::principals::{Access, OWNER, Principal};
use crate::hub::Hub;
use crate::rest::request::{RestError, RestResult, Viewer, read_body, read_json};
use crate::rest::rest;
use crate::server::Server;
use crate::server::router::no_randomness;

/// Random bytes of a subscription's id. It is no secret, only unlikely to collide.
const ID_BYTES: usize = 12;
/// A label is one line in a list of devices.
const LABEL_CHARS_MAX: usize = 200;
const NO_SUBSCRIPTION: &str = "You have no such subscription; see GET /api/push";
const NO_KEY: &str = "This hub sends no pushes: it has no key for them. 'qd up' makes one when it starts";
const OVER: &str =
    "This was answered already, or can be answered from here no more; open the session and answer there";

rest! {
    get "/api/push" => show;
    post "/api/push/subscriptions" => subscribe;
    patch "/api/push/subscriptions/{subscription_id}" => change;
    delete "/api/push/subscriptions/{subscription_id}" => remove;
    post "/api/push/test" => test;
    post "/api/push/answer" => answer;
}

/// `GET /api/push`
async fn show(
    State(server): State<Server>,
    BrowserOwner(principal): BrowserOwner,
) -> RestResult<Json<PushState>> {
    let key = server.hub.config.faces.push.key.as_ref().ok_or_else(no_key)?;
    let rows = server.hub.store.push_subscriptions_of(&principal.name).await?;
    Ok(Json(PushState {
        public_key: key.public().to_owned(),
        subscriptions: rows.into_iter().map(info).collect(),
    }))
}

/// `POST /api/push/subscriptions`
async fn subscribe(
    State(server): State<Server>,
    BrowserOwner(principal): BrowserOwner,
    headers: HeaderMap,
    body: Body,
) -> RestResult {
    let hub = &server.hub;
    if hub.config.faces.push.key.is_none() {
        return Err(no_key());
    }
    let row = read_new(hub, &principal, &headers, body).await?;
    let row = hub.store.put_push_subscription(row).await?;
    // Before the answer, so that a question asked right after it is pushed.
    hub.faces.push.note_subscriber();
    hub.note_change("push", &principal, format!("pushes to {}", row.label)).await;
    Ok((StatusCode::CREATED, Json(info(row))).into_response())
}

/// The hub could send pushes if it were started otherwise.
fn no_key() -> RestError {
    RestError::with_status(StatusCode::SERVICE_UNAVAILABLE, &ErrorCode::Unsupported.with(NO_KEY))
}

async fn read_new(
    hub: &Hub,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<PushRow, CodedError> {
    let new: NewPushSubscription =
        read_json(body, |error| format!("The body is no subscription: {error}")).await?;
    let decode = |name: &str, text: &str| {
        // Browsers send base64url without padding, but some libraries add it.
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        bytes.map_err(|_| CodedError::invalid(format!("'keys.{name}' is not base64url")))
    };
    let (p256dh, auth) = (decode("p256dh", &new.keys.p256dh)?, decode("auth", &new.keys.auth)?);
    check_subscription(&hub.config.faces.push, &new.endpoint, &p256dh, &auth)?;
    let label = new.label.filter(|label| !label.trim().is_empty()).unwrap_or_else(|| login::label(headers));
    // With the login the subscription ends too: who logs out of a device gets no more notifications there.
    let login_hash = match &principal.access {
        Access::Login(hash) => Some(hash.to_vec()),
        Access::OwnerToken | Access::Token(_) => None,
    };
    Ok(PushRow {
        subscription_id: random_text(ID_BYTES).ok_or_else(no_randomness)?,
        principal: principal.name.to_string(),
        login_hash,
        endpoint: new.endpoint,
        p256dh,
        auth,
        label: plain(&label),
        topics: words(&new.topics),
        content: new.content,
        created_at: now_ms(),
        ..PushRow::default()
    })
}

/// `PATCH /api/push/subscriptions/{id}`
async fn change(
    State(server): State<Server>,
    BrowserOwner(principal): BrowserOwner,
    Path(subscription_id): Path<String>,
    body: Body,
) -> RestResult<Json<PushSubscriptionInfo>> {
    let wanted: ChangePushSubscription = read_json(body, unreadable_body).await?;
    let change = PushChange {
        label: wanted.label.as_deref().map(plain).filter(|label| !label.is_empty()),
        topics: wanted.topics.as_deref().map(words),
        content: wanted.content,
    };
    let store = &server.hub.store;
    // The store matches principal and id together, so nobody changes a subscription of somebody else.
    store.change_push_subscription(&principal.name, &subscription_id, change).await?;
    let rows = store.push_subscriptions_of(&principal.name).await?;
    let row = rows.into_iter().find(|row| row.subscription_id == subscription_id);
    Ok(Json(info(row.ok_or_else(no_subscription)?)))
}

/// `DELETE /api/push/subscriptions/{id}`
async fn remove(
    State(server): State<Server>,
    BrowserOwner(principal): BrowserOwner,
    Path(subscription_id): Path<String>,
) -> RestResult<Json<RemovedPushSubscription>> {
    let hub = &server.hub;
    if !hub.store.delete_push_subscription(Some(&principal.name), &subscription_id).await? {
        return Err(no_subscription().into());
    }
    hub.note_change("push", &principal, "no pushes to a browser any more".to_owned()).await;
    Ok(Json(RemovedPushSubscription { id: subscription_id }))
}

/// `POST /api/push/test`: sends one's own browsers a message now, and tells how that went.
async fn test(
    State(server): State<Server>,
    BrowserOwner(principal): BrowserOwner,
    body: Body,
) -> RestResult<Json<PushTested>> {
    let hub = &server.hub;
    let body = read_body(body).await?;
    let wanted = match body.is_empty() {
        true => PushTest::default(),
        false => {
            serde_json::from_slice(&body).map_err(|error| CodedError::invalid(unreadable_body(error)))?
        }
    };
    let mut rows = hub.store.push_subscriptions_of(&principal.name).await?;
    rows.retain(|row| wanted.id.as_ref().is_none_or(|id| *id == row.subscription_id));
    if rows.is_empty() {
        return Err(no_subscription().into());
    }
    let tests = rows.into_iter().map(|row| async {
        let id = row.subscription_id.clone();
        let (code, error) = send_test(hub, row).await.err().map(|error| (error.code, error.message)).unzip();
        PushTestResult { id, ok: error.is_none(), error, code }
    });
    Ok(Json(PushTested { results: futures_util::future::join_all(tests).await }))
}

/// `POST /api/push/answer`: the token is the access, so there is no login.
async fn answer(State(server): State<Server>, body: Body) -> RestResult<Json<PushAnswered>> {
    let PushAnswer { token, decision } =
        read_json(body, |_| "The body must be {\"token\":\"…\",\"decision\":\"approve|deny\"}".to_owned())
            .await?;
    let (status, error) = match answer_question(&server.hub, &token, decision).await {
        AnswerResult::Done { session_id, request_id } => {
            let (session_id, request_id) = (session_id.to_string(), request_id.to_string());
            return Ok(Json(PushAnswered { session_id, request_id }));
        }
        AnswerResult::Over => (StatusCode::GONE, ErrorCode::QuestionNotFound.with(OVER)),
        AnswerResult::Denied(error) => (StatusCode::FORBIDDEN, error),
        AnswerResult::Refused(error) => (StatusCode::CONFLICT, error),
        AnswerResult::Failed(error) => (StatusCode::SERVICE_UNAVAILABLE, error),
    };
    Err(RestError::with_status(status, &error))
}

/// Only people and the owner have browsers. A token may have less rights than who it acts for, who would answer
/// questions by what was pushed because of it.
struct BrowserOwner(Principal);

impl FromRequestParts<Server> for BrowserOwner {
    type Rejection = RestError;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> RestResult<Self> {
        let Viewer(principal) = Viewer::from_request_parts(parts, server).await?;
        let is_token = matches!(principal.access, Access::Token(_));
        if is_token || !(principal.is_person || &*principal.name == OWNER) {
            let error = "Permission denied: a token has no browser to be told on; log in with your password";
            return Err(ErrorCode::PermissionDenied.with(error).into());
        }
        Ok(Self(principal))
    }
}

fn no_subscription() -> CodedError {
    ErrorCode::NotFound.with(NO_SUBSCRIPTION)
}

fn unreadable_body(error: serde_json::Error) -> String {
    format!("The body cannot be read: {error}")
}

fn info(row: PushRow) -> PushSubscriptionInfo {
    PushSubscriptionInfo {
        id: row.subscription_id,
        endpoint: row.endpoint,
        label: row.label,
        topics: row.topics.split(' ').filter_map(PushTopic::parse).collect(),
        content: row.content,
        created_at: row.created_at,
        last_success_at: row.last_success_at,
        last_failure_at: row.last_failure_at,
        last_failure: row.last_failure,
    }
}

/// In the order of `PushTopic::ALL` and without repetitions, whatever the browser sent.
fn words(topics: &[PushTopic]) -> String {
    let wanted = PushTopic::ALL.into_iter().filter(|topic| topics.contains(topic));
    wanted.map(PushTopic::as_str).collect::<Vec<_>>().join(" ")
}

fn plain(label: &str) -> String {
    label.trim().chars().filter(|character| !character.is_control()).take(LABEL_CHARS_MAX).collect()
}
