//! Many runners: how they are shown, where commands go, and what happens while one is away.

use std::time::Duration;

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{
    Client, Runner, World, assert_fields, attach_data, created, delta, message_end, record, soon,
    world_with_session,
};

/// A hub whose runner `far` has the session `t` with two records, and is away.
async fn away_world() -> World {
    let (world, _local) = World::start().await;
    drop(with_messages(&world).await);
    world.is_shown("far", "offline").await;
    world
}

/// The runner `far`, whose session `t` has two records.
async fn with_messages(world: &World) -> Runner {
    let (mut far, _) = world.come("far", &[]).await;
    far.say(&format!("{}\n{}", created("t"), message_end("t", 2, 0))).await;
    while far.line_of("ack").await["seq"] != 2 {}
    far
}

#[tokio::test]
async fn runners_are_shown_with_all_that_is_known_of_them() {
    let limits = Limits { runner_silence_max: Duration::from_millis(300), ..Limits::default() };
    let (world, _local) = World::start_with(limits).await;
    let mut client = world.client().await;
    let (far, _) = world.come_with("far", &["demo", "pi"], 7, &[]).await;
    let told = client.runner_changed("far").await;
    let info = &told["runner"];
    assert_eq!((&told["status"], &info["status"]), (&json!("online"), &json!("online")));
    assert_fields(
        info,
        json!({"harnesses": ["demo", "pi"], "max_sessions": 7, "joined_at": 7,
        "hostname": "h", "os": "linux"}),
    );
    assert_fields(&client.runner_changed("far").await, json!({"status": "unhealthy"}));
    far.heartbeat("far", 3, 1.5).await;
    assert_fields(&client.runner_changed("far").await, json!({"runner.status": "online"}));
    soon("the heartbeat to be shown", async {
        loop {
            far.heartbeat("far", 3, 1.5).await;
            let far = world.is_shown("far", "online").await;
            if far["load"]["agents"] == 3 {
                assert!(far["last_seen"].as_i64().unwrap() > 0);
                return;
            }
        }
    })
    .await;
    drop(far);
    while client.runner_changed("far").await["status"] != "offline" {}
    let row = world.store.runner("far").await.unwrap().unwrap();
    assert_eq!((row.max_sessions, &*row.harnesses_json), (7, r#"["demo","pi"]"#));
    assert!(row.last_seen_at.is_some());

    let directory = world.end().await;
    // After a restart it is known and away.
    let (world, _local) = World::start_in(directory, Limits::default()).await;
    let far = world.is_shown("far", "offline").await;
    assert_eq!((&far["harnesses"], &far["version"]), (&json!(["demo", "pi"]), &json!("1")));
    world.stop().await;
}

async fn create(client: &mut Client, harness: &str, rest: Value) {
    let mut frame = json!({"channel":"agent","id":"c","cmd":"session.create","config":{"harness":harness}});
    frame.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    client.send(&frame).await;
}

async fn code_of(client: &mut Client) -> String {
    let response = client.next().await;
    assert_eq!(response["success"], false, "{response}");
    response["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_new_session_goes_to_the_least_loaded_runner_that_can_take_it() {
    let (world, mut local) = World::start().await;
    let mut client = world.client().await;
    let (mut one, _) = world.come_with("one", &["demo", "pi"], 2, &[]).await;
    world.is_shown("one", "online").await;
    local.heartbeat("r1", 3, 0.0).await;
    one.heartbeat("one", 1, 9.0).await;
    soon("both heartbeats", async {
        while world.is_shown("r1", "online").await["load"]["agents"] != 3 {}
        while world.is_shown("one", "online").await["load"]["agents"] != 1 {}
    })
    .await;
    // 1 of 2 is less than 3 of 4; what is sent since the heartbeat counts.
    create(&mut client, "demo", json!({})).await;
    let first = one.command().await;
    create(&mut client, "demo", json!({})).await;
    local.command().await;
    create(&mut client, "demo", json!({})).await;
    assert_eq!(code_of(&mut client).await, "limit_reached");
    create(&mut client, "pi", json!({})).await;
    assert_eq!(code_of(&mut client).await, "limit_reached");
    // A create that failed leaves its place.
    one.refuse(&first, "no").await;
    assert_eq!(code_of(&mut client).await, "failed");
    create(&mut client, "pi", json!({})).await;
    assert_eq!(one.command().await["config"]["harness"], "pi");
    create(&mut client, "codex", json!({})).await;
    assert_eq!(code_of(&mut client).await, "harness_not_found");
    create(&mut client, "demo", json!({"runner_id":"nowhere"})).await;
    assert_eq!(code_of(&mut client).await, "runner_not_found");
    create(&mut client, "demo", json!({"runner_id":"one"})).await;
    assert_eq!(one.command().await["runner_id"], "one", "whom a person names decides for itself");
    drop(one);
    world.is_shown("one", "offline").await;
    while client.next().await["indeterminate"] != true {}
    create(&mut client, "pi", json!({})).await;
    let response = client.until(|response| response.get("indeterminate").is_none()).await;
    assert_eq!(response["code"], "runner_offline");
    world.stop().await;
}

#[tokio::test]
async fn a_command_may_wait_for_its_runner() {
    let world = away_world().await;
    let mut client = world.client().await;
    client.command("now", "t", "prompt", json!({"message":"m"})).await;
    assert_eq!(code_of(&mut client).await, "runner_offline");
    client.command("bad", "t", "prompt", json!({"message":"m","wait":"yes"})).await;
    assert_eq!(code_of(&mut client).await, "invalid_request");
    client.command("late", "t", "prompt", json!({"message":"m","wait":true,"wait_ms":1})).await;
    assert_eq!(code_of(&mut client).await, "runner_offline");

    for id in ["a", "b"] {
        client.command(id, "t", "prompt", json!({"message":id,"wait":true,"depends_on":[]})).await;
    }
    create(&mut client, "pi", json!({"wait":true,"runner_id":"far"})).await;
    let mut goer = world.client().await;
    goer.command("gone", "t", "prompt", json!({"message":"gone","wait":true})).await;
    assert_eq!(goer.call("r", "_system", "get_runners", json!({})).await["id"], "r");
    drop(goer);
    soon("the other client to go", async { while world.connections().await != 1 {} }).await;
    let (mut far, _) = world.come("far", &[("t", 2)]).await;
    for message in ["a", "b"] {
        let command = far.command().await;
        assert_eq!((&command["message"], command.get("wait")), (&json!(message), None));
        far.answer(&command, "{}").await;
        assert_eq!(client.next().await["id"], message);
    }
    assert_eq!(far.command().await["cmd"], "session.create");
    client.command("last", "t", "prompt", json!({"message":"last"})).await;
    assert_eq!(far.command().await["message"], "last", "who has gone is not sent");
    world.stop().await;
}

#[tokio::test]
async fn waiting_commands_are_in_flight() {
    let (world, _runner) = World::start_with(Limits { in_flight_max: 2, ..Limits::default() }).await;
    let (mut far, _) = world.come("far", &[]).await;
    far.create("t").await;
    drop(far);
    world.is_shown("far", "offline").await;
    let mut client = world.client().await;
    for id in ["a", "b", "c"] {
        client.command(id, "t", "prompt", json!({"message":"m","wait":true,"wait_ms":200})).await;
    }
    assert_eq!(code_of(&mut client).await, "too_many_in_flight");
    for _ in ["a", "b"] {
        assert_eq!(code_of(&mut client).await, "runner_offline");
    }
    world.stop().await;
}

#[tokio::test]
async fn a_session_can_be_followed_while_its_runner_is_away() {
    let world = away_world().await;
    let mut client = world.client().await;
    let state = client.call("g", "t", "get_state", json!({})).await["data"].clone();
    assert_fields(&state, json!({"status": "offline", "harness": "demo", "cwd": "/w"}));
    let data = client.call("a", "t", "session.attach", json!({})).await["data"].clone();
    assert_fields(
        &data,
        json!({"resume": "ok", "seq": 2, "state.status": "offline", "messages.0.id": "m0",
        "pending_input": []}),
    );
    let data = client.call("a", "t", "session.attach", json!({"after":9})).await["data"].clone();
    assert_eq!((&data["resume"], data["messages"].as_array().unwrap().len()), (&json!("gap"), 1));
    let data = client.call("a", "t", "session.attach", json!({"after":1})).await["data"].clone();
    assert_eq!((&data["resume"], data.get("messages")), (&json!("ok"), None));
    assert_eq!(client.next().await["seq"], 2, "what the client lacks comes from the store");

    let (mut far, _) = world.come("far", &[("t", 2)]).await;
    far.say(&format!("{}\n{}", record("t", 3, "notify", ""), delta("t", 1))).await;
    assert_eq!(client.next().await["seq"], 3);
    assert_eq!(client.next().await["delta"], "1");
    far.answer_next(&attach_data(3, "ok")).await;
    let resync = client.next().await;
    assert_eq!((&resync["event"], &resync["state"]["status"]), (&json!("session.resync"), &json!("idle")));
    far.record("t", 4, "notify", "").await;
    assert_eq!(client.next().await["seq"], 4);
    world.stop().await;
}

async fn delete(client: &mut Client, session: &str) {
    client.command("d", session, "session.delete", json!({})).await;
    assert_fields(&client.next().await, json!({"id": "d", "success": true}));
}

#[tokio::test]
async fn a_session_deleted_while_its_runner_is_away_stays_deleted() {
    let world = away_world().await;
    let mut client = world.client().await;
    assert_eq!(client.call("a", "t", "session.attach", json!({"after":2})).await["success"], true);
    delete(&mut client, "t").await;
    assert!(world.stored("t").await.is_none());
    client.command("p", "t", "prompt", json!({"message":"m"})).await;
    assert_eq!(code_of(&mut client).await, "session_not_found");
    client.command("c", "t", "session.create", json!({"runner_id":"r1","config":{"harness":"demo"}})).await;
    assert_eq!(code_of(&mut client).await, "conflict");

    let directory = world.end().await;
    let (world, _local) = World::start_in(directory, Limits::default()).await;
    for other in ["u", "v"] {
        let (mut far, welcome) = world.come("far", &[("t", 5)]).await;
        assert!(!welcome.to_string().contains("\"t\""), "{welcome}");
        far.say(&format!("{}\n{}\n{}", created("t"), record("t", 3, "notify", ""), created(other))).await;
        let order = far.command().await;
        assert_fields(&order, json!({"cmd": "session.delete", "session_id": "t", "id": "bury:t"}));
        assert_eq!(far.line_of("ack").await["session_id"], other, "events of the deleted one are skipped");
        assert_eq!(world.store.deleted_sessions_of("far").await.unwrap(), ["t"]);
    }
    let (mut far, _) = world.come("far", &[("t", 5), ("u", 1), ("v", 1)]).await;
    far.answer_next("null").await;
    soon("the name to be free", async {
        while !world.store.deleted_sessions_of("far").await.unwrap().is_empty() {}
    })
    .await;
    assert!(world.stored("t").await.is_none());
    world.stop().await;
}

#[tokio::test]
async fn a_tombstone_goes_when_the_runner_no_longer_has_the_session() {
    let world = away_world().await;
    delete(&mut world.client().await, "t").await;
    let (mut far, _) = world.come("far", &[]).await;
    assert!(world.store.deleted_sessions_of("far").await.unwrap().is_empty());
    far.say(&created("t")).await;
    assert_eq!(far.line_of("ack").await["session_id"], "t", "the name is free again");
    world.stop().await;
}

#[tokio::test]
async fn the_sessions_of_a_revoked_runner_can_be_read_and_deleted() {
    let (world, _local) = World::start().await;
    let mut far = with_messages(&world).await;
    assert_eq!(world.api("DELETE", "/api/runners/far").await.0, 200);
    let last = far.ended().await.pop().unwrap();
    assert_eq!(last["type"], "runner.refused", "{last}");
    let shown = world.is_shown("far", "offline").await;
    assert!(shown["revoked_at"].as_i64().is_some());
    let mut client = world.client().await;
    assert_eq!(client.call("a", "t", "session.attach", json!({})).await["data"]["messages"][0]["id"], "m0");
    assert_eq!(client.call("m", "t", "get_messages", json!({})).await["data"]["total"], 1);
    delete(&mut client, "t").await;
    world.stop().await;
}

#[tokio::test]
async fn attaches_on_their_way_count_as_attached() {
    let (world, mut runner) = world_with_session(Limits { attachments_max: 2, ..Limits::default() }).await;
    for session in ["t", "u"] {
        runner.create(session).await;
    }
    let mut client = world.client().await;
    for session in ["s", "t", "u"] {
        client.command(session, session, "session.attach", json!({"after":1})).await;
    }
    assert_fields(&client.next().await, json!({"id": "u", "code": "limit_reached"}));
    // One that fails leaves its place; one that succeeds keeps it.
    runner.refuse_next("no").await;
    assert_eq!(client.next().await["code"], "failed");
    runner.attach(1, "ok").await;
    assert_eq!(client.next().await["id"], "t");
    client.command("u", "u", "session.attach", json!({"after":1})).await;
    runner.attach(1, "ok").await;
    assert_eq!(client.next().await["success"], true);
    client.command("s", "s", "session.attach", json!({"after":1})).await;
    assert_eq!(code_of(&mut client).await, "limit_reached");
    world.stop().await;
}
