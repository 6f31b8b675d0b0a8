//! The routes, and the loop that accepts connections for them.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Json, Response};
use axum::routing::{any, get, post};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, LOCATION, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode, Uri};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Deserialize;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Duration, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::access::{self, COOKIE_NAME, LOGIN_LIFE, Refusal};
use crate::clock::now_ms;
use crate::reads;
use crate::registry::Hub;
use crate::upgrade::upgrade;

/// Requests served at a time; WebSockets do not count.
const REQUESTS_MAX: usize = 512;
const HEADERS_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long requests under way get when the hub stops.
const STOP_GRACE: Duration = Duration::from_secs(1);
const REQUEST_HEAD_BYTES_MAX: usize = 16 << 10;
/// After a failed accept (no file handles left) others get time to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections until `stop`.
pub(crate) async fn accept(hub: &Arc<Hub>, listener: &TcpListener, stop: &CancellationToken) {
    let router = routes(Arc::clone(hub));
    let room = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Who is too many is turned away at once: waiting here would keep everyone out, and the hub from stopping.
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else {
            tracing::warn!(max = REQUESTS_MAX, "too many requests at a time; a connection is turned away");
            continue;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let (router, stop) = (router.clone(), stop.clone());
        hub.tasks.spawn(async move {
            serve_stream(stream, router, stop).await;
            drop(permit);
        });
    }
}

async fn serve_stream(stream: TcpStream, router: Router, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT_MAX)
        .max_buf_size(REQUEST_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            // A peer that never finishes its request is not waited for.
            let Ok(result) = timeout(STOP_GRACE, connection).await else { return };
            result
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "an HTTP connection ended");
    }
}

fn routes(hub: Arc<Hub>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/healthz", get(healthz))
        .route("/login", get(login).head(not_for_head))
        .route("/logout", post(logout))
        .route("/ws/mux", any(mux))
        .route("/api/sessions", get(sessions))
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(Arc::clone(&hub), check_place))
        .with_state(hub)
}

async fn check_place(State(hub): State<Arc<Hub>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    match access::check_place(&hub.config, request.headers(), authority.as_deref()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refused(&refusal),
    }
}

fn refused(refusal: &Refusal) -> Response {
    let status = match refusal {
        Refusal::Host(_) | Refusal::Origin(_) => StatusCode::FORBIDDEN,
        Refusal::Twice(_) => StatusCode::BAD_REQUEST,
        Refusal::NotLoggedIn => StatusCode::UNAUTHORIZED,
        Refusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    failed(status, &refusal.to_string())
}

/// An error as JSON.
pub(crate) fn failed(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

#[derive(Deserialize, Default)]
struct Secrets {
    token: Option<String>,
    code: Option<String>,
}

fn secrets(uri: &Uri) -> Secrets {
    Query::<Secrets>::try_from_uri(uri).map(|Query(secrets)| secrets).unwrap_or_default()
}

async fn check_owner(hub: &Hub, uri: &Uri, headers: &HeaderMap) -> Result<(), Refusal> {
    let token = secrets(uri).token;
    access::check_owner(&hub.config, &hub.store, headers, token.as_deref()).await
}

async fn mux(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    match check_owner(&hub, request.uri(), request.headers()).await {
        Ok(()) => upgrade(hub, request),
        Err(refusal) => refused(&refusal),
    }
}

async fn sessions(State(hub): State<Arc<Hub>>, uri: Uri, headers: HeaderMap) -> Response {
    if let Err(refusal) = check_owner(&hub, &uri, &headers).await {
        return refused(&refusal);
    }
    match reads::sessions(&hub).await {
        Ok(sessions) => Json(json!({ "sessions": sessions })).into_response(),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn login(State(hub): State<Arc<Hub>>, uri: Uri) -> Response {
    let code = secrets(&uri).code.unwrap_or_default();
    let Some(end) = hub.config.login_codes.redeem(&code, now_ms()) else {
        let error = "This login link is used up or too old; start 'qd up' again, which prints a new one";
        return failed(StatusCode::UNAUTHORIZED, error);
    };
    let error = match access::new_login(&hub.store).await {
        Ok(Some(token)) => return to_start(&token, LOGIN_LIFE.as_secs()),
        Ok(None) => "The system has no randomness; try again".to_owned(),
        Err(error) => format!("The login cannot be stored: {error}. The link stays good; open it again"),
    };
    hub.config.login_codes.give_back(&code, end);
    failed(StatusCode::SERVICE_UNAVAILABLE, &error)
}

/// Forgets the browser's login, on both sides.
async fn logout(State(hub): State<Arc<Hub>>, headers: HeaderMap) -> Response {
    match access::end_login(&hub.store, &headers).await {
        Ok(()) => to_start("", 0),
        Err(error) => failed(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

/// To the first page, with this cookie.
fn to_start(token: &str, life_seconds: u64) -> Response {
    let cookie = format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={life_seconds}");
    let headers = [
        (SET_COOKIE, cookie.as_str()),
        (LOCATION, "/"),
        (CACHE_CONTROL, "no-store"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Programs that look at links before people open them must not use codes up.
async fn not_for_head() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}

async fn page() -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";
    let headers = [(CONTENT_SECURITY_POLICY, policy), (X_CONTENT_TYPE_OPTIONS, "nosniff")];
    (headers, Html(include_str!("page.html"))).into_response()
}

async fn healthz(State(hub): State<Arc<Hub>>) -> Json<serde_json::Value> {
    Json(json!({
        "status": "ok",
        "sessions": hub.session_count(),
        "runners": hub.runners().len(),
        "connections": hub.connection_count(),
    }))
}

async fn not_found() -> Response {
    failed(StatusCode::NOT_FOUND, "There is nothing at this address; the WebSocket is at /ws/mux")
}
