//! The hub's end of a runner's link: one task reads lines, one commits records and publishes in order, one
//! writes commands and acks.

mod answers;
mod block;
mod commit;
mod ingest;
mod outbox;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use qd_link::memory::LinkEnd;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::patience::Patience;
use crate::registry::Hub;
use commit::Committer;
use ingest::Ingest;
pub(crate) use outbox::Outbox;

/// Pieces of the stream that may wait for the store; a full queue makes the runner wait.
const COMMITS_MAX: usize = 64;

/// What the tasks of one link share.
#[derive(Default)]
struct LinkState {
    /// The store fails: answers that need no store go past the queue.
    is_failing: AtomicBool,
    patience: Patience,
}

/// Serves one link until its other end goes or `stop` says so; what was read is committed before this returns.
pub(crate) async fn run(hub: Arc<Hub>, link: LinkEnd, stop: CancellationToken) {
    let outbox = Arc::new(Outbox::default());
    let (commits, queue) = mpsc::channel(COMMITS_MAX);
    let state = Arc::new(LinkState::default());
    let committer =
        Committer::new(Arc::clone(&hub), Arc::clone(&outbox), queue, Arc::clone(&state), stop.clone());
    let committer = tokio::spawn(committer.run());
    let writer = tokio::spawn(outbox::write(Arc::clone(&outbox), link.sender));
    let ingest = Ingest::new(hub, Arc::clone(&outbox), commits, state);
    ingest.run(link.receiver, stop).await;
    if committer.await.is_err() {
        tracing::error!("the committing task of a runner link failed");
    }
    outbox.close();
    if writer.await.is_err() {
        tracing::error!("the writing task of a runner link failed");
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use qd_link::memory::pair;
    use qd_store::{HubStore, StoreOptions};
    use qd_wire::data::RunnerStatus;

    use super::*;
    use crate::config::HubConfig;
    use crate::connection::Mailbox;
    use crate::pending::{Pending, PendingKind};
    use crate::reply::ReplyTo;
    use crate::{LoginCodes, OwnerToken};

    const HELLO: &[u8] =
        b"{\"type\":\"runner.hello\",\"runner_id\":\"r\",\"hostname\":\"h\",\"harnesses\":[],\
        \"max_sessions\":1,\"version\":\"1\",\"os\":\"linux\"}\n";

    #[tokio::test]
    async fn the_end_of_an_old_link_does_not_touch_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
        let config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
        let hub = Arc::new(Hub::new(config, store, Vec::new()));
        let mut links = Vec::new();
        let mut numbers = Vec::new();
        for _ in 0..2 {
            let (hub_end, mut link) = pair();
            let task = tokio::spawn(run(Arc::clone(&hub), hub_end, CancellationToken::new()));
            link.sender.send(Bytes::from_static(HELLO)).await.unwrap();
            // The welcome is sent before the runner is known; the heartbeat's block is read after.
            link.receiver.recv().await.unwrap();
            while hub.runner("r").is_none_or(|runner| {
                links.iter().any(|(_, _, old): &(_, _, Arc<Outbox>)| Arc::ptr_eq(old, &runner.outbox))
            }) {
                tokio::task::yield_now().await;
            }
            let outbox = Arc::clone(&hub.runner("r").unwrap().outbox);
            let reply = ReplyTo { id: None, cmd: "prompt".into(), session_id: None, runner_id: None };
            numbers.push(hub.pending.insert(Pending {
                mailbox: Mailbox::for_tests(),
                reply,
                runner_id: Arc::from("r"),
                link: Arc::clone(&outbox),
                mutating: false,
                deadline: None,
                kind: PendingKind::Plain,
            }));
            links.push((link, task, outbox));
        }
        let (old, task, _) = links.remove(0);
        drop(old);
        task.await.unwrap();
        assert_eq!(hub.runner("r").unwrap().status(), RunnerStatus::Online);
        assert!(hub.pending.remove(numbers[0]).is_none(), "the old link's command is answered for");
        assert!(hub.pending.remove(numbers[1]).is_some(), "the new link's command still waits");
        hub.store.close().await;
    }
}
