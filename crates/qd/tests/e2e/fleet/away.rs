//! The hub is away, or the runner is: nothing is lost, and both say so.

use std::time::Duration;

use qd_testkit::mux::{Mux, short};
use qd_testkit::replica::Replica;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::{fleet, messages_in, session_on, until_local_status, until_status};
use crate::{
    assert_fields, begin_endless, demo, demo_asks, err, failed, ok, ok_json, prompt, sandbox, session_rows,
    until, up,
};

/// A runner is back within two seconds of its hub; a loaded machine may need a little more.
const RETURN_MAX: Duration = Duration::from_secs(4);

/// Everything of a session from its first record on, as a client that was never there gets it.
async fn read_all(mux: &mut Mux, session: &str) -> Replica {
    let mut replica = Replica::default();
    let answer = mux.call(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let until = answer["data"]["seq"].as_u64().unwrap();
    let from = mux.frames().len();
    let is_last = |frame: &Value| {
        let is_event = frame["event"] != "response" && frame["event"] != "session.resync";
        frame["session_id"] == session && is_event && frame["seq"] == until
    };
    mux.wait_since(from, "the last record", is_last).await;
    let is_record = |frame: &&Value| frame["channel"] == "agent" && frame["seq"].is_u64();
    let own = mux.frames()[from..].iter().filter(|frame| frame["session_id"] == session).filter(is_record);
    own.filter(|frame| frame["event"] != "session.resync").for_each(|frame| replica.take(frame));
    replica
}

#[tokio::test]
async fn a_machine_works_without_its_hub_and_everything_arrives_once_in_order() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    mux.prompt(&session, "/text").await;
    demo_asks(&mut mux, &session).await;
    let hub_world = qd.kill9_at_address().await;
    // The hub's machine has no runner of its own any more.
    failed(&hub_world.run(&["ls"]).await, 3);

    let listed = desk.cli(&["ls", "--json"]).await;
    assert!(err(&listed).contains("talking to the runner on this machine"), "{}", err(&listed));
    assert_fields(&ok_json(&listed)[0], json!({"session_id": session, "pending_input_count": 1}));
    ok(&desk.cli(&["approve", &session, "--value", "1"]).await);
    let attach = async |input: &str| {
        let mut command = desk.sandbox().command(&["attach", &session]);
        let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
        child.wait_with_output().await.unwrap()
    };
    let said = ok(&attach("/tools\n").await);
    assert!(said.contains("Both tools are done"), "{said}");
    ok(&desk.cli(&["send", &session, "/thinking"]).await);
    let followed = ok(&attach("/text\n").await);
    assert!(!followed.is_empty());
    let new = ok(&desk.cli(&["run", "--harness", "demo", "--json", "hello"]).await);
    assert!(new.lines().last().unwrap().contains("agent.idle"), "{new}");
    let search = failed(&desk.cli(&["search", "--local", "hello"]).await, 2);
    assert!(search.contains("--local"), "{search}");
    failed(&desk.cli(&["search", "hello"]).await, 3);
    let local = messages_in(&desk.cli(&["logs", &session, "--json", "--local"]).await);
    let status = until_local_status(desk.sandbox(), "not connected").await;
    assert!(status.contains("2 of"), "{status}");

    let (_qd, mut mux) = up(hub_world).await;
    until_status(&mut mux, "desk", "online").await;
    until_delivered(&mut mux, &session, local.len()).await;
    let replica = read_all(&mut mux, &session).await;
    assert_eq!(replica.messages, local);
    assert_eq!(mux.messages(&session).await, local);
    assert_eq!(session_rows(&mut mux).await.len(), 2, "the one made without the hub is there too");
    mux.skip();
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
}

/// Waits until the hub has this many messages.
async fn until_delivered(mux: &mut Mux, session: &str, count: usize) {
    until(&format!("all {count} messages"), async || {
        let stored = mux.messages(session).await.len();
        if stored < count { Err(stored.to_string()) } else { Ok(()) }
    })
    .await;
}

#[tokio::test]
async fn a_machine_starts_before_its_hub() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    mux.prompt(&session, "/text").await;
    let desk_world = desk.terminate().await;
    let hub_world = qd.kill9_at_address().await;
    let desk = desk_world.runner().await;
    ok(&desk.cli(&["send", &session, "/text"]).await);
    until_local_status(desk.sandbox(), "not connected").await;
    let doctor = desk.cli(&["doctor"]).await;
    assert!(ok(&doctor).contains("sessions keep running without it"), "{}", ok(&doctor));
    let (_qd, mut mux) = up(hub_world).await;
    until_status(&mut mux, "desk", "online").await;
    until_delivered(&mut mux, &session, 4).await;
    desk.terminate().await;
}

#[tokio::test]
async fn a_killed_machine_returns_with_its_sessions_and_a_patient_command_waits_for_it() {
    let (qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    mux.prompt(&session, "/tools").await;
    begin_endless(&mut mux, &session).await;
    let asking = session_on(&mut mux, "desk").await;
    demo_asks(&mut mux, &asking).await;
    let desk_world = desk.kill9().await;
    until_status(&mut mux, "desk", "offline").await;
    ok(&qd.cli(&["ls", "--waiting"]).await);
    ok(&qd.cli(&["logs", &asking]).await);
    let send = ["send", &session, "--wait", "60", "/text"];
    let (waiting, desk) = tokio::join!(qd.cli(&send), desk_world.runner());
    assert!(ok(&waiting).contains("sent"));
    until_status(&mut mux, "desk", "online").await;
    let messages = until("the answer to the waiting prompt", async || {
        let messages = mux.messages(&session).await;
        let state = mux.state(&session).await;
        let is_answered = messages.last().is_some_and(|message| message["role"] == "assistant");
        if state["status"] == "idle" && is_answered { Ok(messages) } else { Err(short(&state)) }
    })
    .await;
    let replica = read_all(&mut mux, &session).await;
    assert_eq!(replica.messages, messages);
    desk.terminate().await;
}

#[tokio::test]
async fn the_hubs_own_runner_has_a_socket_too() {
    let (qd, mut mux) = demo().await;
    let said = ok(&qd.cli(&["run", "--local", "--harness", "demo", "hello"]).await);
    assert!(said.contains("demo agent"), "{said}");
    let sessions = session_rows(&mut mux).await;
    assert_eq!(sessions.len(), 1);
    until_delivered(&mut mux, sessions[0]["session_id"].as_str().unwrap(), 2).await;
    let status = ok(&qd.cli(&["runner", "status"]).await);
    assert!(status.contains("in the same process"), "{status}");
    let contradiction = failed(&qd.cli(&["ls", "--local", "--url", qd.url()]).await, 2);
    assert!(contradiction.contains("--url"), "{contradiction}");
    failed(&qd.cli(&["up", "--local"]).await, 2);
}

#[tokio::test]
async fn a_full_spool_refuses_new_prompts_until_the_hub_is_back() {
    let (qd, mut mux) = demo().await;
    let mut desk_world = sandbox();
    desk_world.argument("--spool-max-mib").argument("1");
    let desk = qd.machine(desk_world, "desk").await;
    until_status(&mut mux, "desk", "online").await;
    let session = session_on(&mut mux, "desk").await;
    let hub_world = qd.kill9_at_address().await;
    // What runs goes on, however long it gets.
    let attached = desk.cli(&["run", "--harness", "demo", "--json", "/long 130000"]).await;
    assert!(ok(&attached).lines().last().unwrap().contains("agent.idle"));
    let full = failed(&desk.cli(&["send", &session, "hello"]).await, 1);
    assert!(full.contains("hub") && full.contains("1 MiB"), "{full}");
    failed(&desk.cli(&["run", "--harness", "demo", "hello"]).await, 1);
    let (_qd, mut mux) = up(hub_world).await;
    until_status(&mut mux, "desk", "online").await;
    until("room in the spool", async || {
        let answer = mux.call(prompt(&session, "/text")).await;
        if answer["success"] == true { Ok(()) } else { Err(short(&answer)) }
    })
    .await;
    until_delivered(&mut mux, &session, 2).await;
}

/// Takes the frames of a session until the client knows it to be idle with this many messages.
async fn follow(mux: &mut Mux, replica: &mut Replica, session: &str, messages: usize) {
    while replica.messages.len() < messages || !replica.is_settled() {
        let frame = mux.next().await.expect("the hub stays");
        if frame["channel"] == "agent" && frame["session_id"] == session {
            replica.take(&frame);
        }
    }
}

#[tokio::test]
async fn a_run_that_prints_all_the_time_goes_through_three_hubs() {
    let (mut qd, mut mux, desk) = fleet().await;
    let session = session_on(&mut mux, "desk").await;
    begin_endless(&mut mux, &session).await;
    for _ in 0..3 {
        qd = qd.kill9_at_address().await.up().await;
        let returned = tokio::time::Instant::now();
        mux = qd.connect().await;
        until_status(&mut mux, "desk", "online").await;
        assert!(returned.elapsed() < RETURN_MAX, "the runner came back after {:?}", returned.elapsed());
        let mut replica = Replica::default();
        let answer = mux.call(replica.attach(&session)).await;
        replica.take(&answer);
        assert_eq!(answer["data"]["state"]["status"], "working", "{answer}");
        mux.wait_event("stream.text_delta").await;
    }
    // A client that comes now has all of it, and so has the one that aborts.
    let mut late = qd.connect().await;
    let mut replica = Replica::default();
    let answer = late.call(replica.attach(&session)).await;
    replica.take(&answer);
    ok(&desk.cli(&["abort", &session, "--local"]).await);
    follow(&mut late, &mut replica, &session, 2).await;
    let local = messages_in(&desk.cli(&["logs", &session, "--json", "--local"]).await);
    assert_eq!(replica.messages, local);
    assert_eq!(mux.messages(&session).await, local);
}
