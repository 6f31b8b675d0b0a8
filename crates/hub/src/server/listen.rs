//! Where connections come from (TCP in life, a simulated network in tests), and the loop that takes them.

use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use qd_link::net::BoxedStream;
use tokio::net::TcpListener;
use tokio::time::{Duration, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::hub::Hub;
use crate::server::progress::ProgressStream;
use crate::server::slots::{ConnectionSlot, ConnectionSlots};
use crate::server::tls::HubTls;

const HEADERS_WAIT_MAX: Duration = Duration::from_secs(3);
/// A peer that has not shaken hands by then is not going to.
const HANDSHAKE_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long requests under way get when the hub stops.
const STOP_GRACE: Duration = Duration::from_secs(1);
const REQUEST_HEAD_BYTES_MAX: usize = 16 << 10;
/// After a failed accept (no file handles left, and nobody to evict) others get time to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Gives the hub one byte stream after the other. TLS is put on top by the hub itself.
pub trait Listen: Send + 'static {
    /// The next stream, and who is at its other end, for the log. A future that is dropped loses no stream.
    fn accept(&mut self) -> impl Future<Output = io::Result<(BoxedStream, String)>> + Send;
}

impl Listen for TcpListener {
    async fn accept(&mut self) -> io::Result<(BoxedStream, String)> {
        let (stream, peer) = TcpListener::accept(self).await?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        Ok((Box::new(stream), peer.to_string()))
    }
}

/// Ways for clients to come beside the hub's listener: a face may have a port of its own, or streams within the process.
pub trait FaceListeners: Send + 'static {
    /// Serves who comes, until `stop`.
    #[doc(hidden)]
    fn serve(self, hub: HubHandle, stop: CancellationToken) -> impl Future<Output = ()> + Send;
}

/// There are none.
impl FaceListeners for () {
    async fn serve(self, _hub: HubHandle, _stop: CancellationToken) {}
}

/// The hub, for those who serve it.
#[doc(hidden)]
#[derive(Clone)]
pub struct HubHandle(pub(crate) Arc<Hub>);

/// Who sent a request: an extension of each.
#[derive(Clone)]
pub(crate) struct Peer(pub(crate) Arc<str>);

/// Accepts connections until `stop`.
pub(crate) async fn accept(
    hub: &Arc<Hub>,
    listener: &mut impl Listen,
    router: &Router,
    stop: &CancellationToken,
) {
    let slots = ConnectionSlots::new(&hub.config.limits);
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let has_evicted = slots.evict_one();
                tracing::warn!(%error, has_evicted, "a connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let peer = Peer(peer.into());
        let slot = Arc::new(slots.take(&peer.0));
        let stall_max = hub.config.limits.write_stall_max;
        let stream: BoxedStream = Box::new(ProgressStream::new(stream, slot.activity(), stall_max));
        let (router, stop, tls) = (router.clone(), stop.clone(), hub.config.tls.clone());
        hub.tasks.spawn(async move {
            let serve = async {
                let stream = match &tls {
                    None => Some(stream),
                    Some(tls) => shake_hands(tls, stream, &peer, &stop).await,
                };
                if let Some(stream) = stream {
                    serve_stream(stream, &peer, router, &slot, &stop).await;
                }
            };
            tokio::select! {
                () = serve => {}
                () = slot.evicted() => tracing::debug!(peer = %peer.0, "a connection is closed for a newcomer"),
            }
        });
    }
}

async fn shake_hands(
    tls: &HubTls,
    stream: BoxedStream,
    Peer(peer): &Peer,
    stop: &CancellationToken,
) -> Option<BoxedStream> {
    let handshake = tokio::select! {
        () = stop.cancelled() => return None,
        handshake = timeout(HANDSHAKE_WAIT_MAX, tls.accept(stream)) => handshake,
    };
    match handshake {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(%peer, %error, "a TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "a TLS handshake took too long"),
    }
    None
}

async fn serve_stream(
    stream: BoxedStream,
    peer: &Peer,
    router: Router,
    slot: &Arc<ConnectionSlot>,
    stop: &CancellationToken,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        Arc::clone(slot).serve(router.call(request))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WAIT_MAX)
        .max_buf_size(REQUEST_HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
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
