use bytes::Bytes;
use qd_link::memory::pair;
use qd_store::{HubStore, StoreOptions};
use qd_wire::data::RunnerStatus;

use super::*;
use crate::config::HubConfig;
use crate::connection::Mailbox;
use crate::pending::{Pending, PendingKind};
use crate::registry::Stored;
use crate::reply::ReplyTo;
use crate::{LoginCodes, OwnerToken};

const HELLO: &[u8] = b"{\"type\":\"runner.hello\",\"runner_id\":\"r\",\"hostname\":\"h\",\"harnesses\":[],\
    \"max_sessions\":1,\"version\":\"1\",\"os\":\"linux\"}\n";

fn hub(directory: &tempfile::TempDir) -> Arc<Hub> {
    let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
    let config = HubConfig::new(OwnerToken::new("t"), LoginCodes::default());
    Arc::new(Hub::new(config, store, Stored::default()))
}

fn identity() -> RunnerIdentity {
    RunnerIdentity { runner_id: Arc::from("r"), is_local: false, peer: "test".to_owned() }
}

fn pending(link: &Arc<Outbox>) -> Pending {
    Pending {
        mailbox: Mailbox::for_tests(),
        reply: ReplyTo { id: None, cmd: "prompt".into(), session_id: None, runner_id: None },
        runner_id: Arc::from("r"),
        link: Arc::clone(link),
        mutating: false,
        deadline: None,
        kind: PendingKind::Plain,
    }
}

/// Serves one more connection of the runner, until it is the one that commands go to.
async fn connect(hub: &Arc<Hub>) -> (LinkEnd, tokio::task::JoinHandle<()>, Arc<Link>) {
    let before = hub.runner("r").and_then(|runner| runner.link());
    let (hub_end, mut link) = pair();
    let task = tokio::spawn(run(Arc::clone(hub), identity(), hub_end, CancellationToken::new()));
    link.sender.send(Bytes::from_static(HELLO)).await.unwrap();
    let welcome = link.receiver.recv().await.unwrap();
    assert!(welcome.starts_with(b"{\"type\":\"runner.welcome\""), "{welcome:?}");
    // The welcome is sent just before the runner is open to others.
    loop {
        match hub.runner("r").and_then(|runner| runner.link()) {
            Some(now) if !before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &now)) => {
                return (link, task, now);
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn a_newer_connection_ends_the_old_one_whose_late_death_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory);
    let (mut old, old_task, old_link) = connect(&hub).await;
    let old_number = hub.pending.insert(pending(&old_link.outbox));
    let (_new, _new_task, new_link) = connect(&hub).await;
    let new_number = hub.pending.insert(pending(&new_link.outbox));
    assert!(old_link.settled.is_cancelled(), "the new one is welcomed when the old one is done");
    let refused = old.receiver.recv().await.unwrap();
    assert!(refused.starts_with(b"{\"type\":\"runner.refused\""), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused).contains("replaced by a newer one"));
    assert!(old.receiver.recv().await.is_none(), "the old link is over");
    // Its other end goes late.
    drop(old);
    old_task.await.unwrap();
    let runner = hub.runner("r").unwrap();
    assert_eq!(runner.status(), RunnerStatus::Online);
    assert!(Arc::ptr_eq(&runner.link().unwrap(), &new_link));
    assert!(hub.pending.remove(old_number).is_none(), "the old link's command is answered for");
    assert!(hub.pending.remove(new_number).is_some(), "the new link's command still waits");
    hub.store.close().await;
}

#[tokio::test]
async fn a_runner_answers_its_own_commands_only() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory);
    let (own, other): (Arc<Outbox>, Arc<Outbox>) = (Arc::default(), Arc::default());
    let number = hub.pending.insert(pending(&own));
    let id = format!("h{number}");
    assert!(hub.pending.remove_answered(&id, &other).is_none());
    assert!(hub.pending.remove_answered("bury:s", &own).is_none());
    assert!(hub.pending.remove_answered(&id, &own).is_some());
    hub.store.close().await;
}

/// Serves a connection whose hello has to wait, and lets it come as far as it can.
async fn dial(hub: &Arc<Hub>) -> (LinkEnd, tokio::task::JoinHandle<()>) {
    let before = hub.runner("r").and_then(|runner| runner.newest_link());
    let (hub_end, link) = pair();
    let task = tokio::spawn(run(Arc::clone(hub), identity(), hub_end, CancellationToken::new()));
    link.sender.send(Bytes::from_static(HELLO)).await.unwrap();
    loop {
        match hub.runner("r").and_then(|runner| runner.newest_link()) {
            Some(now) if !before.as_ref().is_some_and(|before| Arc::ptr_eq(before, &now)) => {
                return (link, task);
            }
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test]
async fn nobody_is_welcomed_before_the_connections_before_it_are_done() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory);
    // A connection that still commits what it has read.
    let busy = Arc::new(Link::new(&CancellationToken::new()));
    let runner = hub.runner_or_new(&Arc::from("r"));
    assert!(runner.claim(&busy).is_none());
    let (mut second, second_task) = dial(&hub).await;
    assert!(busy.stop.is_cancelled(), "it is told to end");
    let (mut third, _third_task) = dial(&hub).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert!(runner.link().is_none() && !second_task.is_finished());
    }
    busy.settled.cancel();
    let welcome = third.receiver.recv().await.unwrap();
    assert!(welcome.starts_with(b"{\"type\":\"runner.welcome\""), "{welcome:?}");
    second_task.await.unwrap();
    let refused = second.receiver.recv().await.unwrap();
    assert!(refused.starts_with(b"{\"type\":\"runner.refused\""), "{refused:?}");
    assert!(second.receiver.recv().await.is_none());
    hub.store.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_without_a_hello_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let hub = hub(&directory);
    let (hub_end, mut link) = pair();
    tokio::spawn(run(Arc::clone(&hub), identity(), hub_end, CancellationToken::new()));
    assert!(link.receiver.recv().await.is_none());
    assert!(hub.runner("r").is_none());
}
