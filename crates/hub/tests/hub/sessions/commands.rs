use std::time::Duration;

use qd_hub::Limits;
use serde_json::json;

use crate::support::{World, answer, created, delta, message_end, world_with_session};

#[tokio::test]
async fn a_command_reaches_the_runner_and_its_answer_comes_back_byte_for_byte() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client
        .send_text("{\"channel\":\"agent\",\"id\":[\"odd\", 1],\"session_id\":\"s\",\"cmd\":\"prompt\",\"user_id\":\"root\",\n\"message\":\"hé\\n\",\"x\":{\n\"a\":1.50}}")
        .await;
    let command = runner.command().await;
    assert_eq!(command["user_id"], "owner", "a client cannot choose who it is");
    assert_eq!(command["client_command_id"], "[\"odd\", 1]");
    assert_eq!((&command["message"], &command["connection_id"]), (&json!("hé\n"), &json!("c1")));
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
    let command = runner.command().await;
    runner.answer(&command, "{}").await;
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
        client.command("x", session, cmd, json!({"before":"seven","after":"seven"})).await;
        let response = client.next().await;
        assert_eq!(
            (&response["id"], &response["cmd"], &response["success"]),
            (&json!("x"), &json!(cmd), &json!(false))
        );
        assert_eq!(response["code"], code, "{response}");
        assert_eq!(response["event"], "response");
    }
    client.send(&json!({"channel":"agent","cmd":"prompt"})).await;
    let response = client.next().await;
    assert!(response.get("id").is_none());
    assert_eq!(response["code"], "invalid_request", "{response}");
    client.command("y", "s", "prompt", json!({"runner_id":"other"})).await;
    assert_eq!(client.next().await["code"], "wrong_runner");
    world.stop().await;
}

#[tokio::test]
async fn a_late_or_lost_runner_is_answered_for() {
    let limits = Limits { command_timeout: Some(Duration::from_millis(100)), ..Limits::default() };
    let (world, mut runner) = world_with_session(limits).await;
    let mut client = world.client().await;
    client.command("late", "s", "get_state", json!({})).await;
    let late = runner.command().await;
    let response = client.next().await;
    assert_eq!((&response["id"], &response["success"]), (&json!("late"), &json!(false)));
    assert_eq!(response["code"], "timed_out", "{response}");
    runner.answer(&late, "{}").await;
    client.command("lost", "s", "prompt", json!({"message":"m"})).await;
    runner.command().await;
    drop(runner);
    let response = client.next().await;
    assert_eq!((&response["id"], &response["indeterminate"]), (&json!("lost"), &json!(true)));
    assert_eq!(response["code"], "indeterminate", "{response}");
    client.command("dead", "s", "prompt", json!({"message":"m"})).await;
    assert_eq!(client.next().await["code"], "runner_offline");
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
    let refused = client.next().await;
    assert_eq!(refused["id"], "d");
    assert_eq!((&refused["code"], &refused["limit"]), (&json!("too_many_in_flight"), &json!(3)), "{refused}");
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
    client.command("m", "s", "get_messages", json!({"limit":2})).await;
    let data = client.next().await["data"].clone();
    assert_eq!((&data["total"], &data["before"]), (&json!(5), &json!(3)));
    assert_eq!((&data["messages"][0]["id"], &data["messages"][1]["id"]), (&json!("m3"), &json!("m4")));
    client.command("m", "s", "get_messages", json!({"before":3})).await;
    let data = client.next().await["data"].clone();
    assert_eq!((data["messages"].as_array().unwrap().len(), data.get("before")), (3, None));

    client.send(&json!({"channel":"agent","id":"l","cmd":"list_sessions"})).await;
    let session = client.next().await["data"]["sessions"][0].clone();
    assert_eq!(
        (&session["session_id"], &session["harness"], &session["cwd"]),
        (&json!("s"), &json!("demo"), &json!("/w"))
    );
    assert_eq!(
        (&session["message_count"], &session["seq"], &session["state"]),
        (&json!(5), &json!(6), &json!("idle"))
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
    assert_eq!((&barrier["cmd"], &barrier["depends_on"]), (&json!("_barrier"), &json!(["p"])));
    assert_eq!(barrier["client_command_id"], "q");
    runner.answer(&barrier, "null").await;
    let response = client.next().await;
    assert_eq!(
        (&response["id"], &response["cmd"], &response["data"]["total"]),
        (&json!("q"), &json!("get_messages"), &json!(0))
    );
    client.command("q2", "s", "get_messages", json!({"depends_on":["p"]})).await;
    let barrier = runner.command().await;
    runner
        .say(&answer(&barrier, "null").replace(
            "\"success\":true,\"data\":null",
            "\"success\":false,\"error\":\"no\",\"code\":\"dependency_failed\"",
        ))
        .await;
    let response = client.next().await;
    assert_eq!((&response["cmd"], &response["code"]), (&json!("get_messages"), &json!("dependency_failed")));
    world.stop().await;
}

#[tokio::test]
async fn a_read_or_detach_with_a_version_asks_the_runner_first() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.attach(&mut runner, "s", Some(1), 1).await;
    for cmd in ["get_messages", "session.detach"] {
        client.command("v", "s", cmd, json!({"if_session_version":7})).await;
        let barrier = runner.command().await;
        assert_eq!(
            (&barrier["cmd"], &barrier["if_session_version"], &barrier["session_id"]),
            (&json!("_barrier"), &json!(7), &json!("s"))
        );
        let refused = answer(&barrier, "null").replace(
            "\"success\":true,\"data\":null",
            "\"success\":false,\"error\":\"no\",\"code\":\"version_mismatch\"",
        );
        runner.say(&refused).await;
        let response = client.next().await;
        assert_eq!((&response["cmd"], &response["code"]), (&json!(cmd), &json!("version_mismatch")));
    }
    runner.say(&delta("s", 1)).await;
    assert_eq!(client.next().await["delta"], "1", "still attached");
    client.command("v", "s", "session.detach", json!({"if_session_version":8})).await;
    let barrier = runner.command().await;
    runner.answer(&barrier, "null").await;
    assert_eq!(client.next().await["success"], true);
    runner.say(&delta("s", 2)).await;
    client.command("r", "_system", "get_runners", json!({})).await;
    assert_eq!(client.next().await["id"], "r");
    world.stop().await;
}

#[tokio::test]
async fn a_command_may_depend_on_what_the_hub_answered() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut client = world.client().await;
    client.command("hub", "s", "get_messages", json!({})).await;
    assert_eq!(client.next().await["success"], true);
    client.command("a", "s", "prompt", json!({"message":"m","depends_on":["hub","theirs"]})).await;
    assert_eq!(runner.command().await["depends_on"], json!(["theirs"]));
    client.command("b", "s", "prompt", json!({"message":"m","depends_on":["hub"]})).await;
    assert!(runner.command().await.get("depends_on").is_none());
    client.command("bad", "s", "get_messages", json!({"before":"x"})).await;
    assert_eq!(client.next().await["success"], false);
    client.command("c", "s", "prompt", json!({"message":"m","depends_on":["bad"]})).await;
    let response = client.next().await;
    assert_eq!((&response["id"], &response["success"]), (&json!("c"), &json!(false)));
    assert_eq!(response["code"], "dependency_failed", "{response}");
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
    other.command("l", "_system", "list_sessions", json!({})).await;
    assert_eq!(other.next().await["id"], "l");
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
    let response = client.next().await;
    assert_eq!(
        (&response["id"], &response["data"]["session_id"], &response["data"]["messages"]),
        (&json!("c"), &json!("n"), &json!([]))
    );
    assert_eq!(client.next().await["delta"], "1");
    let told: serde_json::Value = serde_json::from_str(&other.next_text().await).unwrap();
    assert_eq!(
        (&told["type"], &told["session_id"], &told["change"]),
        (&json!("session.changed"), &json!("n"), &json!("created"))
    );

    client.command("d", "n", "session.delete", json!({})).await;
    let command = runner.command().await;
    runner.answer(&command, "{}").await;
    assert_eq!(client.next().await["id"], "d");
    assert!(world.stored("n").await.is_none());
    let told: serde_json::Value = serde_json::from_str(&other.next_text().await).unwrap();
    assert_eq!(told["change"], "deleted");
    client.command("p", "n", "prompt", json!({"message":"m"})).await;
    assert_eq!(client.next().await["code"], "session_not_found");
    world.stop().await;
}
