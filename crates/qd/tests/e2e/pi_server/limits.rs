//! Bounds: what happens at each is written down, and happens.

use qd_testkit::pi_server::PiClient;
use qd_testkit::process::eventually;
use serde_json::json;

use super::{bash, demo_session, on, pi_session, pi_with, up};
use crate::{ok_json, sandbox, with};

#[tokio::test]
async fn rates_are_limited_per_principal_and_session_and_replays_are_free() {
    let settings = [("QD_PI_RATE_PER_MINUTE", "5"), ("QD_PI_GLOBAL_RATE_PER_MINUTE", "30")];
    let (qd, mut client) = up(sandbox(), &settings).await;
    let session = demo_session(&mut client).await;
    for number in 0..5 {
        client.ok(json!({"type": "get_state", "sessionId": session, "id": format!("g{number}")})).await;
    }
    let from = client.count();
    let id = client.send(on(&session, "get_state")).await;
    let limited = client.response(from, &id).await;
    assert_eq!(limited["error"], "Rate limit exceeded (5 commands/minute)");
    assert_eq!(client.said_of(&id), ["accepted", "finished", "response"]);
    for _ in 0..10 {
        let from = client.count();
        client.send(json!({"type": "get_state", "sessionId": session, "id": "g0"})).await;
        assert_eq!(client.response(from, &json!("g0")).await["replayed"], true);
    }
    // Control gets through, and so does somebody else.
    client.ok(on(&session, "abort")).await;
    client.ok(json!({"type": "health_check"})).await;
    let added = ok_json(&qd.cli(&["token", "add", "other", "--json"]).await);
    let mut other = qd.pi_client_as(added["token"].as_str().unwrap()).await;
    other.ok(on(&session, "get_state")).await;
    let metrics = client.ok(json!({"type": "get_metrics"})).await["data"].clone();
    assert_eq!(metrics["commandsRejected"]["rateLimit"], 1, "{metrics}");
}

#[tokio::test]
async fn big_and_broken_frames_are_answered_and_the_connection_stays() {
    let (_qd, mut client) = up(sandbox(), &[("QD_PI_MESSAGE_BYTES_MAX", "1000")]).await;
    let big = json!({"type": "list_sessions", "padding": "x".repeat(2000)}).to_string();
    client.send_text(&big).await;
    let refusal = client.wait_for("the refusal", |frame| frame["type"] == "response").await;
    assert_eq!(refusal["error"], format!("Message size {} exceeds limit 1000", big.len()));
    assert_eq!(refusal["command"], "unknown");
    for (text, error) in [
        ("{not json", "Invalid JSON"),
        ("null", "Validation failed: root: Command must be an object"),
        ("[1,2]", "Validation failed: root: Command must be an object"),
        ("{}", "Validation failed: type: Command must have a string 'type' field"),
        (
            "{\"type\":\"nonsense\",\"id\":7}",
            "Validation failed: id: Must be a non-empty string if provided; type: Unknown command type 'nonsense'",
        ),
    ] {
        client.send_text(text).await;
        let refusal = client.wait_for(text, |frame| frame["type"] == "response").await;
        assert_eq!(refusal["error"], error, "{text}");
        assert_eq!(refusal["success"], false);
    }
    client.ok(json!({"type": "list_sessions"})).await;
    let lifecycle = client.frames().iter().filter(|frame| frame["type"] == "command_accepted").count();
    assert_eq!(lifecycle, 1, "what is not admitted has no lifecycle");
}

#[tokio::test]
async fn too_many_unanswered_commands_and_connections_are_refused() {
    let settings = [("QD_PI_PENDING_MAX", "2"), ("QD_PI_CONNECTIONS_MAX", "2")];
    let (qd, mut client, _llm) = pi_with(&settings).await;
    let session = pi_session(&qd, &mut client).await;
    let from = client.count();
    // One that works until it is told to stop and one that waits for it: both are unanswered as long as we like.
    client.send(with(bash(&session, "touch begun && sleep 600"), json!({"id": "slow"}))).await;
    client.send(json!({"type": "list_sessions", "id": "waits", "dependsOn": ["slow"]})).await;
    let begun = qd.sandbox().work().join("begun");
    eventually("the shell has begun", || begun.exists()).await;
    let id = client.send(on(&session, "get_state")).await;
    let refused = client.response(from, &id).await;
    assert_eq!(refused["error"], "Too many pending commands for this connection (max 2)");
    assert_eq!(client.said_of(&id), ["response"], "it was not admitted");
    let mut second = qd.pi_client().await;
    let url = qd.pi_server_url().unwrap().to_owned();
    let bearer = format!("Bearer {}", qd.token());
    let mut third = PiClient::open(&url, &[("authorization", &bearer)]).await.unwrap();
    assert_eq!(third.next().await, None);
    assert_eq!(third.closed, Some((1013, "Connection limit reached (2 connections)".to_owned())));
    // The bound is the connection's: another one has room, and what is answered makes room again.
    second.ok(on(&session, "abort_bash")).await;
    for id in ["slow", "waits"] {
        client.response(from, &json!(id)).await;
    }
    client.ok(on(&session, "get_state")).await;
}

#[tokio::test]
async fn only_those_with_a_token_get_in() {
    let (qd, _client) = up(sandbox(), &[]).await;
    let url = qd.pi_server_url().unwrap().to_owned();
    assert!(PiClient::open(&url, &[]).await.is_err());
    assert!(PiClient::open(&url, &[("authorization", "Bearer wrong")]).await.is_err());
    let bearer = format!("Bearer {}", qd.token());
    let foreign =
        PiClient::open(&url, &[("authorization", &bearer), ("origin", "http://evil.example")]).await;
    assert!(foreign.is_err(), "a page of another site is refused even with the token");
    for path in ["/", "/any/path", "/ws/pi"] {
        let address = format!("{}{path}?token={}", url.trim_end_matches('/'), qd.token());
        let mut client = PiClient::open(&address, &[]).await.unwrap();
        assert_eq!(client.next().await.unwrap()["type"], "server_ready");
    }
    let mut same = PiClient::connect(&format!("{}/ws/pi", qd.url()), qd.token()).await;
    same.ok(json!({"type": "list_sessions"})).await;
}
