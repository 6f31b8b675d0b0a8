//! The server: it listens, upgrades requests to WebSockets, serves the browser app and runs until it is stopped.

pub(crate) mod assets;
pub(crate) mod listen;
mod progress;
pub(crate) mod router;
pub(crate) mod safe_headers;
pub(crate) mod slots;
pub mod tls;
pub(crate) mod upgrade;

use std::sync::Arc;

use axum::extract::FromRef;
use qd_link::memory::LinkEnd;
use qd_store::{HubStore, StoreError};
use qd_wire::mux::SystemEvent;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::access::audit;
use crate::access::invites::Invites;
use crate::command::reply;
use crate::config::HubConfig;
use crate::hub::Hub;
use crate::runners::link::RunnerIdentity;
use crate::runners::open_links::OpenLinks;
use crate::server::listen::{FaceListeners, HubHandle, Listen};
use crate::sessions::terminal_cleanup;

/// How long the last records get to be committed after the clients are gone.
const COMMIT_GRACE: Duration = Duration::from_secs(1);

/// Why a hub could not run.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("the hub cannot read its store: {0}")]
    Store(#[from] StoreError),
}

/// The runner in the hub's own process, which is trusted.
pub struct LocalRunner {
    pub runner_id: String,
    /// The hub's end of the link to it.
    pub link: LinkEnd,
}

/// What the requests share.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) hub: Arc<Hub>,
    pub(crate) fleet: Arc<Fleet>,
}

/// How runners come to the hub.
#[derive(Default)]
pub(crate) struct Fleet {
    pub(crate) invites: Invites,
    /// One join at a time: what it found out is still true when it stores.
    pub(crate) joining: Mutex<()>,
    pub(crate) local_runner_id: Option<Arc<str>>,
    pub(crate) links: OpenLinks,
}

impl FromRef<Server> for Arc<Hub> {
    fn from_ref(server: &Server) -> Self {
        Arc::clone(&server.hub)
    }
}

/// Serves the clients and runners that come to `listener`, and the local runner if there is one, until `shutdown`;
/// then lets clients take their last frames. The store stays open; closing it is the caller's.
pub async fn serve<L: Listen>(
    config: HubConfig,
    listener: L,
    store: HubStore,
    local: Option<LocalRunner>,
    shutdown: CancellationToken,
) -> Result<(), HubError> {
    serve_with(config, listener, store, local, shutdown, ()).await
}

/// The same with more ways in for clients of a face.
pub async fn serve_with<L: Listen, W: FaceListeners>(
    config: HubConfig,
    mut listener: L,
    store: HubStore,
    local: Option<LocalRunner>,
    shutdown: CancellationToken,
    ways_in: W,
) -> Result<(), HubError> {
    let hub = Arc::new(Hub::open(config, store).await?);
    hub.faces.open(&hub).await?;
    let local_runner_id = local.as_ref().map(|local| Arc::from(&*local.runner_id));
    let fleet = Arc::new(Fleet { local_runner_id, ..Fleet::default() });
    let server = Server { hub: Arc::clone(&hub), fleet };
    if let Some(LocalRunner { runner_id, link }) = local {
        let identity =
            RunnerIdentity { runner_id: runner_id.into(), is_local: true, peer: "local".to_owned() };
        let links = &server.fleet.links;
        links.start(&hub, links.pass(&identity.runner_id), identity, link);
    }
    // Ends with this function, whatever it is doing.
    let mut background = JoinSet::new();
    let spawned = Arc::clone(&hub);
    background.spawn(async move {
        tokio::join!(
            spawned.pending.sweep(&spawned),
            spawned.announce_changed_runners(),
            spawned.announce_changed_sessions()
        );
    });
    let spawned = Arc::clone(&hub);
    background.spawn(async move { spawned.faces.run_background(&spawned).await });
    let spawned = Arc::clone(&hub);
    background.spawn(async move {
        tokio::join!(
            spawned.principals.expire_accesses(&spawned),
            audit::prune_old(&spawned),
            terminal_cleanup::forget_ended(&spawned)
        );
    });

    let router = router::routes(server.clone());
    tokio::join!(
        listen::accept(&hub, &mut listener, &router, &shutdown),
        ways_in.serve(HubHandle(Arc::clone(&hub)), shutdown.clone()),
    );
    drop(listener);
    announce_shutdown(&hub).await;
    server.fleet.links.close(COMMIT_GRACE).await;
    hub.faces.close(&hub).await;
    Ok(())
}

/// Lets work of the faces end, then closes all connections and waits until they are closed, no longer than
/// the grace.
async fn announce_shutdown(hub: &Arc<Hub>) {
    hub.faces.finish_work(hub).await;
    let grace_ends = Instant::now() + hub.config.limits.shutdown_grace;
    hub.tasks.close();
    let goodbye =
        reply::system(SystemEvent::Shutdown { reason: "the hub stops; reconnect later".to_owned() });
    hub.close_connections(&goodbye);
    if timeout_at(grace_ends, hub.tasks.wait()).await.is_err() {
        let connections = hub.connection_count() + hub.faces.connection_count();
        tracing::warn!(connections, "some clients did not take their last frames");
    }
}
