//! What the hub tells a face, and what a face tells the hub of itself.

use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use qd_store::StoreError;
use qd_wire::InputRequest;
use qd_wire::data::SessionStatus;
use qd_wire::rest::Health;

use crate::hub::Hub;
use crate::server::Server;
use crate::sessions::published::{NativeEvents, PublishedEvents};
use crate::sessions::session::SessionEntry;

/// Something a face does that takes a while.
pub(crate) type FaceFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What has become of a session, whoever has done it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionUpdate {
    Created,
    Closed,
    Deleted,
}

/// Whether a runner can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunnerUpdate {
    Came,
    Gone,
}

/// One protocol for clients. Everything has a default that does nothing, so a face says only what concerns it.
///
/// The methods that are not asynchronous are called by the tasks of runner links: they must be quick, and must not
/// wait.
pub(crate) trait Face: Send + Sync + 'static {
    /// Its routes under the hub's own names: those of its WebSocket, whose handler starts a
    /// [`Connection`](crate::connection::Connection) with the face's [`ConnectionHandler`](crate::connection::ConnectionHandler), and those
    /// of `qd_wire::rest` that manage it.
    fn routes(&self) -> Router<Server> {
        Router::new()
    }

    /// The same for machines that know the hub by any name; browsers are refused there.
    fn machine_routes(&self) -> Router<Server> {
        Router::new()
    }

    /// The first parts of its addresses outside `/api` and `/ws`: what is not found below them is no page of the app.
    fn path_prefixes(&self) -> &'static [&'static str] {
        &[]
    }

    /// Method and path of each route that `qd_wire::rest` describes.
    #[cfg(test)]
    fn described_routes(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Takes over what the store knows, before anybody connects.
    fn open<'a>(&'a self, _hub: &'a Arc<Hub>) -> FaceFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What it does by itself, for as long as the hub runs.
    fn run_background<'a>(&'a self, _hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Whether it wants to be told of what is published. While nobody uses a face, records must cost it nothing.
    fn is_used(&self) -> bool {
        false
    }

    /// Records that are stored and published, and what live events say of their session. Each comes once, and those of
    /// one session come in order.
    fn on_published(&self, _hub: &Arc<Hub>, _published: PublishedEvents<'_>) {}

    /// Events in the words of the session's own harness.
    fn on_native_events(&self, _hub: &Arc<Hub>, _entry: &SessionEntry, _events: &NativeEvents) {}

    /// Something that happened in a session and is no record of it.
    fn on_unrecorded<'a>(
        &'a self,
        _hub: &'a Arc<Hub>,
        _entry: &'a Arc<SessionEntry>,
        _line: &'a [u8],
    ) -> FaceFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn on_session_update(&self, _hub: &Arc<Hub>, _session_id: &str, _update: SessionUpdate) {}

    /// The runner of a session has come, and has said how it stands. A turn that was under way when it was last heard
    /// of, and is not now, began at `ended_turn`.
    fn on_described(
        &self,
        _hub: &Arc<Hub>,
        _entry: &SessionEntry,
        _status: SessionStatus,
        _pending: &[InputRequest],
        _ended_turn: Option<i64>,
    ) {
    }

    fn on_runner_update(&self, _hub: &Arc<Hub>, _runner_id: &str, _update: RunnerUpdate) {}

    /// The session is gone, and another may have its name.
    fn forget(&self, _session_id: &Arc<str>) {}

    /// The access of a principal was taken back: nothing of it is done any more, and nothing is kept that another one
    /// of its name could find.
    fn revoke<'a>(
        &'a self,
        _hub: &'a Arc<Hub>,
        _principal: &'a str,
    ) -> FaceFuture<'a, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Closes the connections whose access was taken back or has ended.
    fn close_revoked(&self) {}

    /// Tells its clients that the hub stops, and lets what they have asked for end, not for ever.
    fn finish_work<'a>(&'a self, _hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Closes every connection after what waits for it, and takes no more.
    fn close_connections(&self) {}

    /// The last thing it does: what is still to be stored is stored.
    fn close<'a>(&'a self, _hub: &'a Arc<Hub>) -> FaceFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn connection_count(&self) -> usize {
        0
    }

    /// Adds what `GET /healthz` tells of it.
    fn show_health(&self, _health: &mut Health) {}
}
