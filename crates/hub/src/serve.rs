use std::sync::Arc;

use qd_link::memory::LinkEnd;
use qd_store::{HubStore, StoreError};
use qd_wire::mux::SystemEvent;
use tokio::net::TcpListener;
use tokio::time::{Duration, timeout};
use tokio_util::sync::CancellationToken;

use crate::config::HubConfig;
use crate::http;
use crate::registry::Hub;
use crate::reply;
use crate::runner_link;

/// How long the last records get to be committed after the clients are gone.
const COMMIT_GRACE: Duration = Duration::from_secs(1);

/// Why a hub could not run.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    #[error("the hub cannot read its store: {0}")]
    Store(#[from] StoreError),
}

/// Serves clients on `listener` and the runner at the other end of `link` until `shutdown`, then lets clients
/// take their last frames. The store stays open; closing it is the caller's.
pub async fn serve(
    config: HubConfig,
    listener: TcpListener,
    store: HubStore,
    link: LinkEnd,
    shutdown: CancellationToken,
) -> Result<(), HubError> {
    let stored = store.sessions().await?;
    let grace = config.limits.shutdown_grace;
    let hub = Arc::new(Hub::new(config, store, stored));
    let links_stop = CancellationToken::new();
    let links = tokio::spawn(runner_link::run(Arc::clone(&hub), link, links_stop.clone()));
    let sweeper = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { hub.pending.sweep().await }
    });

    http::accept(&hub, &listener, &shutdown).await;
    drop(listener);
    hub.tasks.close();
    let goodbye =
        reply::system(SystemEvent::Shutdown { reason: "the hub stops; reconnect later".to_owned() });
    hub.say_goodbye(&goodbye);
    if timeout(grace, hub.tasks.wait()).await.is_err() {
        tracing::warn!(connections = hub.connection_count(), "some clients did not take their last frames");
    }
    links_stop.cancel();
    if timeout(COMMIT_GRACE, links).await.is_err() {
        tracing::warn!("the runner link did not end in time; the runner sends again what was not acked");
    }
    sweeper.abort();
    Ok(())
}
