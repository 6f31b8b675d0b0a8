//! Links of runners: who may speak of what, what a new connection takes over, and holes.

use qd_hub::PlantedBug;
use serde_json::{Value, json};

use crate::runners::fleet_support::hello;
use crate::support::{
    Client, Runner, World, answer, assert_fields, attach_data, created, delta, followed_session, message_end,
    record,
};

/// A hub whose runner `far` has the session `t` with one record.
async fn far_world() -> (World, Runner, Runner) {
    let (world, local) = World::start().await;
    let (mut far, _) = world.come("far", &[]).await;
    far.create("t").await;
    (world, local, far)
}

async fn state_of(client: &mut Client, runner: &mut Runner) {
    runner.answer_next("{}").await;
    assert_eq!(client.next().await["success"], true);
}

#[tokio::test]
async fn a_hello_under_another_name_is_refused() {
    let (world, _local) = World::start().await;
    let mut far = world.dialed("far").await;
    far.say(&hello("r1", &["demo"], 4, &[])).await;
    let lines = far.ended().await;
    assert_fields(&lines[0], json!({"type": "runner.refused", "code": "conflict"}));
    world.is_shown("r1", "online").await;
    world.is_shown("far", "offline").await;
    world.stop().await;
}

#[tokio::test]
async fn nobody_speaks_of_another_runners_session() {
    let (world, mut local, mut far) = far_world().await;
    let mut client = world.client().await;
    client.attach(&mut far, "t", Some(1), 1).await;
    // In its hello…
    let (mut thief, welcome) = world.come("thief", &[("t", 9), ("own", 0)]).await;
    assert_eq!(welcome["refused"][0]["session_id"], "t");
    assert!(welcome["refused"][0]["reason"].as_str().unwrap().contains("belongs to runner far"), "{welcome}");
    assert_eq!(welcome["sessions"], json!([{"session_id":"own","last_seq":0}]));
    // … or by events, of which it is told once.
    local.say(&format!("{}\n{}\n{}", record("t", 2, "notify", ""), delta("t", 1), created("t"))).await;
    local.say(&format!("{}\n{}", delta("t", 2), created("mine"))).await;
    assert_eq!(local.kinds_until("ack").await, ["session.refused", "ack"]);
    thief.say(&format!("{}\n{}", record("t", 2, "notify", ""), created("own"))).await;
    assert_eq!(thief.kinds_until("ack").await, ["ack"], "the welcome has told it");
    // Nothing of it was taken.
    far.record("t", 2, "notify", "").await;
    assert_fields(&client.next().await, json!({"seq": 2, "runner_id": "far"}));
    let row = world.stored("t").await.unwrap();
    assert_eq!((&*row.runner_id, row.last_seq), ("far", 2));
    // Nor can it be created elsewhere.
    client.command("c", "t", "session.create", json!({"runner_id":"r1","config":{"harness":"demo"}})).await;
    assert_eq!(client.next().await["code"], "session_exists");
    world.stop().await;
}

#[tokio::test]
async fn a_runner_cannot_answer_for_another_nor_give_away_its_session() {
    let (world, local, mut far) = far_world().await;
    let mut client = world.client().await;
    client.command("a", "t", "get_state", json!({})).await;
    let command = far.command().await;
    local.say(&answer(&command, "{\"from\":\"thief\"}")).await;
    far.answer(&command, "{\"from\":\"far\"}").await;
    assert_eq!(client.next().await["data"]["from"], "far");
    let create = json!({"channel":"agent","id":"c","cmd":"session.create","runner_id":"r1","config":{"harness":"demo"}});
    client.send(&create).await;
    let mut local = local;
    local.answer_next(&attach_data(1, "ok").replacen('{', "{\"session_id\":\"t\",", 1)).await;
    assert_fields(&client.next().await, json!({"code": "wrong_runner"}));
    world.stop().await;
}

#[tokio::test]
async fn a_newer_connection_goes_on_where_the_old_one_was_committed() {
    let (world, _local, mut old) = far_world().await;
    let mut client = world.client().await;
    client.attach(&mut old, "t", Some(1), 1).await;
    old.record("t", 2, "notify", "").await;
    assert_eq!(client.next().await["seq"], 2);
    let (mut new, welcome) = world.come("far", &[("t", 2)]).await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"t","last_seq":2}]));
    let last = old.ended().await.pop().unwrap();
    assert_eq!(last["type"], "runner.refused");
    new.record("t", 3, "notify", "").await;
    drop(old);
    // Who follows the session is told how it stands, without asking.
    let attach = new.answer_next(&attach_data(3, "ok")).await;
    assert_eq!((&attach["cmd"], &attach["connection_id"]), (&json!("session.attach"), &json!("hub")));
    assert_eq!(client.next().await["seq"], 3);
    let resync = client.next().await;
    assert_fields(&resync, json!({"event": "session.resync", "resume": "gap", "seq": 3, "replay_until": 3}));
    new.record("t", 4, "notify", "").await;
    assert_eq!(client.next().await["seq"], 4);
    world.is_shown("far", "online").await;
    world.stop().await;
}

#[tokio::test]
async fn what_a_failing_store_does_not_take_is_given_up_with_its_link_and_comes_again() {
    let (world, _local, mut old) = far_world().await;
    let mut client = world.client().await;
    client.attach(&mut old, "t", Some(1), 1).await;
    world.store.set_full_for_tests(true).await.unwrap();
    let big = record("t", 2, "notify", &format!(",\"message\":\"{}\"", "x".repeat(400_000)));
    old.say(&format!("{big}\n{}", message_end("t", 3, 0))).await;
    while client.next().await["type"] != "error" {}
    client.command("a", "t", "session.attach", json!({"after":1})).await;
    old.answer_next(&attach_data(3, "ok")).await;
    client.command("p", "t", "prompt", json!({"message":"m"})).await;
    old.command().await;
    let (mut new, welcome) = world.come("far", &[("t", 3)]).await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"t","last_seq":1}]), "read is not committed");
    // Nobody is left waiting.
    let mut ids = vec![client.next().await["id"].clone(), client.next().await["id"].clone()];
    ids.sort_by_key(Value::to_string);
    assert_eq!(ids, ["a", "p"]);
    world.store.set_full_for_tests(false).await.unwrap();
    new.say(&format!("{big}\n{}", message_end("t", 3, 0))).await;
    for seq in [2, 3] {
        assert_eq!(client.next().await["seq"], seq);
    }
    while new.line_of("ack").await["seq"] != 3 {}
    assert_eq!(world.store.records_after("t", 0, 10, 1 << 20).await.unwrap().len(), 3);
    world.stop().await;
}

#[tokio::test]
async fn a_hole_ends_the_link_and_one_that_stays_ends_the_session_only() {
    let (world, _local, mut far) = far_world().await;
    let mut client = world.client().await;
    client.attach(&mut far, "t", Some(1), 1).await;
    let lines = [record("t", 2, "notify", ""), record("t", 4, "notify", ""), delta("t", 1)];
    far.say(&lines.join("\n")).await;
    let lines = far.ended().await;
    assert!(lines.iter().all(|line| line["type"] == "ack"), "{lines:?}");
    assert_eq!(client.next().await["seq"], 2);
    let (mut far, welcome) = world.come("far", &[("t", 4)]).await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"t","last_seq":2}]));
    far.say(&format!("{}\n{}", record("t", 3, "notify", ""), record("t", 4, "notify", ""))).await;
    for seq in [3, 4] {
        assert_eq!(client.next().await["seq"], seq);
    }
    // Record 5 is nowhere: after the second try the session is refused and others go on.
    far.record("t", 6, "notify", "").await;
    far.ended().await;
    let (mut far, _) = world.come("far", &[("t", 6)]).await;
    far.say(&format!("{}\n{}\n{}", record("t", 6, "notify", ""), delta("t", 1), created("u"))).await;
    let refused = far.line_of("session.refused").await;
    assert!(refused["reason"].as_str().unwrap().contains("up to 4"), "{refused}");
    assert_eq!(far.line_of("ack").await["session_id"], "u");
    world.stop().await;
}

#[tokio::test]
async fn a_runners_resync_is_live_and_its_records_go_on() {
    let (world, runner, mut client) = followed_session().await;
    let resync = r#"{"type":"event","session_id":"s","runner_id":"r1","ts":1,"event":"session.resync","resume":"gap","seq":1,"replay_until":1,"state":{"status":"working"},"pending_input":[]}"#;
    let odd = r#"{"type":"event","ts":1,"seq":1,"session_id":"s","event":"session.resync","resume":"gap","state":{},"pending_input":[]}"#;
    runner.say(&format!("{resync}\n{odd}\n{}", record("s", 2, "notify", ""))).await;
    let event = client.next().await;
    assert_fields(&event, json!({"event": "session.resync", "seq": 1, "state.status": "working"}));
    assert_eq!(client.next().await["event"], "session.resync");
    assert_eq!(client.next().await["seq"], 2);
    assert_eq!(world.store.records_after("s", 0, 10, 1 << 20).await.unwrap().len(), 2);
    world.stop().await;
}

#[tokio::test]
async fn a_new_key_counts_when_it_is_stored() {
    let (world, local, mut far) = far_world().await;
    let (status, _) = world.api("POST", "/api/runners/far/rotate").await;
    assert_eq!(status, 202);
    far.line_of("runner.rotate").await;
    let hash = "ab".repeat(32);
    far.say(&format!(r#"{{"type":"runner.rekey","key_hash":"{hash}"}}"#)).await;
    assert_eq!(far.line_of("runner.rekeyed").await["key_hash"], *hash);
    assert_eq!(world.store.runner("far").await.unwrap().unwrap().next_key_hash, Some(vec![0xab; 32]));
    // What is no hash changes nothing, and the link lives.
    for bad in ["", "zz", "ü"] {
        local.say(&format!(r#"{{"type":"runner.rekey","key_hash":"{bad}"}}"#)).await;
    }
    world.is_shown("r1", "online").await;
    world.stop().await;
}

#[tokio::test]
async fn the_planted_bugs_are_what_they_say() {
    let directory = tempfile::tempdir().unwrap();
    let plant = |config: &mut qd_hub::HubConfig| config.planted_bug = Some(PlantedBug::AckBeforeCommit);
    let (world, mut runner) = World::start_as(directory, plant).await;
    runner.hello().await;
    world.store.set_full_for_tests(true).await.unwrap();
    let filler = format!(",\"message\":\"{}\"", "x".repeat(400_000));
    runner.say(&format!("{}\n{}", created("s"), record("s", 2, "notify", &filler))).await;
    assert_eq!(runner.line_of("ack").await["seq"], 2, "acked though the store has it not");
    assert!(world.stored("s").await.is_none());
    world.stop().await;

    let directory = tempfile::tempdir().unwrap();
    let plant = |config: &mut qd_hub::HubConfig| config.planted_bug = Some(PlantedBug::ResendWithoutDedupe);
    let (world, mut runner) = World::start_as(directory, plant).await;
    runner.hello().await;
    runner.create("s").await;
    let mut client = world.client().await;
    client.attach(&mut runner, "s", Some(1), 1).await;
    for _ in 0..2 {
        runner.record("s", 2, "notify", "").await;
        assert_eq!(client.next().await["seq"], 2);
    }
    client.command("g", "s", "get_state", json!({})).await;
    state_of(&mut client, &mut runner).await;
    world.stop().await;
}

#[tokio::test]
async fn records_of_an_outage_do_not_change_what_the_runner_said_of_now() {
    let (world, _local) = World::start().await;
    let mut far = world.dialed("far").await;
    let question = json!({"type":"confirm","request_id":"q2","title":"t","message":"m"});
    let state = json!({"session_id":"s","runner_id":"far","harness":"demo","status":"working","session_version":1,
        "seq":5,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[question]});
    far.hello_with("far", json!([{"session_id":"s","last_seq":5,"state":state}])).await;
    far.line_of("runner.welcome").await;
    // What happened while the hub was away, from the spool.
    let asked = |seq: u64, id: &str| {
        let rest =
            format!(r#","request":{{"type":"confirm","request_id":"{id}","title":"t","message":"m"}}"#);
        record("s", seq, "agent.input_needed", &rest)
    };
    let resolved = record("s", 3, "agent.input_resolved", r#","request_id":"q1""#);
    let lines = [created("s"), asked(2, "q1"), resolved, record("s", 4, "agent.idle", ""), asked(5, "q2")];
    far.say(&lines.join("\n")).await;
    while far.line_of("ack").await["seq"] != 5 {}
    let mut client = world.client().await;
    let mut listed = async || {
        client.command("l", "_system", "list_sessions", json!({})).await;
        client.until(|frame| frame["id"] == "l").await["data"]["sessions"][0].clone()
    };
    assert_fields(&listed().await, json!({"state": "working", "pending_input_count": 1}));
    // What comes after it counts again.
    far.say(&record("s", 6, "agent.input_resolved", r#","request_id":"q2""#)).await;
    far.say(&record("s", 7, "agent.idle", "")).await;
    while far.line_of("ack").await["seq"] != 7 {}
    assert_fields(&listed().await, json!({"state": "idle", "pending_input_count": 0}));
    world.stop().await;
}
