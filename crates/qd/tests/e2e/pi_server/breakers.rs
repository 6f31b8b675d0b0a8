//! Circuit breakers, fed by what really happens.

use qd_testkit::pi_server::PiClient;
use qd_testkit::process::{eventually, with_marker};
use serde_json::{Value, json};

use super::{bash, data, on, pi_session, pi_with, pi_with_session, prompt};
use crate::{assert_fields, until, with};

async fn breaker(client: &mut PiClient) -> Value {
    let metrics = data(client, json!({"type": "get_metrics"})).await;
    let breakers = metrics["circuitBreakers"].as_array().unwrap().clone();
    breakers.into_iter().find(|breaker| breaker["providerName"] == "fake").unwrap_or_default()
}

#[tokio::test]
async fn five_failures_of_a_provider_open_its_breaker_and_two_successes_close_it() {
    let (qd, mut client, _llm) = pi_with(&[("QD_BREAKER_RECOVERY_SECONDS", "1")]).await;
    let session = pi_session(&qd, &mut client).await;
    client.ok(json!({"type": "set_auto_retry", "sessionId": session, "enabled": false})).await;
    for number in 1..=5 {
        assert_eq!(breaker(&mut client).await["state"].as_str().unwrap_or("closed"), "closed");
        let events =
            client.turn(&session, &format!("@@error status=400 times=1 message=\"no {number}\"")).await;
        let failed = events.iter().any(|event| event["message"]["stopReason"] == "error");
        assert!(failed, "attempt {number} did not fail");
    }
    let open = breaker(&mut client).await;
    assert_eq!((&open["state"], &open["totalFailures"]), (&json!("open"), &json!(5)), "{open}");
    let health = data(&mut client, json!({"type": "health_check"})).await;
    assert_eq!(health["hasOpenCircuit"], true, "{health}");
    assert!(health["issues"].to_string().contains("One or more LLM provider circuits are open"), "{health}");
    for kind in ["prompt", "steer", "follow_up"] {
        let error = client.refused(json!({"type": kind, "sessionId": session, "message": "hello"})).await;
        assert!(error.starts_with("Circuit breaker open for fake (recovery in "), "{error}");
    }
    // Reads and other commands go on.
    client.ok(on(&session, "get_state")).await;
    // The provider is tried again after a while, and trusted again after two successes.
    let from = until("the breaker to let a prompt through", async || {
        let from = client.count();
        let response = client.call(prompt(&session, "@@text text=\"back\"")).await;
        if response["success"] == true { Ok(from) } else { Err(response.to_string()) }
    })
    .await;
    client.settled(from, &session).await;
    client.turn(&session, "@@text text=\"again\"").await;
    let closed = breaker(&mut client).await;
    assert_eq!(closed["state"], "closed", "{closed}");
    let health = data(&mut client, json!({"type": "health_check"})).await;
    assert_eq!(health["hasOpenCircuit"], false);
}

/// The original called a slow answer a failure. There is no such threshold here, so two seconds show as much as two
/// hours would: a turn is counted once, when it has ended, by how it ended.
#[tokio::test]
async fn a_turn_is_counted_by_how_it_ended_and_not_by_its_length() {
    let (_qd, mut client, _llm, session) = pi_with_session().await;
    client.turn(&session, "@@slow n=40 delay_ms=50").await;
    let breaker = breaker(&mut client).await;
    assert_fields(&breaker, json!({"state": "closed", "totalFailures": 0, "totalSlowCalls": 0}));
    assert_fields(&breaker, json!({"totalSuccesses": 1}));
}

#[tokio::test]
async fn bash_commands_that_run_out_of_time_open_the_bash_breaker() {
    let (qd, mut client, _llm) = pi_with(&[("QD_PI_WORK_TIMEOUT_SECONDS", "1")]).await;
    let session = pi_session(&qd, &mut client).await;
    let version = client.ok(on(&session, "get_state")).await["sessionVersion"].clone();
    for number in 0..10 {
        let command = with(bash(&session, "sleep 60"), json!({"id": format!("b{number}")}));
        let response = client.call(command.clone()).await;
        assert_fields(&response, json!({"success": false, "timedOut": true}));
        assert_fields(&response, json!({"error": "Command 'bash' timed out after 1000ms"}));
        if number == 0 {
            let from = client.count();
            client.send(command).await;
            let again = client.response(from, &json!("b0")).await;
            assert_eq!((&again["timedOut"], &again["replayed"]), (&json!(true), &json!(true)), "{again}");
        }
    }
    let error = client.refused(bash(&session, "true")).await;
    assert!(error.starts_with(&format!("Bash circuit breaker open for session {session}")), "{error}");
    let health = data(&mut client, json!({"type": "health_check"})).await;
    assert_eq!(health["hasOpenBashCircuit"], true, "{health}");
    let after = client.ok(on(&session, "get_state")).await["sessionVersion"].clone();
    assert_eq!(after, version, "a command that timed out changes no version");
    eventually("no shell is left", || with_marker("sleep\u{0}60").is_empty()).await;
}

#[tokio::test]
async fn bash_commands_of_many_sessions_open_the_breaker_of_all() {
    let settings = [("QD_PI_WORK_TIMEOUT_SECONDS", "1"), ("QD_BASH_BREAKER_FAILURES_ALL", "3")];
    let (qd, mut client, _llm) = pi_with(&settings).await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(pi_session(&qd, &mut client).await);
    }
    client.ok(bash(&sessions[0], "true")).await;
    for session in &sessions[..3] {
        let response = client.call(bash(session, "sleep 61")).await;
        assert_eq!(response["timedOut"], true, "{response}");
    }
    // Also where nothing has happened yet.
    for session in &sessions {
        let error = client.refused(bash(session, "true")).await;
        assert!(error.starts_with("Bash circuit breaker open globally: "), "{error}");
    }
    let metrics = data(&mut client, json!({"type": "get_metrics"})).await["bashCircuitBreaker"].clone();
    assert_fields(&metrics, json!({"globalState": "open", "openSessionCount": 0, "totalTimeouts": 3}));
    let health = data(&mut client, json!({"type": "health_check"})).await;
    assert_eq!((&health["hasOpenBashCircuit"], &health["hasOpenCircuit"]), (&json!(true), &json!(false)));
    assert!(health["issues"].to_string().contains("Bash command circuit breaker is open"), "{health}");
}
