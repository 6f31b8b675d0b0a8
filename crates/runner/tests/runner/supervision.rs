//! Supervision with real processes: stopped, hung, silent and deaf agents.

use std::time::Duration;

use crate::support::runner_fixture::{RunnerFixture, quick};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[tokio::test]
async fn a_stopped_agent_is_unresponsive_until_it_answers() {
    let mut runner = RunnerFixture::session_with("pi", |config| config.supervision = quick(None)).await;
    let pid = runner.pid().await;
    let from = runner.lines.len();
    signal(pid, Signal::STOP);
    let warning = runner.event(from, "notify").await;
    assert!(warning["message"].as_str().unwrap().contains("does not respond"), "{warning}");
    assert_eq!(runner.state().await["status_texts"]["qd.health"], "The agent does not respond");
    signal(pid, Signal::CONT);
    runner.find(from, "the all-clear", |line| line["key"] == "qd.health" && line["text"].is_null()).await;
    runner.prompt("hello").await;
    runner.find(from, "the answer", |line| line["event"] == "agent.idle" && line["reason"] == "stop").await;
    assert_eq!(runner.warnings(from).len(), 1);
    assert_eq!(runner.pid().await, pid);
}

#[tokio::test]
async fn a_hung_agent_is_killed_started_again_and_gets_what_waited() {
    let mut runner = RunnerFixture::session_with("pi", |config| config.supervision = quick(Some(600))).await;
    runner.prompt("work").await;
    let waiting = json!({"cmd": "follow_up", "session_id": "s", "message": "waited"});
    assert_eq!(runner.ok(waiting).await["disposition"], "queued");
    let (pid, from) = (runner.pid().await, runner.lines.len());
    signal(pid, Signal::STOP);
    let cut = json!({"cmd": "follow_up", "session_id": "s", "message": "cut off", "idempotency_key": "k"});
    let cut = runner.send(cut).await;
    let error = runner.event(from, "agent.error").await;
    assert!(error["error"].as_str().unwrap().contains("The agent hung"), "{error}");
    assert_eq!(error["recoverable"], true);
    let idle =
        runner.find(from, "the end", |line| line["event"] == "agent.idle" && line["reason"].is_string());
    assert_eq!(idle.await["reason"], "error");
    assert_eq!(runner.event(from, "session.created").await["resumed"], true);
    let answer = runner.find(from, "the answer", |line| line["id"] == cut.as_str()).await;
    assert_eq!(answer["indeterminate"], true, "{answer}");
    let is_told = |line: &Value| line["message"].as_str().is_some_and(|text| text.contains("(cut off)"));
    assert!(runner.find(from, "the note", is_told).await["seq"].is_u64(), "it stays in the history");
    runner.find(from, "what waited", |line| line["event"] == "agent.idle" && line["reason"] == "stop").await;
    assert_eq!(runner.user_messages(), ["work", "waited"]);
    assert_ne!(runner.pid().await, pid);
}

#[tokio::test]
async fn a_silent_tool_is_named_and_not_killed() {
    let mut runner = RunnerFixture::session_with("pi", |config| config.supervision = quick(Some(400))).await;
    let pid = runner.pid().await;
    let from = runner.lines.len();
    runner.prompt("tool").await;
    for _ in 0..3 {
        let from = runner.lines.len();
        let text = runner.find(from, "a renewed text", |line| line["key"] == "qd.health").await;
        assert!(text["text"].as_str().unwrap().starts_with("Running bash for "), "{text}");
    }
    runner.ok(json!({"cmd": "abort", "session_id": "s"})).await;
    runner.find(from, "the all-clear", |line| line["key"] == "qd.health" && line["text"].is_null()).await;
    assert_eq!(runner.warnings(from), [""; 0]);
    assert_eq!(runner.pid().await, pid);
}

#[tokio::test]
async fn a_silent_agent_that_answers_is_told_once_and_not_killed() {
    let mut runner = RunnerFixture::session_with("pi", |config| config.supervision = quick(Some(400))).await;
    let pid = runner.pid().await;
    let from = runner.lines.len();
    runner.prompt("work").await;
    let warning = runner.event(from, "notify").await;
    assert!(warning["message"].as_str().unwrap().contains("while it was generating"), "{warning}");
    // A second of heartbeats: the patience with an agent that does not answer is long over.
    let mut at = from;
    for _ in 0..5 {
        let beat = runner.event(at, "session.heartbeat").await;
        assert!(beat["process"]["rss_bytes"].as_u64().unwrap() > 0 && beat["process"]["alive"] == true);
        at = runner.lines.len();
    }
    assert_eq!(runner.warnings(from).len(), 1);
    assert_eq!(runner.health(from), [json!("The agent is silent")]);
    assert_eq!(runner.pid().await, pid);
}

#[tokio::test]
async fn an_agent_that_closes_its_output_is_ended() {
    let mut runner = RunnerFixture::session_with("pi", |config| config.supervision = quick(None)).await;
    let from = runner.lines.len();
    runner.send(json!({"cmd": "prompt", "session_id": "s", "message": "close"})).await;
    let error = runner.event(from, "agent.error").await;
    assert!(error["error"].as_str().unwrap().contains("closed its output"), "{error}");
    assert_eq!(runner.state().await["status"], "failed");
    let from = runner.lines.len();
    runner.prompt("again").await;
    runner.find(from, "the answer", |line| line["event"] == "agent.idle" && line["reason"] == "stop").await;
    assert_eq!(runner.user_messages(), ["close", "again"]);
}

#[tokio::test]
async fn the_end_of_a_process_is_told_with_its_signal() {
    let mut runner = RunnerFixture::with_session("pi").await;
    for (number, name) in [(Signal::ABORT, "SIGABRT"), (Signal::TERM, "SIGTERM"), (Signal::KILL, "SIGKILL")] {
        let pid = runner.pid().await;
        let from = runner.lines.len();
        signal(pid, number);
        let error = runner.event(from, "agent.error").await;
        assert!(error["error"].as_str().unwrap().contains(name), "{error}");
        runner.ok(json!({"cmd": "session.restart", "session_id": "s"})).await;
    }
    let from = runner.lines.len();
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    assert_eq!(runner.event(from, "session.closed").await["reason"], "closed by a client");
    assert!(runner.state().await.get("process").is_none(), "no figures without a process");
}

#[tokio::test]
async fn the_heartbeat_of_the_runner_has_the_figures_of_its_agents() {
    let mut runner = RunnerFixture::session_with("pi", |config| {
        config.supervision = quick(None);
        config.supervision.sample = Duration::from_millis(10);
    })
    .await;
    let other = json!({"cmd": "session.create", "session_id": "closed", "config": {"harness": "pi"}});
    runner.ok(other).await;
    runner.ok(json!({"cmd": "session.close", "session_id": "closed"})).await;
    let from = runner.lines.len();
    let beat = runner.find(from, "a heartbeat", |line| line["type"] == "runner.heartbeat").await;
    let sessions = beat["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 1, "only agents that run: {beat}");
    assert_eq!((&sessions[0]["session_id"], &sessions[0]["harness"]), (&json!("s"), &json!("pi")), "{beat}");
    assert_eq!(sessions[0]["process"]["pid"], runner.pid().await);
}
