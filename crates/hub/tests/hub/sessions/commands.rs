use std::time::Duration;

use qd_hub::Limits;
use serde_json::json;

use crate::support::{
    World, assert_fields, created, delta, followed_session, message_end, world_with_session,
};

#[tokio::test]
async fn a_command_reaches_the_runner_and_its_answer_comes_back_byte_for_byte() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client
        .send_text("{\"channel\":\"agent\",\"id\":[\"odd\", 1],\"session_id\":\"s\",\"cmd\":\"prompt\",\"user_id\":\"root\",\n\"message\":\"hé\\n\",\"x\":{\n\"a\":1.50}}")
        .await;
    let command = runner.command().await;
    assert_eq!(command["user_id"], "owner", "a client cannot choose who it is");
    assert_fields(
        &command,
        json!({"client_command_id": "[\"odd\", 1]", "message": "hé\n",
        "connection_id": "c1"}),
    );
    assert!(command.get("channel").is_none());
    runner.answer(&command, "{\"n\": 1.50 , \"u\":\"\\u00e9\"}").await;
    assert_eq!(
        client.next_text().await,
        "{\"channel\":\"agent\",\"event\":\"response\",\"id\":[\"odd\", 1],\"session_id\":\"s\",\"runner_id\":\"r1\",\
         \"ts\":2,\"cmd\":\"prompt\",\"success\":true,\"data\":{\"n\": 1.50 , \"u\":\"\\u00e9\"}}"
    );
    // A second answer to the same command goes nowhere.
    runner.answer(&command, "{}").await;
    client.command("b", "s", "get_state", json!({})).await;
    runner.answer_next("{}").await;
    assert_eq!(client.next().await["id"], "b");
    world.stop().await;
}

#[tokio::test]
async fn commands_that_cannot_be_sent_are_answered_at_once() {
    let (world, _runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    for (session, cmd, code) in [
        ("nope", "prompt", "session_not_found"),
        ("s", "fly", "unknown_command"),
        ("s", "get_messages", "invalid_request"),
        ("s", "session.attach", "invalid_request"),
    ] {
        let response = client.call("x", session, cmd, json!({"before":"seven","after":"seven"})).await;
        assert_fields(
            &response,
            json!({"id": "x", "cmd": cmd, "success": false, "code": code,
            "event": "response"}),
        );
    }
    let response = client.ask(&json!({"channel":"agent","cmd":"prompt"})).await;
    assert!(response.get("id").is_none());
    assert_eq!(response["code"], "invalid_request", "{response}");
    assert_eq!(client.call("y", "s", "prompt", json!({"runner_id":"other"})).await["code"], "wrong_runner");
    world.stop().await;
}

#[tokio::test]
async fn a_late_or_lost_runner_is_answered_for() {
    let limits = Limits { command_timeout: Some(Duration::from_millis(100)), ..Limits::default() };
    let (world, mut runner) = world_with_session(limits).await;
    let mut client = world.client().await;
    client.command("late", "s", "get_state", json!({})).await;
    let late = runner.command().await;
    assert_fields(&client.next().await, json!({"id": "late", "success": false, "code": "timed_out"}));
    runner.answer(&late, "{}").await;
    client.command("lost", "s", "prompt", json!({"message":"m"})).await;
    runner.command().await;
    drop(runner);
    let response = client.next().await;
    assert_fields(&response, json!({"id": "lost", "indeterminate": true, "code": "indeterminate"}));
    assert_eq!(client.call("dead", "s", "prompt", json!({"message":"m"})).await["code"], "runner_offline");
    client.command("list", "_system", "list_sessions", json!({})).await;
    assert_eq!(client.next().await["data"]["sessions"][0]["state"], "offline");
    world.stop().await;
}

#[tokio::test]
async fn a_connection_has_so_many_commands_in_flight_and_no_more() {
    let (world, mut runner) = world_with_session(Limits { in_flight_max: 3, ..Limits::default() }).await;
    let mut client = world.client().await;
    for id in ["a", "b", "c", "d"] {
        client.command(id, "s", "prompt", json!({"message":id})).await;
    }
    assert_fields(&client.next().await, json!({"id": "d", "code": "too_many_in_flight", "limit": 3}));
    for id in ["a", "b", "c"] {
        let command = runner.command().await;
        assert_eq!(command["message"], id);
        runner.answer(&command, "{}").await;
        assert_eq!(client.next().await["id"], id);
    }
    client.command("e", "s", "prompt", json!({"message":"e"})).await;
    assert_eq!(runner.command().await["message"], "e");
    world.stop().await;
}

#[tokio::test]
async fn the_hub_answers_from_its_copies() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let lines: Vec<_> = (0..5).map(|idx| message_end("s", idx + 2, idx)).collect();
    runner.say(&lines.join("\n")).await;
    while runner.line_of("ack").await["seq"] != 6 {}
    let mut client = world.client().await;
    let data = client.call("m", "s", "get_messages", json!({"limit":2})).await["data"].clone();
    assert_fields(&data, json!({"total": 5, "before": 3, "messages.0.id": "m3", "messages.1.id": "m4"}));
    let data = client.call("m", "s", "get_messages", json!({"before":3})).await["data"].clone();
    assert_eq!((data["messages"].as_array().unwrap().len(), data.get("before")), (3, None));

    client.send(&json!({"channel":"agent","id":"l","cmd":"list_sessions"})).await;
    let session = client.next().await["data"]["sessions"][0].clone();
    assert_fields(
        &session,
        json!({"session_id": "s", "harness": "demo", "cwd": "/w", "message_count": 5,
        "seq": 6, "state": "idle"}),
    );
    client.send(&json!({"channel":"agent","id":"r","cmd":"get_runners"})).await;
    let runners = client.next().await["data"]["runners"].clone();
    assert_eq!((&runners[0]["runner_id"], &runners[0]["status"]), (&json!("r1"), &json!("online")));
    client.send(&json!({"channel":"agent","id":"f","cmd":"search","query":"word3"})).await;
    let hits = client.next().await["data"]["hits"].clone();
    assert_eq!((hits.as_array().unwrap().len(), &hits[0]["message_id"]), (1, &json!("m3")));
    world.stop().await;
}

#[tokio::test]
async fn a_read_with_dependencies_waits_for_the_runner() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.command("q", "s", "get_messages", json!({"depends_on":["p"]})).await;
    let barrier = runner.command().await;
    assert_fields(&barrier, json!({"cmd": "_barrier", "depends_on": ["p"], "client_command_id": "q"}));
    runner.answer(&barrier, "null").await;
    assert_fields(&client.next().await, json!({"id": "q", "cmd": "get_messages", "data.total": 0}));
    client.command("q2", "s", "get_messages", json!({"depends_on":["p"]})).await;
    let barrier = runner.command().await;
    runner.refuse_as(&barrier, "no", "dependency_failed").await;
    assert_fields(&client.next().await, json!({"cmd": "get_messages", "code": "dependency_failed"}));
    world.stop().await;
}

#[tokio::test]
async fn a_read_or_detach_with_a_version_asks_the_runner_first() {
    let (world, mut runner, mut client) = followed_session().await;
    for cmd in ["get_messages", "session.detach"] {
        client.command("v", "s", cmd, json!({"if_session_version":7})).await;
        let barrier = runner.command().await;
        assert_fields(&barrier, json!({"cmd": "_barrier", "if_session_version": 7, "session_id": "s"}));
        runner.refuse_as(&barrier, "no", "version_mismatch").await;
        assert_fields(&client.next().await, json!({"cmd": cmd, "code": "version_mismatch"}));
    }
    runner.say(&delta("s", 1)).await;
    assert_eq!(client.next().await["delta"], "1", "still attached");
    client.command("v", "s", "session.detach", json!({"if_session_version":8})).await;
    runner.answer_next("null").await;
    assert_eq!(client.next().await["success"], true);
    runner.say(&delta("s", 2)).await;
    assert_eq!(client.call("r", "_system", "get_runners", json!({})).await["id"], "r");
    world.stop().await;
}

#[tokio::test]
async fn a_command_may_depend_on_what_the_hub_answered() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    assert_eq!(client.call("hub", "s", "get_messages", json!({})).await["success"], true);
    client.command("a", "s", "prompt", json!({"message":"m","depends_on":["hub","theirs"]})).await;
    assert_eq!(runner.command().await["depends_on"], json!(["theirs"]));
    client.command("b", "s", "prompt", json!({"message":"m","depends_on":["hub"]})).await;
    assert!(runner.command().await.get("depends_on").is_none());
    assert_eq!(client.call("bad", "s", "get_messages", json!({"before":"x"})).await["success"], false);
    client.command("c", "s", "prompt", json!({"message":"m","depends_on":["bad"]})).await;
    assert_fields(&client.next().await, json!({"id": "c", "success": false, "code": "dependency_failed"}));
    // The name goes to a command of the runner's: now that one counts.
    client.command("hub", "s", "prompt", json!({"message":"m"})).await;
    runner.command().await;
    client.command("d", "s", "prompt", json!({"message":"m","depends_on":["hub"]})).await;
    assert_eq!(runner.command().await["depends_on"], json!(["hub"]));
    world.stop().await;
}

#[tokio::test]
async fn create_attaches_and_delete_forgets() {
    let (world, mut runner) = World::start().await;
    let mut client = world.client().await;
    let mut other = world.client().await;
    // News of the list comes to who has asked for the list.
    assert_eq!(other.call("l", "_system", "list_sessions", json!({})).await["id"], "l");
    client
        .send(&json!({"channel":"agent","id":"c","cmd":"session.create","config":{"harness":"demo"}}))
        .await;
    let command = runner.command().await;
    assert!(command.get("session_id").is_none());
    let response = format!(
        r#"{{"type":"response","id":{},"session_id":"n","runner_id":"r1","ts":2,"cmd":"session.create","success":true,"data":{{"session_id":"n","resume":"ok","seq":1,"state":{{}},"pending_input":[]}}}}"#,
        command["id"]
    );
    runner.say(&format!("{}\n{response}\n{}", created("n"), delta("n", 1))).await;
    assert_fields(&client.next().await, json!({"id": "c", "data.session_id": "n", "data.messages": []}));
    assert_eq!(client.next().await["delta"], "1");
    let told: serde_json::Value = serde_json::from_str(&other.next_text().await).unwrap();
    assert_fields(&told, json!({"type": "session.changed", "session_id": "n", "change": "created"}));

    client.command("d", "n", "session.delete", json!({})).await;
    runner.answer_next("{}").await;
    assert_eq!(client.next().await["id"], "d");
    assert!(world.stored("n").await.is_none());
    let told: serde_json::Value = serde_json::from_str(&other.next_text().await).unwrap();
    assert_eq!(told["change"], "deleted");
    assert_eq!(client.call("p", "n", "prompt", json!({"message":"m"})).await["code"], "session_not_found");
    world.stop().await;
}
