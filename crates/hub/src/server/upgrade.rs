//! From an HTTP request to a WebSocket: a client's connection, or a runner's link.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use qd_link::net::BoxedStream;
use qd_link::socket::{SocketOptions, over_websocket};
use qd_wire::ErrorCode;
use tokio_tungstenite::WebSocketStream;
use tungstenite::handshake::derive_accept_key;
use tungstenite::protocol::Role;

use crate::access::principals::Principal;
use crate::connection::{Connection, ConnectionHandler, Mailbox, MuxHandler};
use crate::hub::Hub;
use crate::runners::link::RunnerIdentity;
use crate::runners::open_links::LinkPermit;
use crate::server::Server;
use crate::server::router::failed;

pub(crate) const NO_WEBSOCKET: &str = "This address speaks WebSocket (version 13) only";

/// Answers 101 and starts the connection as soon as the answer is out.
pub(crate) fn upgrade(hub: Arc<Hub>, principal: &Principal, request: Request) -> Response {
    let Some(accept) = accept_key(&request) else {
        return failed(ErrorCode::InvalidRequest, NO_WEBSOCKET);
    };
    let Some((number, mailbox)) = hub.add_connection(principal) else {
        return failed(ErrorCode::Busy, "There are too many connections; close some and try again");
    };
    let upgraded = hyper::upgrade::on(request);
    let tasks = hub.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await.map(into_stream) {
            Ok(Some((stream, read_ahead))) => start(hub, number, mailbox, stream, read_ahead),
            Ok(None) => hub.remove_connection(number),
            Err(error) => {
                tracing::debug!(%error, "an upgrade failed");
                hub.remove_connection(number);
            }
        }
    });
    switching(accept)
}

/// Answers 101 and serves the link of a runner that has proved who it is.
pub(crate) fn upgrade_runner(
    server: Server,
    pass: LinkPermit,
    identity: RunnerIdentity,
    request: Request,
) -> Response {
    let Some(accept) = accept_key(&request) else {
        return failed(ErrorCode::InvalidRequest, NO_WEBSOCKET);
    };
    let upgraded = hyper::upgrade::on(request);
    let tasks = server.hub.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await.map(into_stream) {
            Ok(Some((stream, read_ahead))) => start_runner(&server, pass, identity, stream, read_ahead).await,
            Ok(None) => {}
            Err(error) => {
                tracing::debug!(peer = identity.peer, %error, "a runner's upgrade failed");
            }
        }
    });
    switching(accept)
}

/// Answers 101 and lets a face's handler speak as soon as the answer is out.
pub(crate) fn speak<S: ConnectionHandler>(
    hub: Arc<Hub>,
    request: Request,
    accept: String,
    mailbox: Arc<Mailbox>,
    handler: S,
) -> Response {
    let upgraded = hyper::upgrade::on(request);
    let tasks = hub.tasks.clone();
    tasks.clone().spawn(async move {
        match upgraded.await.map(into_stream) {
            Ok(Some((stream, read_ahead))) => {
                tasks.spawn(Connection::new(hub, mailbox, handler, stream, read_ahead));
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "an upgrade failed"),
        }
    });
    switching(accept)
}

pub(crate) fn switching(accept: String) -> Response {
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
fn start(hub: Arc<Hub>, number: u64, mailbox: Arc<Mailbox>, stream: BoxedStream, read_ahead: Vec<u8>) {
    let tasks = hub.tasks.clone();
    tasks.spawn(Connection::new(hub, mailbox, MuxHandler::new(number), stream, read_ahead));
}

async fn start_runner(
    server: &Server,
    pass: LinkPermit,
    identity: RunnerIdentity,
    stream: BoxedStream,
    read_ahead: Vec<u8>,
) {
    let options = SocketOptions::default();
    let config = options.websocket_config();
    let socket = WebSocketStream::from_partially_read(stream, read_ahead, Role::Server, Some(config)).await;
    let link = over_websocket(socket, &options);
    server.fleet.links.start(&server.hub, pass, identity, link);
}

/// The stream that carried the request, and what was read of it already.
pub(crate) fn into_stream(upgraded: Upgraded) -> Option<(BoxedStream, Vec<u8>)> {
    match upgraded.downcast::<TokioIo<BoxedStream>>() {
        Ok(context) => Some((context.io.into_inner(), context.read_buf.to_vec())),
        Err(_) => {
            // Every connection is made from such a stream, so this cannot be reached from outside.
            tracing::error!("an upgraded connection is no stream of ours");
            None
        }
    }
}

pub(crate) fn accept_key(request: &Request) -> Option<String> {
    let headers = request.headers();
    let is_upgrade = request.method() == Method::GET
        && has_word(headers, &CONNECTION, "upgrade")
        && has_word(headers, &UPGRADE, "websocket")
        && has_word(headers, &SEC_WEBSOCKET_VERSION, "13");
    let key = headers.get(SEC_WEBSOCKET_KEY).filter(|_| is_upgrade)?;
    Some(derive_accept_key(key.as_bytes()))
}

pub(crate) fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
