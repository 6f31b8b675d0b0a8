//! `dependsOn` and versions, over the wire.
#![allow(clippy::disallowed_methods, reason = "a promise about time is tested")]

use std::time::{Duration, Instant};

use serde_json::json;

use super::{bash, demo, demo_with_session, on, pi_session, pi_with_session, prompt, rename};
use crate::with;

#[tokio::test]
async fn a_command_may_depend_on_an_earlier_one_of_its_session_without_waiting_for_it() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    let from = client.count();
    client.send(with(rename(&session, "first"), json!({"id": "A"}))).await;
    let after = json!({"id": "B", "dependsOn": ["A"]});
    client.send(with(prompt(&session, "@@text text=\"after\""), after)).await;
    client.send(with(on(&session, "get_state"), json!({"id": "C", "dependsOn": ["A", "B"]}))).await;
    for id in ["A", "B", "C"] {
        let response = client.response(from, &json!(id)).await;
        assert_eq!(response["success"], true, "{response}");
        assert_eq!(client.said_of(&json!(id)), ["accepted", "started", "finished", "response"]);
    }
    let state = client.response(from, &json!("C")).await;
    assert_eq!(state["data"]["sessionName"], "first");
}

#[tokio::test]
async fn a_waiting_dependent_blocks_nobody() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    let other = pi_session(&qd, &mut client).await;
    let from = client.count();
    client.send(with(bash(&session, "sleep 2"), json!({"id": "slow"}))).await;
    client.send(with(json!({"type": "list_sessions"}), json!({"id": "waits", "dependsOn": ["slow"]}))).await;
    client.send(with(rename(&other, "x"), json!({"id": "waits2", "dependsOn": ["slow"]}))).await;
    let sent = Instant::now();
    client.ok(json!({"type": "list_sessions"})).await;
    client.ok(rename(&other, "y")).await;
    client.ok(on(&session, "get_state")).await;
    client.ok(on(&session, "abort")).await;
    assert!(sent.elapsed() < Duration::from_secs(1), "others waited {:?}", sent.elapsed());
    for id in ["slow", "waits", "waits2"] {
        assert_eq!(client.response(from, &json!(id)).await["success"], true, "{id}");
    }
    assert_eq!(client.ok(on(&other, "get_state")).await["data"]["sessionName"], "x");
}

#[tokio::test]
async fn dependencies_that_cannot_be_met_fail_with_their_reason() {
    let (_qd, mut client, session) = demo_with_session().await;
    let unknown = with(on(&session, "get_state"), json!({"id": "u", "dependsOn": ["nobody"]}));
    assert_eq!(client.refused(unknown).await, "Dependency 'nobody' is unknown");
    let selfish = with(on(&session, "get_state"), json!({"id": "s", "dependsOn": ["s"]}));
    assert_eq!(client.refused(selfish).await, "Command 's' cannot depend on itself");
    client.refused(with(on("nowhere", "get_state"), json!({"id": "f"}))).await;
    let failed = with(on(&session, "get_state"), json!({"id": "g", "dependsOn": ["f"]}));
    assert_eq!(client.refused(failed).await, "Dependency 'f' failed: Session nowhere not found");
    let nameless = json!({"type": "get_state", "sessionId": session, "dependsOn": ["f"]});
    client.send_text(&nameless.to_string()).await;
    let refusal =
        client.wait_for("the refusal", |frame| frame["type"] == "response" && frame["id"].is_null()).await;
    assert_eq!(refusal["error"], "Validation failed: id: Required when dependsOn is provided");
}

#[tokio::test]
async fn versions_count_mutations_and_guard_them() {
    let (_qd, mut client) = demo().await;
    let created = client.ok(json!({"type": "create_session", "sessionId": "v", "harness": "demo"})).await;
    assert_eq!(created["sessionVersion"], 0);
    let name = |version: u64| json!({"type": "set_session_name", "sessionId": "v", "name": "n", "ifSessionVersion": version});
    assert_eq!(client.ok(name(0)).await["sessionVersion"], 1);
    assert_eq!(client.refused(name(0)).await, "Session version mismatch: expected 0, got 1");
    let read = client.ok(on("v", "get_state")).await;
    assert_eq!(read["sessionVersion"], 1);
    assert_eq!(client.ok(name(1)).await["sessionVersion"], 2);
    let gone = json!({"type": "get_state", "sessionId": "w", "ifSessionVersion": 3});
    assert_eq!(client.refused(gone).await, "Session w not found for ifSessionVersion=3");
    let wrong = json!({"type": "list_sessions", "ifSessionVersion": 3});
    let error = client.refused(wrong).await;
    assert_eq!(error, "Validation failed: ifSessionVersion: Only supported for session-targeted commands");
}
