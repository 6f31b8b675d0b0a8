use bytes::Bytes;
use qd_link::memory::pair;
use qd_wire::data::RunnerStatus;

use super::*;
use crate::command::pending::{AnswerTo, PendingCommand, PendingKind};
use crate::command::reply::ReplyTo;
use crate::connection::Mailbox;
use crate::hub::{test_hub, wait_until};
use crate::runners::runner::Runner;

const HELLO: &[u8] = b"{\"type\":\"runner.hello\",\"runner_id\":\"r\",\"hostname\":\"h\",\"harnesses\":[],\
    \"max_sessions\":1,\"version\":\"1\",\"os\":\"linux\"}\n";

fn identity() -> RunnerIdentity {
    RunnerIdentity { runner_id: Arc::from("r"), is_local: false, peer: "test".to_owned() }
}

fn pending(link: &Arc<RunnerSendQueue>) -> PendingCommand {
    PendingCommand {
        to: AnswerTo::Client {
            mailbox: Mailbox::for_tests(),
            reply: ReplyTo { id: None, cmd: "prompt".into(), session_id: None, runner_id: None },
        },
        runner_id: Arc::from("r"),
        link: Arc::clone(link),
        mutating: false,
        is_service: false,
        deadline: None,
        kind: PendingKind::Plain,
        note: None,
    }
}

type RunnerLinkOf = fn(&Runner) -> Option<Arc<RunnerLink>>;

/// Serves one more connection of the runner, until `its` link of the runner is another one than before.
async fn serve(hub: &Arc<Hub>, its: RunnerLinkOf) -> (LinkEnd, tokio::task::JoinHandle<()>, Arc<RunnerLink>) {
    let its = || hub.runner("r").and_then(|runner| its(&runner));
    let before = its();
    let (hub_end, link) = pair();
    let task = tokio::spawn(run(Arc::clone(hub), identity(), hub_end, CancellationToken::new()));
    link.sender.send(Bytes::from_static(HELLO)).await.unwrap();
    let is_before = |now: &Arc<RunnerLink>| before.as_ref().is_some_and(|before| Arc::ptr_eq(before, now));
    wait_until(|| its().is_some_and(|now| !is_before(&now))).await;
    (link, task, its().unwrap())
}

/// Serves one that is welcomed, until it is the one that commands go to.
async fn connect(hub: &Arc<Hub>) -> (LinkEnd, tokio::task::JoinHandle<()>, Arc<RunnerLink>) {
    let (mut link, task, now) = serve(hub, Runner::link).await;
    let welcome = link.receiver.recv().await.unwrap();
    assert!(welcome.starts_with(b"{\"type\":\"runner.welcome\""), "{welcome:?}");
    (link, task, now)
}

#[tokio::test]
async fn a_newer_connection_ends_the_old_one_whose_late_death_changes_nothing() {
    let (hub, _directory) = test_hub(|_| {});
    let (mut old, old_task, old_link) = connect(&hub).await;
    let old_number = hub.pending.insert(pending(&old_link.send_queue));
    let (_new, _new_task, new_link) = connect(&hub).await;
    let new_number = hub.pending.insert(pending(&new_link.send_queue));
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
    let (hub, _directory) = test_hub(|_| {});
    let (own, other): (Arc<RunnerSendQueue>, Arc<RunnerSendQueue>) = (Arc::default(), Arc::default());
    let number = hub.pending.insert(pending(&own));
    let id = format!("h{number}");
    assert!(hub.pending.remove_answered(&id, &other).is_none());
    assert!(hub.pending.remove_answered("bury:s", &own).is_none());
    assert!(hub.pending.remove_answered(&id, &own).is_some());
    hub.store.close().await;
}

#[tokio::test]
async fn nobody_is_welcomed_before_the_connections_before_it_are_done() {
    let (hub, _directory) = test_hub(|_| {});
    // A connection that still commits what it has read.
    let busy = Arc::new(RunnerLink::new(&CancellationToken::new()));
    let runner = hub.runner_or_new(&Arc::from("r"));
    assert!(runner.claim(&busy).is_none());
    // These are as far as they can come while their hello has to wait.
    let (mut second, second_task, _) = serve(&hub, Runner::newest_link).await;
    assert!(busy.stop.is_cancelled(), "it is told to end");
    let (mut third, _third_task, _) = serve(&hub, Runner::newest_link).await;
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
    let (hub, _directory) = test_hub(|_| {});
    let (hub_end, mut link) = pair();
    tokio::spawn(run(Arc::clone(&hub), identity(), hub_end, CancellationToken::new()));
    assert!(link.receiver.recv().await.is_none());
    assert!(hub.runner("r").is_none());
}

const RECORD: &[u8] = b"{\"type\":\"event\",\"session_id\":\"s\",\"runner_id\":\"r\",\"ts\":1,\"seq\":1,\
    \"event\":\"session.created\",\"resumed\":false,\"harness\":\"demo\"}\n";

#[tokio::test]
async fn what_waits_for_the_store_is_bounded_for_all_links_together() {
    let (hub, _directory) = test_hub(|_| {});
    // Other links hold all the room.
    let units = u32::try_from(crate::hub::COMMIT_UNITS_MAX).unwrap();
    let all = Arc::clone(&hub.commit_room).acquire_many_owned(units).await.unwrap();
    let (mut link, task, this) = connect(&hub).await;
    link.sender.send(Bytes::from_static(RECORD)).await.unwrap();
    wait_until(|| hub.session("s").is_some_and(|entry| !entry.is_settled())).await;
    assert!(hub.store.session("s").await.unwrap().is_none());
    // A link that is to end does not wait for the others for long, and nobody waits for what it gives up.
    this.end();
    task.await.unwrap();
    let entry = hub.session("s").unwrap();
    assert!(entry.is_settled() && entry.committed_seq() == 0);
    while link.receiver.recv().await.is_some() {}
    drop(all);
    let (mut link, _task, _) = connect(&hub).await;
    link.sender.send(Bytes::from_static(RECORD)).await.unwrap();
    let ack = link.receiver.recv().await.unwrap();
    assert!(ack.starts_with(b"{\"type\":\"ack\""), "{ack:?}");
    wait_until(|| hub.commit_room.available_permits() == crate::hub::COMMIT_UNITS_MAX).await;
    hub.store.close().await;
}

#[tokio::test]
async fn a_runner_is_told_once_of_a_deleted_session_and_only_when_its_tombstone_stands() {
    let (hub, _directory) = test_hub(|_| {});
    let (session_id, runner_id): (Arc<str>, Arc<str>) = (Arc::from("gone"), Arc::from("r"));
    hub.mark_deleted(&session_id, &runner_id);
    let (mut link, _task, this) = connect(&hub).await;
    order_deletions(&hub, "r", &this);
    // An answer nobody asked for frees no name.
    let answer = b"{\"type\":\"response\",\"id\":\"bury:gone\",\"success\":true}\n";
    link.sender.send(Bytes::from_static(answer)).await.unwrap();
    link.sender.send(Bytes::from_static(RECORD)).await.unwrap();
    let ack = link.receiver.recv().await.unwrap();
    assert!(ack.starts_with(b"{\"type\":\"ack\""), "what came before it is read: {ack:?}");
    assert!(!hub.is_deletion_ordered("gone", &this) && hub.deleted_sessions_of("r").is_empty());
    hub.store.mark_session_deleted("gone", "r", 1).await.unwrap();
    hub.note_deletion_stored("gone");
    order_deletions(&hub, "r", &this);
    order_deletions(&hub, "r", &this);
    let order = link.receiver.recv().await.unwrap();
    assert_eq!(String::from_utf8_lossy(&order).matches("bury:gone").count(), 1);
    assert!(hub.deleted_on("gone").is_some(), "its name is not free before the runner has answered");
    link.sender.send(Bytes::from_static(answer)).await.unwrap();
    wait_until(|| hub.deleted_on("gone").is_none()).await;
    assert!(hub.store.deleted_sessions_of("r").await.unwrap().is_empty());
    hub.store.close().await;
}
