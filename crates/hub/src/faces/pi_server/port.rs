//! The ways in for clients of the pi-server face: the route `/ws/pi`, a port of its own, and streams within the
//! process.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware;
use axum::response::Response;
use http::header::{SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{HeaderValue, StatusCode};
use qd_link::net::BoxedIo;
use qd_wire::people::Role;
use qd_wire::{CodedError, ErrorCode};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::connections::Admitted;
use super::speaker::{PiSpeaker, TurnedAway};
use crate::access::Refusal;
use crate::connection::Connection;
use crate::faces::Face;
use crate::http::{check_access, check_place, check_port_access, failed, failed_as, has_port_token, refused};
use crate::listen::{self, HubHandle, Listen, WaysIn};
use crate::principals::{ANONYMOUS, OWNER, Principal};
use crate::registry::Hub;
use crate::upgrade::{accept_key, has_word, into_stream, switching};

/// Requests of the process itself that may wait.
const DOOR_MAX: usize = 16;

/// How clients of the pi-server face come beside `/ws/pi`.
pub struct PiServerPorts<L> {
    /// A listener where every path is the WebSocket.
    pub listener: Option<L>,
    /// Streams within the process.
    pub door: Option<PiDoorEnd>,
}

impl<L> Default for PiServerPorts<L> {
    fn default() -> Self {
        Self { listener: None, door: None }
    }
}

impl<L: Listen> WaysIn for PiServerPorts<L> {
    async fn serve(self, HubHandle(hub): HubHandle, stop: CancellationToken) {
        tokio::join!(accept(&hub, self.listener, &stop), keep_door(&hub, self.door, &stop));
    }
}

/// Serves the port of the face, if it has one.
async fn accept(hub: &Arc<Hub>, listener: Option<impl Listen>, stop: &CancellationToken) {
    let Some(mut listener) = listener else { return };
    listen::accept(hub, &mut listener, &port_routes(hub), stop).await;
}

/// The process's own way to the pi-server face. Clones are the same door.
#[derive(Clone)]
pub struct PiDoor(mpsc::Sender<Knock>);

/// The hub's side of the door.
pub struct PiDoorEnd(mpsc::Receiver<Knock>);

/// The hub has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the hub has stopped")]
pub struct PiDoorClosed;

enum Knock {
    Stream { stream: BoxedIo, principal: Option<String> },
    Goodbye(oneshot::Sender<()>),
}

impl PiDoor {
    /// A door, and the side of it that goes to `serve_with`.
    pub fn new() -> (PiDoor, PiDoorEnd) {
        let (sender, receiver) = mpsc::channel(DOOR_MAX);
        (PiDoor(sender), PiDoorEnd(receiver))
    }

    /// Serves a stream that speaks WebSocket frames from the first byte, without a handshake. `principal` is who is at
    /// its other end; the owner unless said otherwise.
    pub async fn serve(&self, stream: BoxedIo, principal: Option<String>) -> Result<(), PiDoorClosed> {
        self.0.send(Knock::Stream { stream, principal }).await.map_err(|_| PiDoorClosed)
    }

    /// Tells the clients of the face that the server stops, and waits until the commands under way are done, not for
    /// ever. New ones are refused from now on. To be called while the runners still work, before the hub is stopped.
    pub async fn goodbye(&self) -> Result<(), PiDoorClosed> {
        let (done, wait) = oneshot::channel();
        self.0.send(Knock::Goodbye(done)).await.map_err(|_| PiDoorClosed)?;
        wait.await.map_err(|_| PiDoorClosed)
    }
}

/// Acts on what comes to the door, until `stop`.
async fn keep_door(hub: &Arc<Hub>, door: Option<PiDoorEnd>, stop: &CancellationToken) {
    let Some(PiDoorEnd(mut knocks)) = door else { return };
    loop {
        let knock = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            knock = knocks.recv() => knock,
        };
        match knock {
            None => return,
            Some(Knock::Stream { stream, principal }) => {
                // Whoever started the process.
                let principal = Principal::lasting(principal.as_deref().unwrap_or(OWNER), Role::Owner);
                start_pi(hub, &principal, stream, Vec::new(), true);
            }
            Some(Knock::Goodbye(done)) => {
                let hub = Arc::clone(hub);
                let tasks = hub.tasks.clone();
                tasks.spawn(async move {
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
        .layer(middleware::from_fn_with_state(Arc::clone(hub), check_place))
        .with_state(Arc::clone(hub))
}

async fn upgrade_on_port(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    // Who sends a token wants to be known by it, and learns when it is wrong.
    if hub.config.faces.pi_server.insecure_no_auth && !has_port_token(request.uri(), request.headers()) {
        return admit(hub, &Principal::lasting(ANONYMOUS, Role::Operator), request);
    }
    let known = check_port_access(&hub, request.uri(), request.headers()).await;
    let_in(hub, known, request)
}

/// A client of the face that has to prove who it is.
pub(super) async fn upgrade(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let known = check_access(&hub, request.uri(), request.headers()).await;
    let_in(hub, known, request)
}

fn let_in(hub: Arc<Hub>, known: Result<Principal, Refusal>, request: Request) -> Response {
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
    let Some(place) = Place::take(&hub, principal) else {
        let error = "There are too many connections, or the server stops; try again later";
        return failed(ErrorCode::Busy, error);
    };
    let upgraded = hyper::upgrade::on(request);
    let tasks = hub.tasks.clone();
    tasks.spawn(async move {
        match upgraded.await.map(into_stream) {
            Ok(Some((stream, read_ahead))) => place.start(stream, read_ahead, false),
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "an upgrade failed"),
        }
    });
    switching(accept)
}

/// Serves a stream whose handshake is over. `read_ahead` came with it.
fn start_pi(hub: &Arc<Hub>, principal: &Principal, stream: BoxedIo, read_ahead: Vec<u8>, is_stdio: bool) {
    match Place::take(hub, principal) {
        Some(place) => place.start(stream, read_ahead, is_stdio),
        None => tracing::warn!("a connection is dropped: there are too many, or the hub stops"),
    }
}

/// A place among the connections; it is given up with it, unless a connection was started.
struct Place {
    hub: Arc<Hub>,
    principal: Principal,
    /// Taken by the connection.
    seat: Option<Admitted>,
}

impl Place {
    /// `None` when nobody is let in.
    fn take(hub: &Arc<Hub>, principal: &Principal) -> Option<Place> {
        let connections_max = hub.config.faces.pi_server.connections_max;
        let bounds = hub.config.limits.mail_bounds();
        let seat = hub.faces.pi_server.connections.add(principal, connections_max, bounds);
        if matches!(seat, Admitted::Refused) {
            return None;
        }
        Some(Place { hub: Arc::clone(hub), principal: principal.clone(), seat: Some(seat) })
    }

    /// A task of its own for the connection, no greater than the connection needs.
    fn start(mut self, stream: BoxedIo, read_ahead: Vec<u8>, is_stdio: bool) {
        let hub = Arc::clone(&self.hub);
        let tasks = hub.tasks.clone();
        match self.seat.take() {
            Some(Admitted::Served(number, mailbox)) => {
                let speaker = PiSpeaker::new(&hub, &self.principal, (number, &mailbox), is_stdio);
                tasks.spawn(Connection::new(hub, mailbox, speaker, stream, read_ahead));
            }
            Some(Admitted::TurnedAway(mailbox)) => {
                let max = hub.config.faces.pi_server.connections_max;
                let connection = Connection::new(hub, mailbox, TurnedAway, stream, read_ahead);
                let reason = format!("Connection limit reached ({max} connections)");
                tasks.spawn(connection.closed_with(1013, &reason));
            }
            Some(Admitted::Refused) | None => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let connections = &self.hub.faces.pi_server.connections;
        match self.seat.take() {
            Some(Admitted::Served(number, _)) => connections.remove(number),
            Some(Admitted::TurnedAway(_)) => connections.note_turned_away_gone(),
            Some(Admitted::Refused) | None => {}
        }
    }
}
