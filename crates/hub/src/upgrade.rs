//! From an HTTP request to a WebSocket connection.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tungstenite::handshake::derive_accept_key;

use crate::connection::{Connection, Mailbox};
use crate::http::failed;
use crate::registry::Hub;

/// Answers 101 and starts the connection as soon as the answer is out.
pub(crate) fn upgrade(hub: Arc<Hub>, request: Request) -> Response {
    let Some(accept) = accept_key(&request) else {
        return failed(StatusCode::BAD_REQUEST, "This address speaks WebSocket (version 13) only");
    };
    let Some((number, mailbox)) = hub.add_connection() else {
        return failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "There are too many connections; close some and try again",
        );
    };
    let upgraded = hyper::upgrade::on(request);
    let tasks = hub.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await {
            Ok(upgraded) => start(hub, number, mailbox, upgraded),
            Err(error) => {
                tracing::debug!(%error, "an upgrade failed");
                hub.remove_connection(number);
            }
        }
    });
    let response = Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, "websocket")
        .header(SEC_WEBSOCKET_ACCEPT, accept)
        .body(Body::empty());
    // All header values above are plain text, so the response can always be built.
    response.unwrap_or_default()
}

/// A task of its own for the connection, no greater than the connection needs.
fn start(hub: Arc<Hub>, number: u64, mailbox: Arc<Mailbox>, upgraded: hyper::upgrade::Upgraded) {
    match upgraded.downcast::<TokioIo<TcpStream>>() {
        Ok(parts) => {
            let stream = parts.io.into_inner();
            let read_ahead = parts.read_buf.to_vec();
            let tasks = hub.tasks.clone();
            tasks.spawn(Connection::new(hub, number, mailbox, stream, read_ahead));
        }
        Err(_) => {
            // `serve` makes every connection from a TcpStream, so this cannot be reached from outside.
            tracing::error!("an upgraded connection is no TCP stream");
            hub.remove_connection(number);
        }
    }
}

fn accept_key(request: &Request) -> Option<String> {
    let headers = request.headers();
    let is_upgrade = request.method() == Method::GET
        && has_word(headers, &CONNECTION, "upgrade")
        && has_word(headers, &UPGRADE, "websocket")
        && has_word(headers, &SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_upgrade)?;
    Some(derive_accept_key(key.as_bytes()))
}

fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
