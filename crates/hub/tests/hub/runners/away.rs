//! What happens to a session while its runner is away or has just gone.

use std::time::Duration;

use qd_hub::Limits;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Client, Runner, World, assert_fields, created, record, soon};

/// A hub, and its runner `far` with the session `t`, whose first record is stored.
async fn world_with_far(limits: Limits) -> (World, Runner) {
    let (world, _local) = World::start_with(limits).await;
    let (mut far, _) = world.come("far", &[]).await;
    far.say(&created("t")).await;
    assert_eq!(far.line_of("ack").await["seq"], 1);
    (world, far)
}

/// The disk is full, and a record of `t` waits for it.
async fn fill_disk(world: &World, far: &Runner) {
    let mut client = world.client().await;
    world.store.set_full_for_tests(true).await.unwrap();
    let filler = format!(r#","message":"{}""#, "x".repeat(400_000));
    far.say(&record("t", 2, "notify", &filler)).await;
    assert_fields(&client.next().await, json!({"code": "store_unavailable"}));
}

async fn prompt_code(client: &mut Client) -> String {
    client.call("p", "t", "prompt", json!({"message":"m"})).await["code"].as_str().unwrap().to_owned()
}

/// A list and an attach say the same of a session whose runner is away.
#[tokio::test]
async fn a_question_that_waits_is_shown_while_its_runner_is_away() {
    let (world, mut far) = world_with_far(Limits::default()).await;
    let question = r#","request":{"type":"confirm","request_id":"q1","title":"Go on?","message":"m"}"#;
    far.say(&record("t", 2, "agent.input_needed", question)).await;
    assert_eq!(far.line_of("ack").await["seq"], 2);
    drop(far);
    world.is_shown("far", "offline").await;
    let (_, row) = world.api("GET", "/api/sessions/t").await;
    assert_eq!((&row["state"], &row["pending_input_count"]), (&json!("offline"), &json!(1)));
    let mut client = world.client().await;
    for cmd in ["session.attach", "get_state"] {
        let data = client.call(cmd, "t", cmd, json!({})).await["data"].take();
        let state = data.get("state").unwrap_or(&data);
        assert_eq!(state["pending_input"][0]["request_id"], "q1", "{cmd}: {data}");
        let attached = data.get("state").map(|_| &data["pending_input"][0]["title"]);
        assert!(attached.is_none_or(|title| title == "Go on?"), "{data}");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_session_deleted_while_its_last_records_are_stored_leaves_nothing() {
    let (world, far) = world_with_far(Limits::default()).await;
    fill_disk(&world, &far).await;
    drop(far);
    world.is_shown("far", "offline").await;
    let (mut client, mut other) = (world.client().await, world.client().await);
    client.command("d", "t", "session.delete", json!({})).await;
    soon("the name to be taken", async { while prompt_code(&mut other).await != "session_not_found" {} })
        .await;
    assert!(world.store.deleted_sessions_of("far").await.unwrap().is_empty(), "the records come first");
    world.store.set_full_for_tests(false).await.unwrap();
    let response = client.until(|frame| frame["id"] == "d").await;
    assert_eq!(response["success"], true, "{response}");
    // By then the last records are dealt with.
    while other.next().await["message"] != "The hub stores events again" {}
    assert!(world.stored("t").await.is_none());
    assert!(world.store.records_after("t", 0, 10, 1 << 20).await.unwrap().is_empty());

    let (mut far, _) = world.come("far", &[("t", 2)]).await;
    assert_eq!(far.answer_next("null").await["id"], "bury:t");
    soon("the name to be free", async {
        while !world.store.deleted_sessions_of("far").await.unwrap().is_empty() {}
    })
    .await;
    soon("a new session of the name", async {
        // The hub frees the name just after the store does; until then its records are skipped.
        loop {
            far.say(&created("t")).await;
            let ack = timeout(Duration::from_millis(200), far.line_of("ack")).await;
            if let Ok(ack) = ack {
                assert_eq!((&ack["session_id"], &ack["seq"]), (&json!("t"), &json!(1)));
                return;
            }
        }
    })
    .await;
    far.say(&record("t", 2, "notify", "")).await;
    while far.line_of("ack").await["seq"] != 2 {}
    let stored = world.stored("t").await.unwrap();
    assert_eq!((&*stored.runner_id, stored.last_seq), ("far", 2));
    world.stop().await;
}

#[tokio::test]
async fn nobody_waits_for_records_that_were_given_up() {
    let (world, far) = world_with_far(Limits::default()).await;
    fill_disk(&world, &far).await;
    assert_eq!(world.api("DELETE", "/api/runners/far").await.0, 200);
    world.is_shown("far", "offline").await;
    let mut client = world.client().await;
    client.command("a", "t", "session.attach", json!({})).await;
    let response = timeout(Duration::from_secs(5), client.next()).await.expect("the attach waits");
    assert_eq!((&response["id"], &response["data"]["seq"]), (&json!("a"), &json!(1)));
    world.stop().await;
}

#[tokio::test]
async fn who_fell_behind_while_the_runner_went_away_is_resynced_from_the_store() {
    let limits = Limits { ring_bytes_max: 256 << 10, ..Limits::default() };
    let (world, mut far) = world_with_far(limits).await;
    let mut slow = world.client().await;
    slow.attach(&mut far, "t", Some(1), 1).await;
    // Far more than sockets and ring hold, of a kind that is not made shorter.
    let live = r#"{"type":"event","session_id":"t","runner_id":"far","ts":1,"event":"x.live","text":""#;
    let block = format!("{live}{}\"}}", "x".repeat(500_000));
    for _ in 0..60 {
        far.say(&block).await;
    }
    far.say(&record("t", 2, "notify", "")).await;
    while far.line_of("ack").await["seq"] != 2 {}
    drop(far);
    world.is_shown("far", "offline").await;
    let resync: Value = loop {
        let event = slow.next().await;
        if event["event"] == "session.resync" {
            break event;
        }
        assert_eq!(event["event"], "x.live");
    };
    assert_fields(&resync, json!({"resume": "gap", "seq": 1, "replay_until": 2, "state.status": "offline"}));
    assert_eq!(slow.next().await["seq"], 2);
    world.stop().await;
}

#[tokio::test]
async fn a_refused_name_is_free_when_its_session_is_deleted() {
    let (world, mut far) = world_with_far(Limits::default()).await;
    // What comes from another machine is checked: the second line is none, so a record is missing.
    let repeated = record("t", 2, "notify", r#","session_id":"u""#);
    far.say(&format!("{repeated}\n{}", record("t", 3, "notify", ""))).await;
    far.ended().await;
    let (mut far, welcome) = world.come("far", &[("t", 3)]).await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"t","last_seq":1}]));
    far.say(&record("t", 3, "notify", "")).await;
    assert_eq!(far.line_of("session.refused").await["session_id"], "t");
    let mut client = world.client().await;
    client.command("d", "t", "session.delete", json!({})).await;
    let delete = far.command().await;
    far.say(&format!("{}\n{}", crate::support::answer(&delete, "null"), created("t"))).await;
    assert_eq!(client.next().await["success"], true);
    assert_fields(&far.line_of("ack").await, json!({"session_id": "t", "seq": 1}));
    world.stop().await;
}

#[tokio::test]
async fn a_hello_is_bounded_and_names_without_records_are_forgotten() {
    let (world, _local) = World::start().await;
    let long = "x".repeat(257);
    let (mut far, welcome) = world.come("far", &[(&long, 1), ("ghost", 0)]).await;
    assert_eq!(welcome["refused"][0]["session_id"], *long);
    assert!(welcome["refused"][0]["reason"].as_str().unwrap().contains("longer than 256 bytes"), "{welcome}");
    assert_eq!(welcome["sessions"], json!([{"session_id":"ghost","last_seq":0}]));
    far.say(&format!("{}\n{}", created(&"y".repeat(257)), created("t"))).await;
    assert_eq!(far.line_of("ack").await["session_id"], "t");
    drop(far);
    let (_far, welcome) = world.come("far", &[]).await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"t","last_seq":1}]), "nothing is known of ghost");

    let names: Vec<String> = (0..10_001).map(|number| format!("s{number}")).collect();
    let many: Vec<(&str, u64)> = names.iter().map(|name| (&**name, 0)).collect();
    let (_far, welcome) = world.come("far", &many).await;
    assert_eq!(welcome["refused"].as_array().unwrap().len(), 1);
    assert_eq!(welcome["refused"][0]["session_id"], "s10000");
    world.stop().await;
}

#[tokio::test]
async fn a_session_whose_first_record_the_tables_refuse_still_has_its_runner() {
    let (world, mut far) = world_with_far(Limits::default()).await;
    world.store.refuse_for_tests().await.unwrap();
    far.say(&record("u", 1, "session.title_changed", r#","title":"bad""#)).await;
    while far.line_of("ack").await["session_id"] != "u" {}
    let stored = world.stored("u").await.unwrap();
    assert_eq!((&*stored.runner_id, stored.last_seq), ("far", 1));
    world.stop().await;
}
