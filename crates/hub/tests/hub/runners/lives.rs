//! Sessions that go and come back under the same name.

use qd_hub::Limits;
use serde_json::json;

use crate::support::{
    World, answer, attach_data, created, delta, message_end, record, soon, world_with_session,
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
        let response = client.next().await;
        assert_eq!((&response["id"], &response["success"]), (&json!("c"), &json!(true)));
        assert_eq!(response["data"]["messages"][0]["id"], "m7", "{response}");
        assert_eq!(client.next().await["delta"], "9");
        runner.record("s", 3, "notify", "").await;
        assert_eq!(client.next().await["seq"], 3);
        let stored = world.store.records_after("s", 0, 10, 1 << 20).await.unwrap();
        assert_eq!(stored.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(world.store.messages_page("s", None, 10).await.unwrap().total, 1);
        // Who followed the old one saw its end and nothing of the new one.
        assert_eq!(old.next().await["event"], "session.closed");
        old.command("r", "_system", "get_runners", json!({})).await;
        assert_eq!(old.next().await["id"], "r");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_session_only_the_hub_knows_can_be_deleted() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.command("d", "s", "session.delete", json!({})).await;
    let command = runner.command().await;
    let refusal = "\"success\":false,\"error\":\"Session 's' not found\"";
    runner.say(&answer(&command, "null").replace("\"success\":true,\"data\":null", refusal)).await;
    let response = client.next().await;
    assert_eq!((&response["id"], &response["success"]), (&json!("d"), &json!(true)), "{response}");
    assert!(world.store.sessions().await.unwrap().is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_session_the_runner_has_lost_may_be_created_anew() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.say(&message_end("s", 2, 0)).await;
    while runner.line_of("ack").await["seq"] != 2 {}
    let World { store, shutdown, server, directory, .. } = world;
    shutdown.cancel();
    soon("the end", server).await.unwrap();
    store.close().await;
    drop(runner);
    // This runner's hello names no session.
    let (world, mut runner) = World::start_in(directory, Limits::default()).await;
    let mut client = world.client().await;
    client.command("l", "_system", "list_sessions", json!({})).await;
    assert_eq!(client.next().await["data"]["sessions"][0]["state"], "dormant");
    runner.say(&created("s")).await;
    let ack = runner.line_of("ack").await;
    assert_eq!((&ack["session_id"], &ack["seq"]), (&json!("s"), &json!(1)));
    assert_eq!(world.store.messages_page("s", None, 10).await.unwrap().total, 0);
    world.stop().await;
}
