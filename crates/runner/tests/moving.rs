//! Commands that take the agent elsewhere, or that it takes its time over: what waits for what.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod runner_support;

use runner_support::RunnerFixture;
use serde_json::{Value, json};

fn on(cmd: &str) -> Value {
    json!({"cmd": cmd, "session_id": "s"})
}

fn follow_up(message: &str) -> Value {
    json!({"cmd": "follow_up", "session_id": "s", "message": message})
}

/// A `session.new` that waits for the end of the turn.
fn later(key: &str) -> Value {
    json!({"cmd": "session.new", "session_id": "s", "when_idle": true, "idempotency_key": key})
}

fn is_answered(bench: &RunnerFixture, id: &str) -> bool {
    bench.lines.iter().any(|line| line["type"] == "response" && line["id"] == id)
}

async fn answer(bench: &mut RunnerFixture, id: &str) -> Value {
    bench.find(0, "the answer", |line| line["type"] == "response" && line["id"] == id).await
}

#[tokio::test]
async fn what_waited_does_not_go_along_to_a_new_conversation() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.create("pi").await;
    bench.prompt("work").await;
    bench.ok(follow_up("for the old one")).await;
    let from = bench.lines.len();
    bench.ok(on("session.new")).await;
    let empty = json!({"steering": [], "follow_up": []});
    assert_eq!(bench.state().await["queue"], empty);
    let warnings = bench.warnings(from);
    assert!(warnings.len() == 1 && warnings[0].ends_with(":\nfor the old one"), "{warnings:?}");
    bench.restart(0).await;
    bench.prompt("hello").await;
    bench.until_user_message("hello").await;
    assert_eq!(
        (bench.user_messages(), bench.state().await["queue"].clone()),
        (vec!["work".into(), "hello".into()], empty)
    );
}

#[tokio::test]
async fn what_waited_for_an_agent_is_not_given_to_a_new_conversation() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.create("pi").await;
    bench.prompt("work").await;
    bench.ok(follow_up("for the old one")).await;
    bench.restart(0).await;
    let from = bench.lines.len();
    bench.ok(on("session.new")).await;
    bench
        .find(from, "the warning", |line| {
            line["event"] == "notify" && line["message"].as_str().unwrap().ends_with(":\nfor the old one")
        })
        .await;
    assert_eq!(bench.state().await["queue"]["follow_up"], json!([]));
    assert_eq!(bench.user_messages(), ["work"]);
}

#[tokio::test]
async fn a_command_that_waits_for_an_idle_agent_cuts_nothing_off() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.create("pi").await;
    let from = bench.lines.len();
    bench.prompt("work").await;
    let new = bench.send(later("k1")).await;
    let name = bench.send(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
    // Reads and what acts on the turn pass; the lane is held.
    bench.ok(on("get_stats")).await;
    bench.ok(follow_up("more work")).await;
    assert_eq!(bench.state().await["status"], "working");
    assert!(!is_answered(&bench, &new) && !is_answered(&bench, &name));
    bench.ok(on("abort")).await;
    assert_eq!(answer(&mut bench, &new).await["success"], true);
    assert_eq!(answer(&mut bench, &name).await["success"], true);
    // The queue was read in the turn, so nothing was lost.
    assert_eq!(
        (bench.user_messages(), bench.warnings(from).len()),
        (vec!["work".into(), "more work".into()], 0)
    );
    bench.prompt("work").await;
    // The yes to a prompt comes before its turn begins.
    bench.until_status("working").await;
    let new = bench.send(later("k2")).await;
    bench.ok(json!({"cmd": "_cancel", "session_id": "s", "key": "k2"})).await;
    assert_eq!(answer(&mut bench, &new).await["timed_out"], true);
    assert_eq!(bench.state().await["status"], "working");
    let new = bench.send(later("k3")).await;
    bench.ok(on("get_stats")).await;
    bench.ok(on("session.delete")).await;
    let answer = answer(&mut bench, &new).await;
    assert_eq!((&answer["success"], answer["indeterminate"].as_bool()), (&json!(false), None), "{answer}");
}

#[tokio::test]
async fn a_command_that_waits_for_an_idle_agent_lets_a_cut_off_turn_go_on_first() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.create("pi").await;
    bench.prompt("work").await;
    bench.ok(follow_up("first this")).await;
    bench.restart(0).await;
    let from = bench.lines.len();
    let new = bench.send(later("k1")).await;
    assert_eq!(answer(&mut bench, &new).await["success"], true);
    assert_eq!(bench.user_messages(), ["work", "first this"]);
    let is_loss = |warning: &String| warning.contains("another conversation");
    assert!(!bench.warnings(from).iter().any(is_loss), "{:?}", bench.warnings(from));
}

#[tokio::test]
async fn an_extensions_command_that_asks_holds_up_nobody() {
    let mut bench = RunnerFixture::start(|_| {}).await;
    bench.create("pi").await;
    let from = bench.lines.len();
    let asking = bench.send(json!({"cmd": "prompt", "session_id": "s", "message": "/ask"})).await;
    let request = bench.event(from, "agent.input_needed").await["request"]["request_id"].clone();
    bench.ok(json!({"cmd": "set_session_name", "session_id": "s", "name": "n"})).await;
    assert_eq!(bench.prompt("hello").await["disposition"], "started");
    assert!(!is_answered(&bench, &asking));
    let yes = json!({"cmd": "input_response", "session_id": "s", "request_id": request, "confirmed": true});
    bench.ok(yes).await;
    assert_eq!(answer(&mut bench, &asking).await["success"], true);
}
