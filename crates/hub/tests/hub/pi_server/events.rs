//! The pi-server face: who gets a session's events, and what becomes of those who do not read them.

use qd_hub::PiServerConfig;
use serde_json::json;

use crate::pi_server::support::{attached, native, pi_world, relaxed, state};
use crate::support::{Runner, answer, assert_fields, record};

#[tokio::test]
async fn followers_get_native_events_and_questions_and_others_do_not() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let (mut follower, mut other) = (world.pi_client().await, world.pi_client().await);
    follower.send(json!({"type":"switch_session","id":"w","sessionId":"s"})).await;
    let watch = runner.line_of("session.watch").await;
    assert_eq!((&watch["session_id"], &watch["on"]), (&json!("s"), &json!(true)));
    let command = runner.command().await;
    let mut asking = state("s", 5);
    asking["pending_input"] = json!([{"type":"confirm","request_id":"q1","title":"Sure?","message":"m"}]);
    // What comes before the answer is in it.
    runner.say(&native("s", &json!({"type":"agent_start"}))).await;
    runner.answer(&command, &asking.to_string()).await;
    runner.say(&native("s", &json!({"type":"turn_start"}))).await;
    let frames = follower
        .expect_all(&[
            "command_accepted",
            "command_started",
            "command_finished",
            "response",
            "event",
            "event",
        ])
        .await;
    assert_eq!(frames[3]["sessionVersion"], 5);
    assert_fields(&frames[4], json!({"event.type": "extension_ui_request", "event.requestId": "q1"}));
    assert_eq!(frames[5], json!({"type":"event","sessionId":"s","event":{"type":"turn_start"}}));
    other.expect_all(&["command_accepted", "command_started", "command_finished"]).await;

    // A second switch does not double anything; a replayed one says nothing new on the same connection.
    follower.follow(&mut runner).await;
    let replayed = follower.call(json!({"type":"switch_session","id":"w","sessionId":"s"})).await;
    assert_eq!(replayed["replayed"], true);
    runner.say(&native("s", &json!({"type":"turn_end"}))).await;
    assert_eq!(follower.expect("event").await["event"]["type"], "turn_end");
    follower.call(json!({"type":"get_startup_recovery"})).await;

    // Nobody is left: the runner need not say them any more.
    drop(follower);
    assert_fields(&runner.line_of("session.watch").await, json!({"on": false}));
    world.stop().await;
}

#[tokio::test]
async fn a_switch_that_wants_it_is_told_how_the_session_stands() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"switch_session","id":"w","sessionId":"s","resync":true})).await;
    runner.attach_pi(9).await;
    let frames = client
        .expect_all(&["command_accepted", "command_started", "command_finished", "response", "event"])
        .await;
    let event = &frames[4]["event"];
    assert_fields(
        event,
        json!({"type": "session_resync", "sessionInfo.messageCount": 9, "message": null,
        "pendingRequests": []}),
    );
    // The same command on another connection: replayed, and that one follows too.
    let mut again = world.pi_client().await;
    again.send(json!({"type":"switch_session","id":"w","sessionId":"s","resync":true})).await;
    again.expect_all(&["command_accepted", "command_finished", "response"]).await;
    runner.attach_pi(10).await;
    assert_eq!(again.expect("event").await["event"]["type"], "session_resync");
    runner.say(&native("s", &json!({"type":"turn_start"}))).await;
    assert_eq!(again.expect("event").await["event"]["type"], "turn_start");
    world.stop().await;
}

impl Runner {
    async fn attach_pi(&mut self, message_count: u64) {
        assert_eq!(self.answer_next(&attached("s", message_count)).await["cmd"], "session.attach");
    }
}

#[tokio::test]
async fn who_does_not_read_is_told_what_it_missed_and_goes_on_from_there() {
    let (world, mut runner) = pi_world(PiServerConfig { backlog_bytes_max: 4 << 10, ..relaxed() }).await;
    let (mut slow, mut busy) = (world.pi_client().await, world.pi_client().await);
    slow.follow(&mut runner).await;
    busy.follow(&mut runner).await;
    // Far more than sockets hold, and nothing of it is read by the slow one.
    let padding = "x".repeat(64 << 10);
    let total: u64 = 400;
    for number in 0..total {
        runner.say(&native("s", &json!({"type":"message_update","number":number,"padding":padding}))).await;
        while busy.next().await["event"]["number"] != number {}
    }
    // A command of the other one, so that lifecycle frames are dropped too.
    busy.call(json!({"type":"get_startup_recovery"})).await;
    let mut last = None;
    let mut seen = 0;
    let (mut lifecycle_missed, mut is_told) = (0, false);
    let missed = loop {
        let frame = slow.next().await;
        match frame["type"].as_str().unwrap() {
            "event" if frame["event"]["type"] == "event_gap" => {
                break frame["event"]["missed"].as_u64().unwrap();
            }
            "event" => {
                seen += 1;
                last = frame["event"]["number"].as_u64();
            }
            "lifecycle_gap" => {
                is_told = true;
                lifecycle_missed += frame["data"]["missed"].as_u64().unwrap();
            }
            other => assert!(other.starts_with("command_"), "{other}"),
        }
    };
    assert_eq!(seen + missed, total, "last seen {last:?}");
    assert!(missed > 0 && is_told && lifecycle_missed >= 3, "{missed} {lifecycle_missed}");
    let command = runner.command().await;
    assert_eq!(command["cmd"], "session.attach");
    // What comes before the answer is in it and not sent.
    runner.say(&native("s", &json!({"type":"in_the_answer"}))).await;
    runner.answer(&command, &attached("s", 42)).await;
    runner.say(&native("s", &json!({"type":"after"}))).await;
    let resync = slow.expect("event").await;
    assert_fields(&resync, json!({"event.type": "session_resync", "event.sessionInfo.messageCount": 42}));
    assert_eq!(slow.expect("event").await["event"]["type"], "after");
    world.stop().await;
}

#[tokio::test]
async fn answers_are_never_dropped() {
    let (world, mut runner) = pi_world(PiServerConfig { backlog_bytes_max: 0, ..relaxed() }).await;
    let mut client = world.pi_client().await;
    for number in 0..50 {
        client.send(json!({"type":"get_state","id":format!("g{number}"),"sessionId":"s"})).await;
    }
    for _ in 0..50 {
        runner.answer_next(&state("s", 0).to_string()).await;
    }
    for number in 0..50 {
        assert_eq!(client.response().await["id"], format!("g{number}"));
    }
    world.stop().await;
}

#[tokio::test]
async fn followers_of_a_deleted_session_hear_no_more() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    client.follow(&mut runner).await;
    client.send(json!({"type":"delete_session","sessionId":"s"})).await;
    let command = runner.command().await;
    runner.say(&format!("{}\n{}", record("s", 2, "session.closed", ""), answer(&command, "null"))).await;
    assert_eq!(client.response().await["success"], true);
    client.expect("session_deleted").await;
    assert_eq!(runner.line_of("session.watch").await["on"], false);
    runner.say(&native("s", &json!({"type":"turn_start"}))).await;
    // The answer comes after everything that was said before.
    client.send(json!({"type":"list_sessions","id":"x"})).await;
    runner.answer_next(r#"{"sessions":[]}"#).await;
    client.expect_all(&["command_accepted", "command_started", "command_finished", "response"]).await;
    world.stop().await;
}

#[tokio::test]
async fn who_follows_a_session_whose_runner_was_away_is_told_how_it_stands() {
    let (world, _local) = pi_world(relaxed()).await;
    let (mut far, _) = world.come("far", &[]).await;
    far.create("f").await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"switch_session","sessionId":"f"})).await;
    far.answer_next(&state("f", 0).to_string()).await;
    assert_eq!(client.response().await["success"], true);

    let mut again = world.dialed("far").await;
    again.hello_with("far", json!([{"session_id":"f","last_seq":1}])).await;
    again.line_of("runner.welcome").await;
    assert_eq!(again.line_of("session.watch").await["on"], true);
    loop {
        let command = again.command().await;
        assert_eq!(command["cmd"], "session.attach");
        again.answer(&command, &attached("f", 7)).await;
        // The hub asks for clients of its own face as well.
        if command["connection_id"].as_str().is_some_and(|id| id.starts_with('p')) {
            break;
        }
    }
    again.say(&native("f", &json!({"type":"turn_start"}))).await;
    let resync = client.expect("event").await;
    assert_fields(&resync, json!({"event.type": "session_resync", "event.sessionInfo.messageCount": 7}));
    assert_eq!(client.expect("event").await["event"]["type"], "turn_start");
    world.stop().await;
}
