use qd_hub::Limits;
use qd_store::{HubStore, StoreOptions};
use serde_json::json;

use crate::support::{
    Client, World, answer, assert_fields, created, delta, followed_session, message_end, record,
    world_with_session,
};

#[tokio::test]
async fn what_a_client_sees_of_records_is_stored_already() {
    let (world, mut runner, mut client) = followed_session().await;
    for seq in 2..200_u64 {
        runner.say(&format!("{}\n{}", delta("s", 0), message_end("s", seq, seq - 2))).await;
        loop {
            let event = client.next().await;
            if event["seq"] == seq {
                break;
            }
            assert_eq!(event["event"], "stream.text_delta");
        }
        let session = world.stored("s").await.unwrap();
        assert!(session.last_seq >= seq, "published before it was stored");
    }
    while runner.line_of("ack").await["seq"] != 199 {}
    world.stop().await;
}

#[tokio::test]
async fn the_row_of_an_agent_that_died_says_so_until_it_runs_again() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let error = r#","error":"no key","recoverable":false"#;
    runner.say(&record("s", 2, "agent.error", error)).await;
    runner.say(&record("s", 3, "agent.idle", r#","reason":"error""#)).await;
    while runner.line_of("ack").await["seq"] != 3 {}
    let row = world.stored("s").await.unwrap();
    assert_eq!((&*row.state, row.error.as_deref()), ("failed", Some("no key")));
    runner.say(&record("s", 4, "session.created", r#","harness":"demo""#)).await;
    while runner.line_of("ack").await["seq"] != 4 {}
    let row = world.stored("s").await.unwrap();
    assert_eq!((&*row.state, row.error), ("idle", None));
    world.stop().await;
}

#[tokio::test]
async fn the_stored_body_is_the_frame_the_client_got() {
    let (world, runner, mut client) = followed_session().await;
    let line = record("s", 2, "x-pi.odd", r#", "a" : [1.50,"\u00e9"]"#);
    runner.say(&line).await;
    let frame = client.next_text().await;
    assert_eq!(frame, line.replace("\"type\":\"event\"", "\"channel\":\"agent\""));
    let stored = world.store.records_after("s", 1, 10, 1 << 20).await.unwrap();
    assert_eq!((stored[0].0, &stored[0].1[..]), (2, frame.as_bytes()));
    world.stop().await;
}

#[tokio::test]
async fn repeated_records_are_acked_and_not_shown_again() {
    let (world, mut runner, mut client) = followed_session().await;
    runner.record("s", 2, "notify", "").await;
    assert_eq!(client.next().await["seq"], 2);
    assert_eq!(runner.line_of("ack").await["seq"], 2);
    runner.say(&format!("{}\n{}", created("s"), record("s", 2, "notify", ""))).await;
    assert_eq!(runner.line_of("ack").await["seq"], 2);
    runner.record("s", 3, "notify", "").await;
    assert_eq!(client.next().await["seq"], 3);
    world.stop().await;
}

#[tokio::test]
async fn a_restarted_hub_tells_the_runner_what_it_has() {
    let (world, runner) = world_with_session(Limits::default()).await;
    let directory = world.end().await;
    drop(runner);
    let (world, mut runner) = World::start_silent(directory, Limits::default()).await;
    runner.hello().await;
    let welcome = runner.line_of("runner.welcome").await;
    assert_eq!(welcome["sessions"], json!([{"session_id":"s","last_seq":1}]));
    world.stop().await;
}

#[tokio::test]
async fn a_hello_may_share_its_block_with_events() {
    let (world, mut runner) = World::start_silent(tempfile::tempdir().unwrap(), Limits::default()).await;
    let hello = r#"{"type":"runner.hello","runner_id":"r1","hostname":"h","harnesses":[],"max_sessions":1,"version":"1","os":"linux"}"#;
    runner.say(&format!("{}\n{hello}\n{}", created("early"), created("s"))).await;
    let ack = runner.line_of("ack").await;
    assert_eq!(
        (&ack["session_id"], &ack["seq"]),
        (&json!("s"), &json!(1)),
        "only what follows the hello counts"
    );
    assert!(world.stored("early").await.is_none());
    let mut client = world.client().await;
    client.attach(&mut runner, "s", Some(1), 1).await;
    world.stop().await;
}

#[tokio::test]
async fn a_record_twice_in_one_block_is_acked_after_its_commit() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    world.store.set_full_for_tests(true).await.unwrap();
    let line = record("s", 2, "notify", &format!(",\"message\":\"{}\"", "x".repeat(400_000)));
    let mut client = world.client().await;
    runner.say(&format!("{line}\n{line}")).await;
    told_of_the_disk(&mut client).await;
    // The answer to a command comes after anything the hub had to say before it.
    client.command("p", "s", "prompt", json!({"message":"m"})).await;
    let kinds = runner.kinds_until("command").await;
    assert_eq!(kinds, ["command"], "acked before it was stored");
    world.store.set_full_for_tests(false).await.unwrap();
    assert_eq!(runner.line_of("ack").await["seq"], 2);
    world.stop().await;
}

#[tokio::test]
async fn events_of_an_unknown_session_are_dropped() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner
        .say(&format!(
            "{}\n{}\n{}",
            delta("gone", 1),
            record("gone", 9, "notify", ""),
            message_end("s", 2, 0)
        ))
        .await;
    assert_fields(&runner.line_of("ack").await, json!({"session_id": "s", "seq": 2}));
    let mut client = world.client().await;
    assert_eq!(client.call("p", "gone", "prompt", json!({"message":"m"})).await["code"], "session_not_found");
    world.stop().await;
}

async fn told_of_the_disk(client: &mut Client) {
    let told = client.next().await;
    assert_fields(&told, json!({"channel": "system", "type": "error", "code": "store_unavailable"}));
}

/// The good news and the records that were held back; a notice has no place among events.
async fn stores_again(client: &mut Client, records: &[u64]) {
    let mut found = Vec::new();
    let mut is_told = false;
    while !is_told || found.len() < records.len() {
        let frame = client.next().await;
        is_told |= frame["message"] == "The hub stores events again";
        found.extend(frame["seq"].as_u64());
    }
    assert_eq!(found, records);
}

#[tokio::test]
async fn a_full_disk_holds_records_back_and_loses_none() {
    let (world, mut runner, mut client) = followed_session().await;
    world.store.set_full_for_tests(true).await.unwrap();
    let filler = "x".repeat(400_000);
    runner.say(&record("s", 2, "notify", &format!(",\"message\":\"{filler}\""))).await;
    told_of_the_disk(&mut client).await;
    runner.say(&message_end("s", 3, 0)).await;
    // Commands that need no store still work while the disk is full.
    assert_eq!(client.ask(&json!({"channel":"agent","id":"r","cmd":"get_runners"})).await["id"], "r");
    world.store.set_full_for_tests(false).await.unwrap();
    stores_again(&mut client, &[2, 3]).await;
    while runner.line_of("ack").await["seq"] != 3 {}
    client.command("m", "s", "get_messages", json!({})).await;
    assert_eq!(client.next().await["data"]["total"], 1, "the effect came with the second try");
    world.stop().await;
}

#[tokio::test]
async fn answers_do_not_wait_for_a_full_disk() {
    let (world, mut runner, mut client) = followed_session().await;
    for id in ["with", "after"] {
        client.command(id, "s", "prompt", json!({"message":id})).await;
    }
    let (with, after) = (runner.command().await, runner.command().await);
    world.store.set_full_for_tests(true).await.unwrap();
    let filler = record("s", 2, "notify", &format!(",\"message\":\"{}\"", "x".repeat(400_000)));
    // One answer shares the failing batch, the other comes when the failure is known.
    runner.say(&format!("{filler}\n{}", answer(&with, "{}"))).await;
    told_of_the_disk(&mut client).await;
    assert_eq!(client.next().await["id"], "with");
    runner.answer(&after, "{}").await;
    assert_eq!(client.next().await["id"], "after");
    world.store.set_full_for_tests(false).await.unwrap();
    stores_again(&mut client, &[2]).await;
    world.stop().await;
}

#[tokio::test]
async fn one_record_the_tables_refuse_spoils_no_other() {
    let (world, mut runner, mut client) = followed_session().await;
    // The title is refused by the database; what stands beside it in the batch is not.
    world.store.refuse_for_tests().await.unwrap();
    let title = record("s", 3, "session.title_changed", r#","title":"bad""#);
    runner.say(&format!("{}\n{title}\n{}", message_end("s", 2, 0), message_end("s", 4, 1))).await;
    for seq in 2..=4 {
        assert_eq!(client.next().await["seq"], seq);
    }
    while runner.line_of("ack").await["seq"] != 4 {}
    assert_eq!(world.store.records_after("s", 1, 10, 1 << 20).await.unwrap().len(), 3);
    assert_eq!(world.store.messages_page("s", None, 10).await.unwrap().total, 2);
    world.stop().await;
}

#[tokio::test]
async fn sessions_do_not_wait_for_each_others_commits() {
    let (world, mut runner, mut client) = followed_session().await;
    runner.create("t").await;
    world.store.set_full_for_tests(true).await.unwrap();
    let filler = "x".repeat(400_000);
    runner.say(&record("t", 2, "notify", &format!(",\"message\":\"{filler}\""))).await;
    told_of_the_disk(&mut client).await;
    runner.say(&delta("s", 5)).await;
    assert_eq!(client.next().await["delta"], "5");
    world.stop().await;
}

#[tokio::test]
async fn the_store_can_be_opened_again_after_all_this() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.say(&message_end("s", 2, 0)).await;
    while runner.line_of("ack").await["seq"] != 2 {}
    let directory = world.end().await;
    let store = HubStore::open(&directory.path().join("hub.db"), StoreOptions::default()).unwrap();
    assert_eq!(store.messages_page("s", None, 10).await.unwrap().total, 1);
}
