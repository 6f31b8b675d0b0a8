//! One's own browsers that take pushes: which there are, what they are told, and answers that come from them.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{delete, get, patch, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, StatusCode, Uri};
use qd_link::clock::now_ms;
use qd_store::{PushChange, PushRow};
use qd_wire::command_table::Permission;
use qd_wire::push::{
    ChangePushSubscription, NewPushSubscription, PushAnswer, PushAnswered, PushState, PushSubscriptionInfo,
    PushTest, PushTestResult, PushTested, PushTopic, RemovedPushSubscription,
};
use qd_wire::{CodedError, ErrorCode};

use super::{AnswerResult, answer as answer_question, check_subscription, send_test};
use crate::access::audit::AuditedAction;
use crate::access::authenticate::random_text;
use crate::access::login;
use crate::access::principals::{Access, OWNER, Principal};
use crate::hub::Hub;
use crate::rest::rest;
use crate::rest::runners::read_body;
use crate::server::Server;
use crate::server::router::{check_permission, failed, failed_as, failed_with, refused, unavailable};

const ID_BYTES: usize = 12;
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
async fn show(State(server): State<Server>, uri: Uri, headers: HeaderMap) -> Response {
    let principal = match check_holder(&server.hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let Some(key) = &server.hub.config.faces.push.key else {
        return no_key();
    };
    match server.hub.store.push_subscriptions_of(&principal.name).await {
        Ok(rows) => Json(PushState {
            public_key: key.public().to_owned(),
            subscriptions: rows.into_iter().map(info).collect(),
        })
        .into_response(),
        Err(error) => unavailable(&error),
    }
}

/// `POST /api/push/subscriptions`
async fn subscribe(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let hub = &server.hub;
    let principal = match check_holder(hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    if hub.config.faces.push.key.is_none() {
        return no_key();
    }
    let row = match read_new(hub, &principal, &headers, body).await {
        Ok(row) => row,
        Err(error) => return failed_with(&error),
    };
    match hub.store.put_push_subscription(row).await {
        Ok(row) => {
            hub.faces.push.note_subscriber();
            note(hub, &principal, format!("pushes to {}", row.label)).await;
            (StatusCode::CREATED, Json(info(row))).into_response()
        }
        Err(error) => unavailable(&error),
    }
}

/// The hub could send pushes if it were started otherwise.
fn no_key() -> Response {
    failed_as(StatusCode::SERVICE_UNAVAILABLE, &ErrorCode::Unsupported.with(NO_KEY))
}

async fn read_new(
    hub: &Hub,
    principal: &Principal,
    headers: &HeaderMap,
    body: Body,
) -> Result<PushRow, CodedError> {
    let body = read_body(body).await?;
    let new: NewPushSubscription = serde_json::from_slice(&body)
        .map_err(|error| CodedError::invalid(format!("The body is no subscription: {error}")))?;
    let decode = |name: &str, text: &str| {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
        bytes.map_err(|_| CodedError::invalid(format!("'keys.{name}' is not base64url")))
    };
    let (p256dh, auth) = (decode("p256dh", &new.keys.p256dh)?, decode("auth", &new.keys.auth)?);
    check_subscription(&hub.config.faces.push, &new.endpoint, &p256dh, &auth)?;
    let label = new.label.filter(|label| !label.trim().is_empty()).unwrap_or_else(|| login::label(headers));
    let login_hash = match &principal.access {
        Access::Login(hash) => Some(hash.to_vec()),
        Access::OwnerToken | Access::Token(_) => None,
    };
    Ok(PushRow {
        subscription_id: random_text(ID_BYTES)
            .ok_or_else(|| ErrorCode::Busy.with("The system has no randomness; try again"))?,
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
    Path(subscription_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let hub = &server.hub;
    let principal = match check_holder(hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let wanted: ChangePushSubscription = match read_body(body).await.and_then(|body| {
        serde_json::from_slice(&body)
            .map_err(|error| CodedError::invalid(format!("The body cannot be read: {error}")))
    }) {
        Ok(wanted) => wanted,
        Err(error) => return failed_with(&error),
    };
    let change = PushChange {
        label: wanted.label.as_deref().map(plain).filter(|label| !label.is_empty()),
        topics: wanted.topics.as_deref().map(words),
        content: wanted.content,
    };
    let changed = async {
        hub.store.change_push_subscription(&principal.name, &subscription_id, change).await?;
        hub.store.push_subscriptions_of(&principal.name).await
    };
    match changed.await {
        Ok(rows) => match rows.into_iter().find(|row| row.subscription_id == subscription_id) {
            Some(row) => Json(info(row)).into_response(),
            None => failed(ErrorCode::NotFound, NO_SUBSCRIPTION),
        },
        Err(error) => unavailable(&error),
    }
}

/// `DELETE /api/push/subscriptions/{id}`
async fn remove(
    State(server): State<Server>,
    Path(subscription_id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let hub = &server.hub;
    let principal = match check_holder(hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    match hub.store.delete_push_subscription(Some(&principal.name), &subscription_id).await {
        Ok(true) => {
            note(hub, &principal, "no pushes to a browser any more".to_owned()).await;
            Json(RemovedPushSubscription { id: subscription_id }).into_response()
        }
        Ok(false) => failed(ErrorCode::NotFound, NO_SUBSCRIPTION),
        Err(error) => unavailable(&error),
    }
}

/// `POST /api/push/test`: sends one's own browsers a message now, and tells how that went.
async fn test(State(server): State<Server>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let hub = &server.hub;
    let principal = match check_holder(hub, &uri, &headers).await {
        Ok(principal) => principal,
        Err(response) => return response,
    };
    let wanted = match read_body(body).await {
        Ok(body) if body.is_empty() => PushTest::default(),
        Ok(body) => match serde_json::from_slice(&body) {
            Ok(wanted) => wanted,
            Err(error) => {
                return failed(ErrorCode::InvalidRequest, &format!("The body cannot be read: {error}"));
            }
        },
        Err(error) => return failed_with(&error),
    };
    let mut rows = match hub.store.push_subscriptions_of(&principal.name).await {
        Ok(rows) => rows,
        Err(error) => return unavailable(&error),
    };
    rows.retain(|row| wanted.id.as_ref().is_none_or(|id| *id == row.subscription_id));
    if rows.is_empty() {
        return failed(ErrorCode::NotFound, NO_SUBSCRIPTION);
    }
    let tests = rows.into_iter().map(|row| async {
        let id = row.subscription_id.clone();
        let (code, error) = send_test(hub, row).await.err().map(|error| (error.code, error.message)).unzip();
        PushTestResult { id, ok: error.is_none(), error, code }
    });
    Json(PushTested { results: futures_util::future::join_all(tests).await }).into_response()
}

/// `POST /api/push/answer`: the token is the access, so there is no login.
async fn answer(State(server): State<Server>, body: Body) -> Response {
    let read = read_body(body).await.and_then(|body| {
        // The parser's own words may repeat the token.
        serde_json::from_slice::<PushAnswer>(&body).map_err(|_| {
            CodedError::invalid("The body must be {\"token\":\"…\",\"decision\":\"approve|deny\"}")
        })
    });
    let PushAnswer { token, decision } = match read {
        Ok(answer) => answer,
        Err(error) => return failed_with(&error),
    };
    match answer_question(&server.hub, &token, decision).await {
        AnswerResult::Done { session_id, request_id } => {
            Json(PushAnswered { session_id: session_id.to_string(), request_id: request_id.to_string() })
                .into_response()
        }
        AnswerResult::Over => failed_as(StatusCode::GONE, &ErrorCode::QuestionNotFound.with(OVER)),
        AnswerResult::Denied(error) => failed_as(StatusCode::FORBIDDEN, &error),
        AnswerResult::Refused(error) => failed_as(StatusCode::CONFLICT, &error),
        AnswerResult::Failed(error) => failed_as(StatusCode::SERVICE_UNAVAILABLE, &error),
    }
}

/// Only people and the owner have browsers. A token may have less rights than who it acts for, who would answer
/// questions by what was pushed because of it.
async fn check_holder(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<Principal, Response> {
    let principal = check_permission(hub, uri, headers, Permission::View).await;
    let principal = principal.map_err(|refusal| refused(&refusal))?;
    let is_token = matches!(principal.access, Access::Token(_));
    if is_token || !(principal.is_person || &*principal.name == OWNER) {
        let error = "Permission denied: a token has no browser to be told on; log in with your password";
        return Err(failed(ErrorCode::PermissionDenied, error));
    }
    Ok(principal)
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

fn words(topics: &[PushTopic]) -> String {
    let wanted = PushTopic::ALL.into_iter().filter(|topic| topics.contains(topic));
    wanted.map(PushTopic::as_str).collect::<Vec<_>>().join(" ")
}

fn plain(label: &str) -> String {
    label.trim().chars().filter(|character| !character.is_control()).take(LABEL_CHARS_MAX).collect()
}

async fn note(hub: &Hub, principal: &Principal, summary: String) {
    hub.note_deed(AuditedAction { kind: "push", principal: Some(&principal.name), ok: Some(true), summary })
        .await;
}
