//! The hub's end of a runner's link: one task reads lines, one commits records and publishes in order, one
//! writes commands and acks.

mod answers;
mod block;
mod commit;
mod ingest;
mod outbox;

use std::sync::Arc;

use qd_link::memory::LinkEnd;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::registry::Hub;
pub(crate) use outbox::Outbox;

/// Pieces of the stream that may wait for the store; a full queue makes the runner wait.
const COMMITS_MAX: usize = 64;

/// Serves one link until its other end goes or `stop` says so; what was read is committed before this returns.
pub(crate) async fn run(hub: Arc<Hub>, link: LinkEnd, stop: CancellationToken) {
    let outbox = Arc::new(Outbox::default());
    let (commits, queue) = mpsc::channel(COMMITS_MAX);
    let committer = tokio::spawn(commit::run(Arc::clone(&hub), Arc::clone(&outbox), queue, stop.clone()));
    let writer = tokio::spawn(outbox::write(Arc::clone(&outbox), link.sender));
    ingest::run(hub, link.receiver, Arc::clone(&outbox), commits, stop).await;
    if committer.await.is_err() {
        tracing::error!("the committing task of a runner link failed");
    }
    outbox.close();
    if writer.await.is_err() {
        tracing::error!("the writing task of a runner link failed");
    }
}
