//! The pi-server face: lifecycle, identity, sessions.

use std::time::Duration;

use qd_hub::PiServerConfig;
use serde_json::{Value, json};

use crate::pi_server::support::{WHOLE, pi_world, relaxed, state};
use crate::support::{Runner, answer, assert_fields, attach_data, created, record};

/// The document fixes the words; the code is ours.
#[track_caller]
fn assert_refused(response: &Value, error: &str, code: &str) {
    assert_eq!((&response["error"], &response["code"]), (&json!(error), &json!(code)), "{response}");
}

#[tokio::test]
async fn a_command_is_accepted_started_finished_and_answered_in_this_order() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let (mut asker, mut other) = (world.pi_client().await, world.pi_client().await);
    asker
        .send(json!({"type":"get_state","id":"a","sessionId":"s","idempotencyKey":"k","dependsOn":[]}))
        .await;
    let started = asker.expect_all(&["command_accepted", "command_started"]).await;
    assert_fields(
        &started[0],
        json!({
        "data": {"commandId":"a","commandType":"get_state","sessionId":"s","dependsOn":[],"idempotencyKey":"k"}}),
    );
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["user_id"]), (&json!("get_state"), &json!("owner")));
    assert!(command.get("idempotency_key").is_none(), "a read needs no name: {command}");
    runner.answer_at(&command, &state("s", 7).to_string(), 7).await;
    let frames = asker.expect_all(&["command_finished", "response"]).await;
    assert_fields(&frames[0], json!({"data.success": true, "data.sessionVersion": 7}));
    let response = &frames[1];
    assert_fields(
        response,
        json!({"id": "a", "command": "get_state", "success": true, "sessionVersion": 7,
        "data.sessionId": "s", "data.createdAt": "1970-01-01T00:00:01.000Z"}),
    );
    let seen = other.expect_all(&["command_accepted", "command_started", "command_finished"]).await;
    assert_eq!(seen[2]["data"]["commandId"], "a");
    world.stop().await;
}

#[tokio::test]
async fn the_same_id_is_replayed_and_another_payload_is_a_conflict() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let prompt = json!({"type":"prompt","id":"p","sessionId":"s","message":"hi"});
    client.send(prompt.clone()).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["streaming_behavior"]), (&json!("prompt"), &json!("follow_up")));
    let uid = command["idempotency_key"].as_str().unwrap().to_owned();
    // The same in flight waits.
    client.send(prompt.clone()).await;
    client.expect_all(&["command_accepted", "command_started", "command_accepted"]).await;
    runner.answer_at(&command, "null", 1).await;
    let frames = client.expect_all(&["command_finished", "response", "command_finished", "response"]).await;
    assert_eq!((frames[1].get("replayed"), &frames[3]["replayed"]), (None, &json!(true)));
    assert_eq!(frames[2]["data"]["replayed"], true);
    assert_eq!((&frames[1]["sessionVersion"], &frames[3]["sessionVersion"]), (&json!(1), &json!(1)));
    // Key order does not matter, and nothing is started.
    client.client.send_text(r#"{"message":"hi","sessionId":"s","id":"p","type":"prompt"}"#).await;
    let frames = client.expect_all(&["command_accepted", "command_finished", "response"]).await;
    assert_eq!((&frames[2]["id"], &frames[2]["replayed"]), (&json!("p"), &json!(true)));
    client.send(json!({"type":"abort","id":"p","sessionId":"s"})).await;
    let frames = client.expect_all(&["command_accepted", "command_finished", "response"]).await;
    let conflict = "Conflicting id 'p': previously used for 'prompt', now used for 'abort'";
    assert_refused(&frames[2], conflict, "idempotency_conflict");
    client.send(json!({"type":"prompt","id":"p2","sessionId":"s","message":"hi"})).await;
    let command = runner.command().await;
    assert_ne!(command["idempotency_key"].as_str().unwrap(), uid);
    runner.refuse(&command, "busy").await;
    assert_refused(&client.response().await, "busy", "failed");
    world.stop().await;
}

#[tokio::test]
async fn two_principals_do_not_share_ids_and_keys_are_not_told_to_others() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let token = world.token_of("ci").await;
    let (mut owner, mut ci) = (world.pi_client().await, world.pi_client_of(&token).await);
    for (client, principal) in [(&mut owner, "owner"), (&mut ci, "ci")] {
        client
            .send(json!({"type":"set_session_name","id":"1","sessionId":"s","name":principal,"idempotencyKey":"k"}))
            .await;
        let command = runner.command().await;
        assert_eq!((&command["user_id"], &command["name"]), (&json!(principal), &json!(principal)));
        runner.answer_at(&command, "null", 1).await;
        let response = client.response().await;
        assert_eq!((&response["success"], response.get("replayed")), (&json!(true), None));
    }
    // The owner sees the other's command, without its key.
    let accepted = owner.client.until(|frame| frame["type"] == "command_accepted").await;
    assert_eq!((&accepted["data"]["commandId"], accepted["data"].get("idempotencyKey")), (&json!("1"), None));
    world.stop().await;
}

#[tokio::test]
async fn what_is_not_admitted_has_a_response_and_nothing_else() {
    let config = PiServerConfig { message_bytes_max: 200, pending_max: 1, ..relaxed() };
    let (world, mut runner) = pi_world(config).await;
    let mut client = world.pi_client().await;
    let great = format!(r#"{{"type":"get_state","x":"{}"}}"#, "y".repeat(200));
    let unknown = "Validation failed: type: Unknown command type 'fly'";
    for (text, command, error, code) in [
        ("{", "unknown", "Invalid JSON", "invalid_request"),
        (r#"{"type":"fly","id":"7"}"#, "fly", unknown, "invalid_request"),
        (&great, "unknown", "Message size 227 exceeds limit 200", "too_large"),
    ] {
        client.client.send_text(text).await;
        let response = client.expect("response").await;
        assert_eq!((&response["command"], &response["success"]), (&json!(command), &json!(false)));
        assert_refused(&response, error, code);
        assert_eq!(response.get("limit"), (code == "too_large").then(|| json!(200)).as_ref());
    }
    client.send(json!({"type":"get_state","x":{"id":"no"},"y":"z".repeat(200),"id":"great"})).await;
    let response = client.expect("response").await;
    assert_eq!((&response["id"], &response["success"]), (&json!("great"), &json!(false)), "{response}");
    client.send(json!({"type":"get_state","sessionId":"s"})).await;
    let accepted = client.expect_all(&["command_accepted", "command_started"]).await;
    assert!(accepted[0]["data"]["commandId"].as_str().unwrap().starts_with("anon:"), "{accepted:?}");
    client.send(json!({"type":"get_state","id":"b","sessionId":"s"})).await;
    let response = client.expect("response").await;
    let full = "Too many pending commands for this connection (max 1)";
    assert_refused(&response, full, "too_many_in_flight");
    assert_eq!(response["limit"], 1);
    runner.answer_next(&state("s", 0).to_string()).await;
    let response = client.response().await;
    assert_eq!((&response["success"], response.get("id")), (&json!(true), None));
    let metrics = {
        client.send(json!({"type":"get_metrics"})).await;
        let command = runner.command().await;
        assert_eq!(command["cmd"], "runner.health");
        runner.answer(&command, r#"{"breakers":[],"bash":{"state":"open","failures":1,"sessions":1,"open_sessions":1,"total_calls":1,"total_timeouts":1,"total_rejected":0},"max_sessions":4,"agents":1}"#).await;
        client.response().await["data"].clone()
    };
    assert_fields(
        &metrics,
        json!({"sessionCount": 1, "connectionCount": 1, "commandsRejected.messageSize": 2,
        "bashCircuitBreaker.globalState": "open"}),
    );
    world.stop().await;
}

async fn answer_create(runner: &mut Runner, session: &str) {
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["session_id"]), (&json!("session.create"), &json!(session)));
    let data = attach_data(1, "ok").replacen('{', &format!("{{\"session_id\":\"{session}\","), 1);
    runner.say(&format!("{}\n{}", created(session), answer(&command, &data))).await;
    assert_eq!(runner.answer_next(&state(session, 0).to_string()).await["cmd"], "get_state");
}

#[tokio::test]
async fn sessions_are_created_once_deleted_and_created_again() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let create = json!({"type":"create_session","id":"c","sessionId":"n","harness":"demo"});
    client.send(create.clone()).await;
    answer_create(&mut runner, "n").await;
    let frames = client.expect_all(&WHOLE).await;
    assert_eq!((&frames[3]["sessionVersion"], &frames[3]["data"]["sessionId"]), (&json!(0), &json!("n")));
    assert_eq!(client.expect("session_created").await["data"]["sessionInfo"]["sessionId"], "n");
    // Again with the same id: no second broadcast.
    client.send(create).await;
    client.expect_all(&["command_accepted", "command_finished", "response"]).await;
    let response = client.call(json!({"type":"create_session","sessionId":"n"})).await;
    assert_refused(&response, "Session n already exists", "session_exists");

    client.send(json!({"type":"delete_session","sessionId":"n"})).await;
    let command = runner.command().await;
    assert_eq!(command["cmd"], "session.close");
    runner.say(&format!("{}\n{}", record("n", 2, "session.closed", ""), answer(&command, "null"))).await;
    let frames = client.expect_all(&WHOLE).await;
    client.expect("session_deleted").await;
    assert_eq!((&frames[3]["data"], frames[3].get("sessionVersion")), (&json!({"deleted":true}), None));
    for command in [
        json!({"type":"get_state","sessionId":"n"}),
        json!({"type":"delete_session","sessionId":"n"}),
        json!({"type":"switch_session","sessionId":"n"}),
    ] {
        assert_refused(&client.call(command).await, "Session n not found", "session_not_found");
    }
    let response = client.call(json!({"type":"abort","sessionId":"n","ifSessionVersion":3})).await;
    assert_refused(&response, "Session n not found for ifSessionVersion=3", "session_not_found");

    // Nothing is deleted for a session that could not be created.
    client.send(json!({"type":"create_session","sessionId":"n","harness":"demo"})).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["check_only"]), (&json!("session.create"), &json!(true)));
    runner.refuse(&command, "Unknown harness 'demo'").await;
    assert_refused(&client.response().await, "Unknown harness 'demo'", "failed");
    assert!(world.stored("n").await.is_some(), "its history is still there");

    client.send(json!({"type":"create_session","sessionId":"n","harness":"demo"})).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["check_only"]), (&json!("session.create"), &json!(true)));
    assert!(command.get("idempotency_key").is_none(), "{command}");
    runner.answer(&command, "null").await;
    assert_eq!(runner.answer_next("null").await["cmd"], "session.delete");
    answer_create(&mut runner, "n").await;
    assert_eq!(client.response().await["success"], true);
    client.expect("session_created").await;
    world.stop().await;
}

#[tokio::test]
async fn a_session_without_a_name_gets_one_and_too_many_are_refused() {
    let (world, mut runner) = pi_world(PiServerConfig { sessions_max: 2, ..relaxed() }).await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"create_session","harness":"demo"})).await;
    let command = runner.command().await;
    let name = command["session_id"].as_str().unwrap().to_owned();
    assert!(name.starts_with("session-") && name.split('-').count() == 3, "{name}");
    let response = client.call(json!({"type":"create_session","harness":"demo"})).await;
    assert_refused(&response, "Session limit reached (2 sessions)", "limit_reached");
    world.stop().await;
}

#[tokio::test]
async fn sessions_of_other_faces_are_told_and_listed() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    runner.say(&created("t")).await;
    let command = runner.answer_next(&state("t", 0).to_string()).await;
    assert_eq!((&command["cmd"], &command["session_id"]), (&json!("get_state"), &json!("t")));
    assert_eq!(client.expect("session_created").await["data"]["sessionId"], "t");
    runner.record("t", 2, "session.closed", "").await;
    assert_eq!(client.expect("session_deleted").await["data"]["sessionId"], "t");
    client.send(json!({"type":"list_sessions"})).await;
    let command = runner.command().await;
    assert_eq!(command["cmd"], "runner.sessions");
    let mut closed = state("t", 0);
    closed["status"] = json!("closed");
    runner.answer(&command, &json!({"sessions":[closed, state("s", 0)]}).to_string()).await;
    let response = client.response().await;
    assert_eq!(response["data"]["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(response["data"]["sessions"][0]["sessionId"], "s");
    // The hub's copy serves while the runner is away.
    drop(runner);
    let response = loop {
        let response = client.call(json!({"type":"list_sessions"})).await;
        if response["data"]["sessions"][0]["status"] == "offline" {
            break response;
        }
    };
    assert_eq!(response["data"]["sessions"][0]["sessionId"], "s", "{response}");
    world.stop().await;
}

#[tokio::test]
async fn messages_of_other_harnesses_are_put_in_pis_form() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    runner.say(&crate::support::message_end("s", 2, 0)).await;
    runner.line_of("ack").await;
    client.send(json!({"type":"get_messages","sessionId":"s"})).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["native"]), (&json!("get_native_messages"), &json!(true)));
    runner.answer_at(&command, r#"{"native":null}"#, 4).await;
    let response = client.response().await;
    assert_eq!((&response["success"], &response["sessionVersion"]), (&json!(true), &json!(4)), "{response}");
    let messages = response["data"]["messages"].as_array().unwrap();
    assert_eq!((messages.len(), &messages[0]["role"]), (1, &json!("user")));
    world.stop().await;
}

#[tokio::test]
async fn time_is_up_and_the_runner_is_told() {
    let config = PiServerConfig { work_timeout: Duration::from_millis(60), ..relaxed() };
    let (world, mut runner) = pi_world(config).await;
    let mut client = world.pi_client().await;
    let bash = json!({"type":"bash","id":"b","sessionId":"s","command":"sleep 9"});
    client.send(bash.clone()).await;
    let command = runner.command().await;
    let response = client.response().await;
    assert_refused(&response, "Command 'bash' timed out after 60ms", "timed_out");
    assert_eq!(response["timedOut"], true);
    let cancel = runner.command().await;
    assert_eq!((&cancel["cmd"], &cancel["key"]), (&json!("_cancel"), &command["idempotency_key"]));
    runner.answer(&cancel, "null").await;
    runner.answer_at(&command, r#"{"native":{"exitCode":0,"output":"","cancelled":false}}"#, 1).await;
    assert_fields(&client.call(bash).await, json!({"timedOut": true, "replayed": true}));
    world.stop().await;
}

#[tokio::test]
async fn commands_sent_in_one_breath_wait_for_the_session_they_need() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"create_session","id":"c","sessionId":"n","harness":"demo"})).await;
    client.send(json!({"type":"switch_session","id":"w","sessionId":"n"})).await;
    client.send(json!({"type":"prompt","id":"a","sessionId":"n","message":"one"})).await;
    client.send(json!({"type":"prompt","id":"b","sessionId":"n","message":"two","dependsOn":["a"]})).await;
    answer_create(&mut runner, "n").await;
    assert_eq!(client.response().await["id"], "c");
    let mut prompts = Vec::new();
    while prompts.len() < 2 {
        let command = runner.command().await;
        match command["cmd"].as_str().unwrap() {
            "get_state" => runner.answer(&command, &state("n", 0).to_string()).await,
            "prompt" => {
                prompts.push(command["message"].clone());
                runner.answer_at(&command, "null", prompts.len() as u64).await;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!(prompts, [json!("one"), json!("two")]);
    let mut left = vec![json!("w"), json!("a"), json!("b")];
    while !left.is_empty() {
        let response = client.response().await;
        assert_eq!(response["success"], true, "{response}");
        left.retain(|id| *id != response["id"]);
    }
    world.stop().await;
}

#[tokio::test]
async fn nobody_knows_what_became_of_a_command_whose_runner_went_away() {
    let (world, mut runner) = pi_world(PiServerConfig { pending_max: 3000, ..relaxed() }).await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"prompt","id":"p","sessionId":"s","message":"hi"})).await;
    runner.command().await;
    client.expect_all(&["command_accepted", "command_started"]).await;
    // These wait behind it, and cannot be sent when their turn comes.
    for _ in 0..2000 {
        client.send(json!({"type":"set_auto_retry","sessionId":"s","enabled":true})).await;
    }
    for _ in 0..2000 {
        client.expect("command_accepted").await;
    }
    drop(runner);
    let response = client.response().await;
    assert_fields(&response, json!({"id": "p", "success": false, "indeterminate": true}));
    for _ in 0..2000 {
        assert_fields(&client.response().await, json!({"code": "runner_offline"}));
    }
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_stops_says_so_and_lets_work_end() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    client.send(json!({"type":"prompt","id":"p","sessionId":"s","message":"hi"})).await;
    let command = runner.command().await;
    client.expect_all(&["command_accepted", "command_started"]).await;
    world.shutdown.cancel();
    let shutdown = client.expect("server_shutdown").await;
    assert_eq!(shutdown["data"], json!({"reason":"graceful_shutdown","timeoutMs":500}));
    client.send(json!({"type":"get_state","id":"late","sessionId":"s"})).await;
    let response = client.expect("response").await;
    assert_eq!(response["id"], "late");
    assert_refused(&response, "Server is shutting down", "shutting_down");
    runner.answer_at(&command, "null", 1).await;
    let frames = client.expect_all(&["command_finished", "response"]).await;
    assert_eq!(frames[1]["success"], true);
    assert_eq!(client.client.closed().await, 1001);
    world.stop().await;
}
