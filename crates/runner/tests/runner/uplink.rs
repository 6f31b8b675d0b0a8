//! The runner lives without the hub, and everything arrives once and in order when it is back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::support::hub_link::{FakeHubAddress, HubEnd, TestRunner, config};
use crate::support::{WAIT_MAX, until};
use qd_link::mutex::Mutex;
use qd_runner::{KeyError, KeyKeeper, Runner, RunnerError, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use serde_json::json;
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_works_before_any_hub_is_there_and_delivers_it_all() {
    let directory = tempfile::tempdir().unwrap();
    let address = FakeHubAddress::unreachable();
    let runner = TestRunner::start(config(directory.path()), address.uplink()).await;
    let mut local = runner.client().await;
    local.create("s1").await;
    local.prompt("s1", "/tools").await;
    assert!(runner.runner.status().last_failure.is_some_and(|reason| reason.contains("nobody is there")));
    let last = runner.last_seq().await;
    assert!(last > 5);

    address.open();
    let mut hub = address.accept(&BTreeMap::new()).await;
    assert_eq!(hub.hello["sessions"][0]["last_seq"], last);
    assert_eq!(hub.hello["sessions"][0]["state"]["status"], "idle");
    assert_eq!(hub.hello["compression"], json!(["deflate"]));
    hub.read_until("s1", last).await;
    hub.find("a snapshot of what was missed", |line| line["event"] == "session.resync").await;
    assert!(runner.runner.status().connected_since.is_some());
    hub.ack("s1").await;
    until("acked records leave the spool", || async { runner.store.spool_bytes() == 0 }).await;

    // Live now: a turn by the hub's command comes with its deltas.
    hub.command("p", "s1", "prompt", json!({ "message": "/text" })).await;
    hub.find("a delta", |line| line["event"] == "stream.text_delta").await;
    hub.find("the end", |line| line["event"] == "agent.idle").await;
    runner.end().await;
    assert!(hub.next().await.is_none_or(|line| line["type"] != "runner.hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_link_loses_and_repeats_nothing() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    let mut committed = BTreeMap::new();
    hub.create("s1").await;
    for turn in 0..12 {
        hub.command("p", "s1", "prompt", json!({ "message": "/tools" })).await;
        hub.find("some of the turn", |line| line["event"] == "tool.start").await;
        // Every other time the hub has committed what it read.
        if turn % 2 == 0 {
            committed = hub.read.clone();
            hub.ack("s1").await;
        }
        drop(hub);
        hub = address.accept(&committed).await;
        hub.find("the end of the turn", |line| line["event"] == "agent.idle").await;
    }
    let last = runner.last_seq().await;
    hub.read_until("s1", last).await;
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_not_wait_for_a_hub_that_reads_nothing() {
    let (runner, _, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("s1").await;
    hub.ack("s1").await;
    let mut local = runner.client().await;
    assert_eq!(local.call("s1", "session.attach", json!({})).await["success"], true);
    // Far more than the link holds, in little more time than it takes without a link.
    let began = tokio::time::Instant::now();
    local.prompt("s1", "/long 30000").await;
    assert!(began.elapsed() < Duration::from_secs(8), "the agent waited for the hub: {:?}", began.elapsed());
    local.prompt("s1", "/text").await;
    // Answers come all the same, and the attach in its place after the records.
    hub.command("state", "s1", "get_state", json!({})).await;
    hub.command("attach", "s1", "session.attach", json!({})).await;
    let state = hub.response("state").await;
    let attach = hub.response("attach").await;
    assert_eq!((&state["success"], &attach["success"]), (&json!(true), &json!(true)));
    let covered = attach["data"]["seq"].as_u64().unwrap();
    assert_eq!(hub.read["s1"], covered, "the records an attach speaks of come before it");
    runner.end().await;
}

/// The original dead-locked here: each side waited for the other to read.
#[tokio::test(flavor = "multi_thread")]
async fn commands_and_records_in_floods_both_arrive() {
    const COMMANDS: usize = 20_000;
    let (runner, _, mut hub) = TestRunner::with_hub(|_| {}).await;
    for session in ["s1", "s2"] {
        hub.create(session).await;
        hub.command("p", session, "prompt", json!({ "message": "/long 200000" })).await;
        assert_eq!(hub.response("p").await["success"], true);
    }
    // The hub says all it has before it reads a word.
    let sender = hub.sender.clone();
    let blast = async move {
        for number in 0..COMMANDS {
            let (cmd, session) = if number % 3 == 0 { ("get_state", "s1") } else { ("get_state", "nowhere") };
            let line = json!({ "type": "command", "id": format!("h{number}"), "session_id": session, "cmd": cmd,
                "user_role": "viewer" });
            sender.send(format!("{line}\n").into()).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT_MAX, blast).await.expect("the runner reads, whether the hub does or not");
    let mut answers = 0;
    while answers < COMMANDS {
        let line = hub.next().await.expect("the link ended");
        answers += usize::from(line["type"] == "response");
    }
    runner.end().await;
}

/// What happened to the keys: `made`, then what was promoted.
#[derive(Default)]
struct TestKeys(Mutex<Vec<String>>);

impl KeyKeeper for TestKeys {
    fn make_next(&self) -> Result<String, KeyError> {
        self.0.lock().push("made".into());
        Ok("abc".into())
    }

    fn promote(&self, key_hash: &str) -> Result<(), KeyError> {
        self.0.lock().push(key_hash.into());
        Ok(())
    }

    fn pending(&self) -> Option<String> {
        (self.0.lock().last()? == "made").then(|| "abc".into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_come_at_once_and_keys_rotate() {
    let keys = Arc::new(TestKeys::default());
    let keeper = Arc::clone(&keys) as Arc<dyn KeyKeeper>;
    let (runner, address, mut hub) = TestRunner::with_hub(|config| config.keys = Some(keeper)).await;
    let beat = hub.find("a heartbeat", |line| line["type"] == "runner.heartbeat").await;
    assert!(beat["load"]["cpu_count"].as_u64().unwrap() > 0);
    assert!(beat["load"]["memory_total_bytes"].as_u64().unwrap() > 0);
    hub.say(json!({ "type": "runner.rotate" })).await;
    let rekey = hub.find("the next key", |line| line["type"] == "runner.rekey").await;
    assert_eq!(rekey["key_hash"], "abc");
    // The hub's answer is lost with the link, so the key is named again.
    drop(hub);
    let mut hub = address.accept(&BTreeMap::new()).await;
    let rekey = hub.find("the next key again", |line| line["type"] == "runner.rekey").await;
    assert_eq!(rekey["key_hash"], "abc");
    hub.say(json!({ "type": "runner.rekeyed", "key_hash": "abc" })).await;
    until("the key is promoted", || async { *keys.0.lock() == ["made", "abc"] }).await;
    drop(hub);
    let mut hub = address.accept(&BTreeMap::new()).await;
    hub.find("a heartbeat", |line| line["type"] == "runner.heartbeat").await;
    assert!(hub.events.iter().all(|line| line["type"] != "runner.rekey"), "it is taken: {:?}", hub.events);
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_be_stored_still_says_how_it_stands() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("s").await;
    let disk = rusqlite::Connection::open(runner.config.data_dir.join("runner.db")).unwrap();
    let full = "CREATE TRIGGER full BEFORE INSERT ON spool BEGIN SELECT RAISE(ABORT, 'full'); END";
    disk.execute_batch(full).unwrap();
    hub.command("p", "s", "prompt", json!({ "message": "/text" })).await;
    hub.find("the disk is full", |line| line["key"] == "qd.store").await;
    for _ in 0..3 {
        let read = hub.read.clone();
        drop(hub);
        hub = address.accept(&read).await;
        assert_eq!(hub.hello["sessions"][0]["state"]["session_id"], "s", "{}", hub.hello);
    }
    disk.execute_batch("DROP TRIGGER full").unwrap();
    hub.find("the end of the turn", |line| line["event"] == "agent.idle").await;
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_session_stays_silent_and_a_refused_runner_waits() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("mine").await;
    hub.create("theirs").await;
    hub.say(json!({ "type": "session.refused", "session_id": "theirs", "reason": "it is another runner's" }))
        .await;
    hub.command("p", "theirs", "prompt", json!({ "message": "/text" })).await;
    hub.response("p").await;
    let told = hub.read.clone();
    hub.command("p", "mine", "prompt", json!({ "message": "/text" })).await;
    hub.find("the end of mine", |line| line["event"] == "agent.idle").await;
    assert_eq!(hub.read["theirs"], told["theirs"]);
    assert!(hub.read["mine"] > told["mine"]);

    // Another runner, whose link is only lost, is back before this one tries again.
    let (other, other_address, other_hub) = TestRunner::with_hub(|_| {}).await;
    let attempts = address.attempts.load(Ordering::SeqCst);
    hub.say(json!({ "type": "runner.refused", "reason": "revoked" })).await;
    until("the link ends", || async { runner.runner.status().last_failure.as_deref() == Some("revoked") })
        .await;
    drop(other_hub);
    let _back = other_address.accept(&BTreeMap::new()).await;
    assert_eq!(address.attempts.load(Ordering::SeqCst), attempts, "a refusal is not tried again at once");
    other.end().await;
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_the_hub_has_seen_are_not_given_again() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("s1").await;
    drop(hub);
    // The runner's disk is older than the hub's.
    let committed = BTreeMap::from([("s1".to_owned(), 500)]);
    let mut hub = address.accept(&committed).await;
    hub.turn("/text").await;
    assert!(hub.read["s1"] > 500);
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_runner_sends_what_is_missing() {
    let (runner, address, mut hub) = TestRunner::with_hub(|_| {}).await;
    hub.create("s1").await;
    hub.turn("/tools").await;
    drop(hub);
    let committed = BTreeMap::from([("s1".to_owned(), 2)]);
    let runner = runner.restart(address.uplink()).await;
    let mut hub = address.accept(&committed).await;
    let last = runner.last_seq().await;
    hub.read_until("s1", last).await;
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_link_in_memory_the_runner_is_ready_after_the_welcome_and_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (hub_end, runner_end) = qd_link::memory::pair();
    let hub = tokio::spawn(async { HubEnd::welcome(hub_end, &BTreeMap::new()).await });
    let runner = TestRunner::start(config(directory.path()), Uplink::Memory(runner_end)).await;
    assert!(runner.runner.status().connected_since.is_some());
    let mut hub = hub.await.unwrap();
    hub.create("s1").await;
    drop(hub);
    tokio::time::timeout(WAIT_MAX, runner.runner.join()).await.expect("the runner ends with its link");
    assert!(runner.store.sessions().await.is_err(), "the store is closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_in_memory_that_says_no_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let store = RunnerStore::open(&directory.path().join("runner.db"), StoreOptions::default()).unwrap();
    let (hub_end, runner_end) = qd_link::memory::pair();
    let refusal = json!({ "type": "runner.refused", "reason": "revoked" });
    hub_end.sender.send(format!("{refusal}\n").into()).await.unwrap();
    let socket = config.local_socket.clone().unwrap();
    let started = Runner::start(config, store, Uplink::Memory(runner_end), CancellationToken::new()).await;
    assert!(matches!(started, Err(RunnerError::NoWelcome(reason)) if reason == "revoked"));
    assert!(!socket.exists(), "nothing is left behind");
}
