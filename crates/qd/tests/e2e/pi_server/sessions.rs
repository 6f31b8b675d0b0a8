//! Sessions that come, go and come back.

use qd_testkit::pi_server::PiClient;
use serde_json::{Value, json};

use super::{demo, demo_with_session, on, pi, pi_with_session, restarted};
use crate::{assert_fields, with};

#[tokio::test]
async fn frames_come_in_the_order_of_the_document() {
    let (_qd, mut client) = demo().await;
    let from = client.count();
    let id = client.send(json!({"type": "create_session", "sessionId": "order", "harness": "demo"})).await;
    comes_last(&mut client, from, "session_created").await;
    let accepted = &client.frames()[from];
    assert_eq!(
        accepted["data"],
        json!({"commandId": id, "commandType": "create_session", "sessionId": "order", "dependsOn": []})
    );
    let from = client.count();
    client.send(json!({"type": "delete_session", "sessionId": "order"})).await;
    comes_last(&mut client, from, "session_deleted").await;
}

/// Waits for the news of a command that was sent; everything about the command itself comes before it.
async fn comes_last(client: &mut PiClient, from: usize, news: &str) {
    client.since(from, news, |frame| frame["type"] == news).await;
    let kinds: Vec<&Value> = client.frames()[from..].iter().map(|frame| &frame["type"]).collect();
    assert_eq!(kinds, ["command_accepted", "command_started", "command_finished", "response", news]);
}

#[tokio::test]
async fn a_deleted_session_is_gone_until_it_is_loaded_or_created_again() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@text text=\"remember me\"").await;
    let state = client.ok(on(&session, "get_state")).await["data"].clone();
    let file = state["sessionFile"].as_str().unwrap().to_owned();
    let deleted = client.ok(on(&session, "delete_session")).await;
    assert_eq!(deleted["data"], json!({"deleted": true}));
    assert!(deleted.get("sessionVersion").is_none(), "{deleted}");
    let missing = format!("Session {session} not found");
    assert_eq!(client.refused(on(&session, "get_state")).await, missing);
    assert_eq!(client.refused(on(&session, "switch_session")).await, missing);
    assert_eq!(client.refused(on(&session, "delete_session")).await, missing);
    assert!(std::path::Path::new(&file).exists(), "the file stays");
    let stored = client.ok(json!({"type": "list_stored_sessions"})).await["data"]["sessions"].clone();
    let is_it = |stored: &&Value| stored["sessionFile"] == file.as_str();
    let stored = stored.as_array().unwrap().iter().find(is_it).unwrap();
    assert_eq!((&stored["sessionPath"], &stored["fileExists"]), (&json!(file), &json!(true)), "{stored}");
    assert_eq!(stored["messageCount"], state["messageCount"], "{stored}");
    let loaded = client.ok(json!({"type": "load_session", "sessionPath": file})).await;
    assert_eq!(loaded["sessionVersion"], 0);
    let again = loaded["data"]["sessionId"].as_str().unwrap().to_owned();
    assert!(again.starts_with("session-"), "{again}");
    assert_eq!(loaded["data"]["sessionInfo"]["messageCount"], state["messageCount"], "{loaded}");
    let messages = client.ok(on(&again, "get_messages")).await["data"]["messages"].to_string();
    assert!(messages.contains("remember me"));
    let fresh =
        client.ok(json!({"type": "create_session", "sessionId": session, "cwd": qd.sandbox().work()})).await;
    assert_fields(&fresh, json!({"sessionVersion": 0, "data/sessionInfo/messageCount": 0}));
}

#[tokio::test]
async fn create_switch_and_prompt_may_be_sent_in_one_go() {
    let (qd, mut client, _llm) = pi().await;
    let commands = [
        json!({"type": "create_session", "sessionId": "go", "cwd": qd.sandbox().work(), "id": "1"}),
        json!({"type": "switch_session", "sessionId": "go", "id": "2"}),
        json!({"type": "prompt", "sessionId": "go", "message": "@@text text=\"gone\"", "id": "3"}),
        json!({"type": "get_state", "sessionId": "go", "id": "4"}),
    ];
    for command in commands {
        client.send(command).await;
    }
    for id in ["1", "2", "3", "4"] {
        let response = client.response(0, &json!(id)).await;
        assert_eq!(response["success"], true, "{response}");
    }
    let events = client.settled(0, "go").await;
    assert!(events.iter().any(|event| event.to_string().contains("gone")));
}

#[tokio::test]
async fn bad_names_and_directories_are_refused_with_their_reason() {
    let (_qd, mut client) = demo().await;
    let cases = [
        (
            json!({"sessionId": "a/b"}),
            "Session ID must contain only alphanumeric characters, underscores, dashes, and dots",
        ),
        (json!({"sessionId": "x".repeat(257)}), "Session ID too long (max 256 characters)"),
        (json!({"sessionId": ""}), "Validation failed: sessionId: Must be a non-empty string if provided"),
        (json!({"cwd": ""}), "CWD must be a non-empty string"),
        (json!({"cwd": "~/x"}), "CWD contains potentially dangerous path components"),
        (json!({"cwd": "x\u{0}y"}), "CWD contains potentially dangerous path components"),
        (json!({"cwd": "relative"}), "CWD must be an absolute path"),
        (json!({"cwd": "/no/such/directory"}), "CWD must point to an existing directory"),
        (json!({"cwd": 7}), "Validation failed: cwd: Must be a string if provided"),
    ];
    for (fields, expected) in cases {
        let command = with(json!({"type": "create_session", "harness": "demo"}), fields);
        assert_eq!(client.refused(command.clone()).await, expected, "{command}");
    }
    // Odd but allowed names work, and harm nothing on disk.
    for name in ["..", ".", "-x", "_y.z", &"n".repeat(256)] {
        client.ok(json!({"type": "create_session", "harness": "demo", "sessionId": name})).await;
        client.ok(on(name, "get_state")).await;
    }
}

#[tokio::test]
async fn sessions_are_there_after_a_restart() {
    let (qd, mut client, session) = demo_with_session().await;
    client.turn(&session, "hello").await;
    let (_qd, mut client) = restarted(qd).await;
    let list = client.ok(json!({"type": "list_sessions"})).await["data"]["sessions"].clone();
    let names: Vec<&Value> = list.as_array().unwrap().iter().map(|info| &info["sessionId"]).collect();
    assert_eq!(names, [&json!(session)]);
    client.ok(on(&session, "switch_session")).await;
    client.turn(&session, "hello again").await;
}

#[tokio::test]
async fn a_create_that_fails_leaves_the_deleted_session_of_that_name_as_it_was() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@text text=\"still here\"").await;
    client.ok(on(&session, "delete_session")).await;
    let create =
        |cwd: &str| json!({"type": "create_session", "sessionId": session, "cwd": cwd, "harness": "pi"});
    let error = client.refused(create("/no/such/directory")).await;
    assert_eq!(error, "CWD must point to an existing directory");
    let mut mux = qd.connect().await;
    let messages = mux.messages(&session).await;
    assert!(json!(messages).to_string().contains("still here"), "{messages:?}");
    // One that works takes its place.
    let work = qd.sandbox().work().display().to_string();
    client.ok(create(&work)).await;
    let messages = client.ok(on(&session, "get_messages")).await["data"]["messages"].clone();
    assert!(!messages.to_string().contains("still here"), "{messages}");
}
