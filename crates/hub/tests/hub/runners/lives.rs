//! Sessions that go and come back under the same name.

use qd_hub::Limits;
use serde_json::json;

use crate::support::{
    World, answer, assert_fields, attach_data, created, delta, message_end, record, world_with_session,
};

/// Deletes and creates in one breath, both answered in one block or in two.
#[tokio::test]
async fn a_deleted_session_may_come_again_at_once() {
    for is_one_block in [true, false] {
        let (world, mut runner) = world_with_session(Limits::default()).await;
        let mut client = world.client().await;
        let mut old = world.client().await;
        old.attach(&mut runner, "s", Some(1), 1).await;
        runner.say(&message_end("s", 2, 0)).await;
        assert_eq!(old.next().await["seq"], 2);
        client.command("d", "s", "session.delete", json!({})).await;
        client.command("c", "s", "session.create", json!({"config":{"harness":"demo"}})).await;
        let (delete, create) = (runner.command().await, runner.command().await);
        let lines = [
            record("s", 3, "session.closed", ""),
            answer(&delete, "null"),
            created("s"),
            message_end("s", 2, 7),
            answer(&create, &attach_data(2, "ok").replacen('{', "{\"session_id\":\"s\",", 1)),
            delta("s", 9),
        ];
        if is_one_block {
            runner.say(&lines.join("\n")).await;
        } else {
            for line in &lines {
                runner.say(line).await;
            }
        }
        assert_eq!(client.next().await["id"], "d");
        assert_fields(&client.next().await, json!({"id": "c", "success": true, "data.messages.0.id": "m7"}));
        assert_eq!(client.next().await["delta"], "9");
        runner.record("s", 3, "notify", "").await;
        assert_eq!(client.next().await["seq"], 3);
        let stored = world.store.records_after("s", 0, 10, 1 << 20).await.unwrap();
        assert_eq!(stored.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(world.store.messages_page("s", None, 10).await.unwrap().total, 1);
        // Who followed the old one saw its end and nothing of the new one.
        assert_eq!(old.next().await["event"], "session.closed");
        assert_eq!(old.call("r", "_system", "get_runners", json!({})).await["id"], "r");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_session_only_the_hub_knows_can_be_deleted() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.command("d", "s", "session.delete", json!({})).await;
    runner.refuse_next("Session 's' not found").await;
    assert_fields(&client.next().await, json!({"id": "d", "success": true}));
    assert!(world.store.sessions().await.unwrap().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_session_the_runner_has_lost_may_be_created_anew() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.say(&message_end("s", 2, 0)).await;
    while runner.line_of("ack").await["seq"] != 2 {}
    let directory = world.end().await;
    drop(runner);
    // This runner's hello names no session.
    let (world, mut runner) = World::start_in(directory, Limits::default()).await;
    let mut client = world.client().await;
    client.command("l", "_system", "list_sessions", json!({})).await;
    assert_eq!(client.next().await["data"]["sessions"][0]["state"], "dormant");
    runner.say(&created("s")).await;
    assert_fields(&runner.line_of("ack").await, json!({"session_id": "s", "seq": 1}));
    assert_eq!(world.store.messages_page("s", None, 10).await.unwrap().total, 0);
    world.stop().await;
}
