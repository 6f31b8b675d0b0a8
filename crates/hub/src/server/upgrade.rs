//! From an HTTP request to a WebSocket: a client's connection, or a runner's link.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use qd_link::memory::LinkEnd;
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
    let own = Arc::clone(&hub);
    switch(&hub, request, accept, move |upgraded| match upgraded {
        Some(upgraded) => start(&own, mailbox, MuxHandler::new(number), upgraded),
        // Its place was taken before the answer was sent, so it has to be given back.
        None => own.remove_connection(number),
    })
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
    let hub = Arc::clone(&server.hub);
    switch(&hub, request, accept, move |upgraded| {
        if let Some(upgraded) = upgraded {
            server.hub.tasks.clone().spawn(async move {
                let link = socket_link(upgraded, &SocketOptions::default()).await;
                server.fleet.links.start(&server.hub, pass, identity, link);
            });
        }
    })
}

/// Answers 101 and lets a face's handler speak as soon as the answer is out.
pub(crate) fn speak<S: ConnectionHandler>(
    hub: Arc<Hub>,
    request: Request,
    accept: String,
    mailbox: Arc<Mailbox>,
    handler: S,
) -> Response {
    let own = Arc::clone(&hub);
    switch(&hub, request, accept, move |upgraded| {
        if let Some(upgraded) = upgraded {
            start(&own, mailbox, handler, upgraded);
        }
    })
}

/// The stream that carried a request, and what was read of it already.
pub(crate) type UpgradedStream = (BoxedStream, Vec<u8>);

/// Answers 101. As soon as the answer is out `then` gets the stream; `None` when the upgrade has failed.
pub(crate) fn switch(
    hub: &Hub,
    request: Request,
    accept: String,
    then: impl FnOnce(Option<UpgradedStream>) + Send + 'static,
) -> Response {
    let upgraded = hyper::upgrade::on(request);
    hub.tasks.spawn(async move {
        let upgraded = upgraded.await.inspect_err(|error| tracing::debug!(%error, "an upgrade failed"));
        then(upgraded.ok().and_then(into_stream));
    });
    switching(accept)
}

fn switching(accept: String) -> Response {
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
fn start<S: ConnectionHandler>(hub: &Arc<Hub>, mailbox: Arc<Mailbox>, handler: S, upgraded: UpgradedStream) {
    let (stream, read_ahead) = upgraded;
    hub.tasks.spawn(Connection::new(Arc::clone(hub), mailbox, handler, stream, read_ahead));
}

/// A WebSocket whose messages are blocks of a link.
pub(crate) async fn socket_link((stream, read_ahead): UpgradedStream, options: &SocketOptions) -> LinkEnd {
    let config = options.websocket_config();
    let socket = WebSocketStream::from_partially_read(stream, read_ahead, Role::Server, Some(config)).await;
    over_websocket(socket, options)
}

fn into_stream(upgraded: Upgraded) -> Option<UpgradedStream> {
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

/// Proxies send `Connection: keep-alive, Upgrade`, and a header may come more than once.
pub(crate) fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}
