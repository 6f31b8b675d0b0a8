//! The ways in for clients of the pi-server face: the route `/ws/pi`, a port of its own, and streams within the
//! process.
//!
//! However a client comes, it is a principal with permissions before anything that it says is read. A stream within
//! the process has an owner's rights, as whoever started the process.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use axum::{Router, middleware};
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderValue, StatusCode};
use qd_link::net::BoxedStream;
use qd_wire::people::Role;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::access::authenticate::Refusal;
use crate::access::check_request::{check_access, check_port_access, has_port_token};
use crate::access::principals::{ANONYMOUS, OWNER, Principal};
use crate::connection::Connection;
use crate::faces::Face;
use crate::faces::pi_server::clients::connections::ConnectionAdmission;
use crate::faces::pi_server::clients::handler::{PiHandler, RejectingHandler};
use crate::hub::Hub;
use crate::server::listen::{self, FaceListeners, HubHandle, Listen};
use crate::server::router::{check_host_and_origin, failed, failed_as, refused};
use crate::server::upgrade::{accept_key, has_word, switch};

/// Requests of the process itself that may wait.
const CONNECTOR_REQUESTS_MAX: usize = 16;

/// How clients of the pi-server face come beside `/ws/pi`.
pub struct PiServerPorts<L> {
    /// A listener where every path is the WebSocket.
    pub listener: Option<L>,
    /// Streams within the process.
    pub connector: Option<PiConnectorEnd>,
}

impl<L> Default for PiServerPorts<L> {
    fn default() -> Self {
        Self { listener: None, connector: None }
    }
}

impl<L: Listen> FaceListeners for PiServerPorts<L> {
    async fn serve(self, HubHandle(hub): HubHandle, stop: CancellationToken) {
        tokio::join!(accept(&hub, self.listener, &stop), serve_connector(&hub, self.connector, &stop));
    }
}

/// Serves the port of the face, if it has one.
async fn accept(hub: &Arc<Hub>, listener: Option<impl Listen>, stop: &CancellationToken) {
    let Some(mut listener) = listener else { return };
    listen::accept(hub, &mut listener, &port_routes(hub), stop).await;
}

/// The process's own way to the pi-server face. Clones are the same connector.
#[derive(Clone)]
pub struct PiConnector(mpsc::Sender<ConnectorRequest>);

/// The hub's side of the connector.
pub struct PiConnectorEnd(mpsc::Receiver<ConnectorRequest>);

/// The hub has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hub has stopped")]
pub struct PiConnectorClosed;

enum ConnectorRequest {
    Stream { stream: BoxedStream, principal: Option<String> },
    ShutDown(oneshot::Sender<()>),
}

impl PiConnector {
    /// A connector, and the side of it that goes to `serve_with`.
    pub fn new() -> (PiConnector, PiConnectorEnd) {
        let (sender, receiver) = mpsc::channel(CONNECTOR_REQUESTS_MAX);
        (PiConnector(sender), PiConnectorEnd(receiver))
    }

    /// Serves a stream that speaks WebSocket frames from the first byte, without a handshake. `principal` is who is at
    /// its other end; the owner unless said otherwise.
    pub async fn serve(
        &self,
        stream: BoxedStream,
        principal: Option<String>,
    ) -> Result<(), PiConnectorClosed> {
        self.0.send(ConnectorRequest::Stream { stream, principal }).await.map_err(|_| PiConnectorClosed)
    }

    /// Tells the clients of the face that the server stops, and waits until the commands under way are done, not for
    /// ever. New ones are refused from now on. To be called while the runners still work, before the hub is stopped.
    pub async fn shut_down(&self) -> Result<(), PiConnectorClosed> {
        let (done, wait) = oneshot::channel();
        self.0.send(ConnectorRequest::ShutDown(done)).await.map_err(|_| PiConnectorClosed)?;
        wait.await.map_err(|_| PiConnectorClosed)
    }
}

/// Acts on what comes to the connector, until `stop`.
async fn serve_connector(hub: &Arc<Hub>, connector: Option<PiConnectorEnd>, stop: &CancellationToken) {
    let Some(PiConnectorEnd(mut requests)) = connector else { return };
    loop {
        let request = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            request = requests.recv() => request,
        };
        match request {
            None => return,
            Some(ConnectorRequest::Stream { stream, principal }) => {
                // Whoever started the process.
                let principal = Principal::lasting(principal.as_deref().unwrap_or(OWNER), Role::Owner);
                match ConnectionSlot::take(hub, &principal) {
                    Some(place) => place.start(stream, Vec::new(), true),
                    None => tracing::warn!("a connection is dropped: there are too many, or the hub stops"),
                }
            }
            Some(ConnectorRequest::ShutDown(done)) => {
                hub.spawn(async move |hub| {
                    hub.faces.pi_server.finish_work(&hub).await;
                    // Who asked may have gone.
                    let _ = done.send(());
                });
            }
        }
    }
}

/// What the port of the face answers to: every path is the WebSocket.
fn port_routes(hub: &Arc<Hub>) -> Router {
    Router::new()
        .fallback(upgrade_on_port)
        .layer(middleware::from_fn_with_state(Arc::clone(hub), check_host_and_origin))
        .with_state(Arc::clone(hub))
}

async fn upgrade_on_port(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    // Who sends a token wants to be known by it, and learns when it is wrong.
    if hub.config.faces.pi_server.insecure_no_auth && !has_port_token(request.uri(), request.headers()) {
        return admit(hub, &Principal::lasting(ANONYMOUS, Role::Operator), request);
    }
    let known = check_port_access(&hub, request.uri(), request.headers()).await;
    upgrade_client(hub, known, request)
}

/// A client of the face that has to prove who it is.
pub(crate) async fn upgrade(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let known = check_access(&hub, request.uri(), request.headers()).await;
    upgrade_client(hub, known, request)
}

fn upgrade_client(hub: Arc<Hub>, known: Result<Principal, Refusal>, request: Request) -> Response {
    if accept_key(&request).is_none() {
        return no_websocket(&request);
    }
    match known {
        Ok(principal) => admit(hub, &principal, request),
        Err(refusal) => refused(&refusal),
    }
}

/// Tells how to speak to this address.
fn no_websocket(request: &Request) -> Response {
    let wants_websocket = has_word(request.headers(), &UPGRADE, "websocket");
    let error = if wants_websocket {
        "The WebSocket handshake cannot be read; send GET with Upgrade, Connection, Sec-WebSocket-Key and \
         Sec-WebSocket-Version: 13"
    } else {
        "This address speaks the pi-server protocol over WebSocket; connect with a WebSocket client \
         (ws:// or wss://) and a token as 'Authorization: Bearer <token>' or '?token='"
    };
    let status = if wants_websocket { StatusCode::BAD_REQUEST } else { StatusCode::UPGRADE_REQUIRED };
    let mut response = failed_as(status, &CodedError::invalid(error));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
    response.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    response
}

/// Answers 101 and starts the connection as soon as the answer is out.
fn admit(hub: Arc<Hub>, principal: &Principal, request: Request) -> Response {
    let Some(accept) = accept_key(&request) else { return no_websocket(&request) };
    let Some(place) = ConnectionSlot::take(&hub, principal) else {
        let error = "There are too many connections, or the server stops; try again later";
        return failed(ErrorCode::Busy, error);
    };
    switch(&hub, request, accept, move |upgraded| {
        if let Some((stream, read_ahead)) = upgraded {
            place.start(stream, read_ahead, false);
        }
    })
}

/// A place among the connections; it is given up with it, unless a connection was started.
struct ConnectionSlot {
    hub: Arc<Hub>,
    principal: Principal,
    /// Taken by the connection.
    seat: Option<ConnectionAdmission>,
}

impl ConnectionSlot {
    /// `None` when nobody is let in.
    fn take(hub: &Arc<Hub>, principal: &Principal) -> Option<ConnectionSlot> {
        let connections_max = hub.config.faces.pi_server.connections_max;
        let bounds = hub.config.limits.mail_bounds();
        let seat = hub.faces.pi_server.connections.add(principal, connections_max, bounds);
        if matches!(seat, ConnectionAdmission::Refused) {
            return None;
        }
        Some(ConnectionSlot { hub: Arc::clone(hub), principal: principal.clone(), seat: Some(seat) })
    }

    /// A task of its own for the connection, no greater than the connection needs.
    fn start(mut self, stream: BoxedStream, read_ahead: Vec<u8>, is_stdio: bool) {
        let hub = Arc::clone(&self.hub);
        let tasks = hub.tasks.clone();
        match self.seat.take() {
            Some(ConnectionAdmission::Served(number, mailbox)) => {
                let handler = PiHandler::new(&hub, &self.principal, (number, &mailbox), is_stdio);
                tasks.spawn(Connection::new(hub, mailbox, handler, stream, read_ahead));
            }
            Some(ConnectionAdmission::Rejected(mailbox)) => {
                let max = hub.config.faces.pi_server.connections_max;
                let connection = Connection::new(hub, mailbox, RejectingHandler, stream, read_ahead);
                let reason = format!("Connection limit reached ({max} connections)");
                tasks.spawn(connection.closed_with(1013, &reason));
            }
            Some(ConnectionAdmission::Refused) | None => {}
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let connections = &self.hub.faces.pi_server.connections;
        match self.seat.take() {
            Some(ConnectionAdmission::Served(number, _)) => drop(connections.open.remove(number)),
            Some(ConnectionAdmission::Rejected(_)) => connections.note_turned_away_gone(),
            Some(ConnectionAdmission::Refused) | None => {}
        }
    }
}
