//! A second structured harness needs no edit outside its two folders and a row of the table: this one is registered
//! from outside the crate, and the runner runs it like any other.

mod codec;
mod driver;

use crate::support::HELPER;
use crate::support::runner_fixture::{RunnerFixture, on};
use qd_runner::driver::{Harness, HarnessSettings};
use serde_json::{Value, json};

/// The two folders are there; this is the row.
async fn runner(command: &[&str]) -> RunnerFixture {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    RunnerFixture::start(|config| {
        config.harnesses.register(&driver::Parrot, HarnessSettings { command, ..HarnessSettings::default() });
    })
    .await
}

async fn session() -> RunnerFixture {
    let mut runner = runner(&[HELPER, "parrot"]).await;
    runner.create("parrot").await;
    runner
}

fn texts(lines: &[Value], role: &str) -> Vec<String> {
    let ends =
        lines.iter().filter(|line| line["event"] == "stream.message_end" && line["message"]["role"] == role);
    ends.map(|line| line["message"]["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_prompt_goes_through_the_whole_runner() {
    let mut runner = session().await;
    let state = runner.state().await;
    assert_eq!((&state["harness"], &state["status"]), (&json!("parrot"), &json!("idle")));
    assert_eq!(state["capabilities"], json!(["follow_up"]));
    assert!(state["process"]["pid"].is_u64(), "{state}");
    let from = runner.lines.len();
    let answer = runner.prompt("polly wants a cracker").await;
    assert_eq!(answer["disposition"], "started");
    runner.event(from, "agent.idle").await;
    assert_eq!(texts(&runner.lines, "user"), ["polly wants a cracker"]);
    assert_eq!(texts(&runner.lines, "assistant"), ["polly wants a cracker"]);
    // What comes at once may be joined.
    let deltas = runner.lines[from..].iter().filter(|line| line["event"] == "stream.text_delta");
    let words: String = deltas.map(|line| line["delta"].as_str().unwrap()).collect();
    assert_eq!(words, "polly wants a cracker");
    // What nobody knows is passed on.
    assert!(
        runner.lines[from..]
            .iter()
            .any(|line| line["colour"] == "green" || line["payload"]["colour"] == "green")
    );
}

#[tokio::test]
async fn what_waits_can_be_seen_and_changed() {
    let mut runner = session().await;
    runner.prompt("hold on").await;
    runner.until_status("working").await;
    let follow = |text: &str| json!({"cmd": "follow_up", "session_id": "s", "message": text});
    for text in ["one", "two"] {
        let answer = runner.ok(follow(text)).await;
        assert_eq!(answer["disposition"], "queued");
    }
    assert_eq!(runner.state().await["queue"]["follow_up"], json!(["one", "two"]));
    // The agent gives back what it has, and gets what a person wants instead.
    runner.ok(on("queue.set", json!({"steering": [], "follow_up": ["two", "three"]}))).await;
    let from = runner.lines.len();
    let queue = runner.state().await["queue"]["follow_up"].clone();
    assert_eq!(queue, json!(["two", "three"]));
    runner.ok(json!({"cmd": "abort", "session_id": "s"})).await;
    runner.event(from, "agent.idle").await;
}

#[tokio::test]
async fn an_answer_that_cannot_be_passed_on_leaves_its_question_open() {
    let mut runner = session().await;
    let from = runner.lines.len();
    runner.prompt("hold and ask who is a pretty boy").await;
    runner.event(from, "agent.input_needed").await;
    // It can ask, but there is no way to tell it what was answered.
    for _ in 0..2 {
        let answer = runner
            .call(json!({"cmd": "input_response", "session_id": "s", "request_id": "q", "value": "me"}))
            .await;
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!("unsupported")), "{answer}");
    }
    assert!(!runner.lines[from..].iter().any(|line| line["event"] == "agent.input_resolved"));
}

#[tokio::test]
async fn what_it_has_not_is_refused_by_name() {
    let mut runner = session().await;
    for (command, name) in [
        (json!({"cmd": "bash", "session_id": "s", "command": "ls"}), "bash"),
        (json!({"cmd": "compact", "session_id": "s"}), "compact"),
        (json!({"cmd": "navigate_tree", "session_id": "s", "target_id": "x"}), "navigate_tree"),
        (json!({"cmd": "export_html", "session_id": "s"}), "export_html"),
    ] {
        let answer = runner.call(command).await;
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!("unsupported")), "{answer}");
        assert_eq!(answer["error"], format!("parrot does not support '{name}'"));
    }
    // The words of another harness's extension are plain text to this one.
    let from = runner.lines.len();
    runner.prompt("/qd-navigate x").await;
    runner.event(from, "agent.idle").await;
    assert!(texts(&runner.lines, "assistant").contains(&"/qd-navigate x".to_owned()));
}

#[tokio::test]
async fn it_keeps_no_conversations_of_its_own() {
    let mut runner = session().await;
    let stored = runner.ok(json!({"cmd": "runner.stored_sessions"})).await;
    let ours = stored["sessions"].as_array().unwrap().iter().filter(|session| session["session_id"] == "s");
    assert_eq!(ours.count(), 0, "{stored}");
    // A name of one is not looked up: there is nothing to look in.
    let check = json!({"cmd": "session.create", "session_id": "t", "check_only": true,
        "config": {"harness": "parrot", "continue_session": "/etc/passwd"}});
    runner.ok(check).await;
}

#[tokio::test]
async fn its_death_is_told_and_the_next_prompt_starts_it_again() {
    let mut runner = session().await;
    let pid = runner.pid().await;
    let from = runner.lines.len();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let gone = runner.find(from, "its end", |line| line.to_string().contains("The parrot has flown")).await;
    assert_eq!(gone["session_id"], "s", "{gone}");
    let from = runner.lines.len();
    runner.prompt("again").await;
    runner.event(from, "agent.idle").await;
    assert_ne!(runner.pid().await, pid);
}

#[tokio::test]
async fn one_that_is_not_installed_is_refused_with_advice() {
    let mut runner = runner(&[]).await;
    let check = json!({"cmd": "session.create", "session_id": "s", "check_only": true,
        "config": {"harness": driver::Parrot.name()}});
    let answer = runner.call(check).await;
    let error = answer["error"].as_str().unwrap();
    assert!(error.starts_with("parrot is not installed on this runner, which has: demo, pty"), "{error}");
    assert!(error.ends_with("; buy one"), "{error}");
}
