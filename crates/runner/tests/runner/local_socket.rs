//! The runner's own socket: everything works there, with a hub or without.

use std::os::unix::fs::PermissionsExt;

use crate::support::hub_link::{LocalClient, TestRunner, config};
use crate::support::until;
use qd_runner::{LocalError, Runner, RunnerError, Uplink};
use qd_store::{RunnerStore, StoreOptions};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_is_private_exclusive_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let socket = config.local_socket.clone().unwrap();
    // Left by a runner that was killed.
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let runner = TestRunner::start(config.clone(), Uplink::None).await;
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);

    let other = tempfile::tempdir().unwrap();
    let store = RunnerStore::open(&other.path().join("runner.db"), StoreOptions::default()).unwrap();
    let second = Runner::start(config, store, Uplink::None, CancellationToken::new()).await;
    assert!(matches!(second, Err(RunnerError::Local(LocalError::Taken(path))) if path == socket));

    LocalClient::connect(&socket).await.create("s1").await;
    runner.end().await;
    assert!(!socket.exists());
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with(".qd")), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_socket_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let path = config.local_socket.clone().unwrap();
    std::fs::write(&path, "precious").unwrap();
    let store = RunnerStore::open(&directory.path().join("runner.db"), StoreOptions::default()).unwrap();
    let started = Runner::start(config, store, Uplink::None, CancellationToken::new()).await;
    assert!(matches!(started, Err(RunnerError::Local(LocalError::Io { .. }))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_listed_read_and_followed_without_a_hub() {
    let runner = TestRunner::without_hub(|_| {}).await;
    let mut maker = runner.client().await;
    maker.create("s1").await;
    maker.prompt("s1", "/text").await;

    let mut client = runner.client().await;
    let sessions = client.call("", "list_sessions", json!({})).await;
    assert_eq!(sessions["data"]["sessions"][0]["session_id"], "s1", "{sessions}");
    assert_eq!(sessions["data"]["sessions"][0]["state"], "idle");
    let runners = client.call("", "get_runners", json!({})).await;
    assert_eq!(runners["data"]["runners"][0]["runner_id"], "r1");
    let messages = client.call("s1", "get_messages", json!({ "limit": 1 })).await;
    assert_eq!(messages["data"]["total"], 2, "{messages}");
    assert_eq!(messages["data"]["messages"][0]["role"], "assistant");
    let search = client.call("", "search", json!({ "query": "short" })).await;
    assert_eq!(search["code"], "unsupported");
    let missing = client.call("nowhere", "session.attach", json!({})).await;
    assert_eq!(missing["code"], "session_not_found");
    assert!(client.events.is_empty(), "nothing comes unasked: {:?}", client.events);
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_not_deleted_behind_its_hubs_back() {
    let runner = TestRunner::without_hub(|_| {}).await;
    let mut client = runner.client().await;
    client.create("s1").await;
    let refused = client.call("s1", "session.delete", json!({})).await;
    assert!(refused["error"].as_str().unwrap().contains("through its hub"), "{refused}");
    assert_eq!(client.call("s1", "get_state", json!({})).await["data"]["status"], "idle");
    assert_eq!(client.call("s1", "session.close", json!({})).await["success"], true);
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attach_replays_what_is_asked_for_and_goes_on_live() {
    let runner = TestRunner::without_hub(|_| {}).await;
    let mut maker = runner.client().await;
    maker.create("s1").await;
    maker.prompt("s1", "/text").await;

    let mut client = runner.client().await;
    let attach = client.call("s1", "session.attach", json!({ "after": 2 })).await;
    assert_eq!(attach["data"]["resume"], "ok");
    let last = attach["data"]["seq"].as_u64().unwrap();
    maker.prompt("s1", "/text").await;
    client
        .find("the end of the new turn", |line| {
            line["event"] == "agent.idle" && line["seq"].as_u64() > Some(last)
        })
        .await;
    let seqs: Vec<u64> = client.events.iter().filter_map(|line| line["seq"].as_u64()).collect();
    let expected: Vec<u64> = (3..).take(seqs.len()).collect();
    assert_eq!(seqs, expected, "each record once, in order");
    assert!(client.events.iter().any(|line| line["event"] == "stream.text_delta"), "live events come too");
    assert!(client.events.iter().all(|line| line["type"] != "response"), "no answers to others");

    let beyond = client.call("s1", "session.attach", json!({ "after": 100_000 })).await;
    assert_eq!(beyond["data"]["resume"], "gap");
    assert_eq!(beyond["data"]["messages"].as_array().map(Vec::len), Some(4), "{beyond}");

    assert_eq!(client.call("s1", "session.detach", json!({})).await["success"], true);
    client.events.clear();
    maker.prompt("s1", "/text").await;
    client.call("", "get_runners", json!({})).await;
    assert!(client.events.is_empty(), "{:?}", client.events);
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_answered_and_bad_lines_are_named() {
    let runner = TestRunner::without_hub(|_| {}).await;
    let mut client = runner.client().await;
    for line in
        ["nonsense", "[]", "{\"type\":\"ack\"}", "{\"type\":\"command\"}", "{\"cmd\":\"search\",\"id\":5}"]
    {
        client.send(line).await;
        let answer = client.next().await.unwrap();
        assert_eq!(answer["type"], "error", "{line}: {answer}");
    }
    let unknown = client.call("", "fly", json!({ "channel": "agent" })).await;
    assert_eq!(unknown["success"], false);
    client.create("s1").await;
    let prompt = client.call("s1", "prompt", json!({ "message": "/question", "channel": "agent" })).await;
    assert_eq!(prompt["success"], true, "{prompt}");
    let is_question = |line: &Value| line["event"] == "agent.input_needed";
    let question = match client.events.iter().position(is_question) {
        Some(place) => client.events.remove(place),
        None => client.find("a question", is_question).await,
    };
    let request_id =
        question["request"]["request_id"].as_str().or(question["request_id"].as_str()).unwrap().to_owned();
    let answer = json!({ "request_id": request_id, "value": "red" });
    let answered = client.call("s1", "input_response", answer).await;
    assert_eq!(answered["success"], true, "{answered}");
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_off_and_holds_up_nobody() {
    const TURNS: usize = 4;
    let runner = TestRunner::without_hub(|_| {}).await;
    let mut maker = runner.client().await;
    maker.create("s1").await;
    let mut sleeper = runner.client().await;
    sleeper.call("s1", "session.attach", json!({})).await;
    for _ in 0..TURNS {
        maker.prompt("s1", "/long 120000").await;
    }
    let listed = maker.call("", "list_sessions", json!({})).await;
    assert_eq!(listed["data"]["sessions"][0]["subscriber_count"], 1, "only the maker is left");
    let mut turns = 0;
    while let Some(line) = sleeper.next().await {
        turns += usize::from(line["event"] == "agent.idle" && line["reason"] == "stop");
    }
    assert!(turns < TURNS, "the connection ends before everything has come");
    runner.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_its_bound_the_spool_refuses_prompts_and_nothing_else() {
    let runner = TestRunner::without_hub(|config| config.spool_bytes_max = 3 << 10).await;
    let mut client = runner.client().await;
    client.create("s1").await;
    client.prompt("s1", "/tools").await;
    let store = runner.store.clone();
    until("the spool is full", || async { store.spool_bytes() >= 3 << 10 }).await;
    let prompt = client.call("s1", "prompt", json!({ "message": "/text" })).await;
    assert!(
        prompt["error"].as_str().is_some_and(|error| error.contains("the hub has not taken")),
        "{prompt}"
    );
    assert_eq!(client.call("s1", "get_state", json!({})).await["success"], true);
    runner.end().await;
}
