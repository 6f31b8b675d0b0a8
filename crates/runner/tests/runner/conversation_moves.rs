//! Commands that take the agent elsewhere, or that it takes its time over: what waits for what.

use crate::support::runner_fixture::{RunnerFixture, on};
use serde_json::{Value, json};

fn follow_up(message: &str) -> Value {
    json!({"cmd": "follow_up", "session_id": "s", "message": message})
}

/// A `session.new` that waits for the end of the turn.
fn later(key: &str) -> Value {
    json!({"cmd": "session.new", "session_id": "s", "when_idle": true, "idempotency_key": key})
}

fn is_answered(runner: &RunnerFixture, id: &str) -> bool {
    runner.lines.iter().any(|line| line["type"] == "response" && line["id"] == id)
}

#[tokio::test]
async fn what_waited_does_not_go_along_to_a_new_conversation() {
    let mut runner = RunnerFixture::with_session("pi").await;
    runner.prompt("work").await;
    runner.ok(follow_up("for the old one")).await;
    let from = runner.lines.len();
    runner.ok(on("session.new", Value::Null)).await;
    let empty = json!({"steering": [], "follow_up": []});
    assert_eq!(runner.state().await["queue"], empty);
    let warnings = runner.warnings(from);
    assert!(warnings.len() == 1 && warnings[0].ends_with(":\nfor the old one"), "{warnings:?}");
    runner.restart(0).await;
    runner.prompt("hello").await;
    runner.until_user_message("hello").await;
    assert_eq!(runner.user_messages(), ["work", "hello"]);
    assert_eq!(runner.state().await["queue"], empty);
}

#[tokio::test]
async fn what_waited_for_an_agent_is_not_given_to_a_new_conversation() {
    let mut runner = RunnerFixture::with_session("pi").await;
    runner.prompt("work").await;
    runner.ok(follow_up("for the old one")).await;
    runner.restart(0).await;
    let from = runner.lines.len();
    runner.ok(on("session.new", Value::Null)).await;
    let warning = runner.event(from, "notify").await;
    assert!(warning["message"].as_str().unwrap().ends_with(":\nfor the old one"), "{warning}");
    assert_eq!(runner.state().await["queue"]["follow_up"], json!([]));
    assert_eq!(runner.user_messages(), ["work"]);
}

#[tokio::test]
async fn a_command_that_waits_for_an_idle_agent_cuts_nothing_off() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    runner.prompt("work").await;
    let new = runner.send(later("k1")).await;
    let name = runner.send(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
    // Reads and what acts on the turn pass; the lane is held.
    runner.ok(on("get_stats", Value::Null)).await;
    runner.ok(follow_up("more work")).await;
    assert_eq!(runner.state().await["status"], "working");
    assert!(!is_answered(&runner, &new) && !is_answered(&runner, &name));
    runner.ok(on("abort", Value::Null)).await;
    assert_eq!(runner.response(&new).await["success"], true);
    assert_eq!(runner.response(&name).await["success"], true);
    // The queue was read in the turn, so nothing was lost.
    assert_eq!(runner.user_messages(), ["work", "more work"]);
    assert_eq!(runner.warnings(from), [""; 0]);
    runner.prompt("work").await;
    // The yes to a prompt comes before its turn begins.
    runner.until_status("working").await;
    let new = runner.send(later("k2")).await;
    runner.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k2"})).await;
    assert_eq!(runner.response(&new).await["timed_out"], true);
    assert_eq!(runner.state().await["status"], "working");
    let new = runner.send(later("k3")).await;
    runner.ok(on("get_stats", Value::Null)).await;
    runner.ok(on("session.delete", Value::Null)).await;
    let answer = runner.response(&new).await;
    assert_eq!((&answer["success"], answer["indeterminate"].as_bool()), (&json!(false), None), "{answer}");
}

#[tokio::test]
async fn a_command_that_waits_for_an_idle_agent_lets_a_cut_off_turn_go_on_first() {
    let mut runner = RunnerFixture::with_session("pi").await;
    runner.prompt("work").await;
    runner.ok(follow_up("first this")).await;
    runner.restart(0).await;
    let from = runner.lines.len();
    let new = runner.send(later("k1")).await;
    assert_eq!(runner.response(&new).await["success"], true);
    assert_eq!(runner.user_messages(), ["work", "first this"]);
    let is_loss = |warning: &String| warning.contains("another conversation");
    assert!(!runner.warnings(from).iter().any(is_loss), "{:?}", runner.warnings(from));
}

#[tokio::test]
async fn an_extensions_command_that_asks_holds_up_nobody() {
    let mut runner = RunnerFixture::with_session("pi").await;
    let from = runner.lines.len();
    let asking = runner.send(json!({"cmd": "prompt", "session_id": "s", "message": "/ask"})).await;
    let request = runner.event(from, "agent.input_needed").await["request"]["request_id"].clone();
    runner.ok(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
    assert_eq!(runner.prompt("hello").await["disposition"], "started");
    assert!(!is_answered(&runner, &asking));
    let yes = json!({"cmd": "input_response", "session_id": "s", "request_id": request, "confirmed": true});
    runner.ok(yes).await;
    assert_eq!(runner.response(&asking).await["success"], true);
}
