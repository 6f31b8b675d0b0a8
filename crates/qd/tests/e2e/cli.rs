//! The command line against a running server.

use std::process::Output;

use qd_testkit::mux::Mux;
use qd_testkit::qd::Qd;
use serde_json::{Value, json};

use crate::{demo_with_session, pi, pi_session, sandbox};

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed: its stdout.
async fn ok(qd: &Qd, arguments: &[&str]) -> String {
    let output = qd.cli(arguments).await;
    assert_eq!(output.status.code(), Some(0), "qd {}: {}{}", arguments.join(" "), out(&output), err(&output));
    out(&output)
}

/// The same with `--json`: its values, one per line.
async fn ok_json(qd: &Qd, arguments: &[&str]) -> Vec<Value> {
    let text = ok(qd, &[arguments, &["--json"]].concat()).await;
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

async fn only_session(mux: &mut Mux) -> String {
    let list = mux.ok(json!({"cmd": "list_sessions"})).await;
    list["sessions"][0]["session_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn run_starts_a_session_and_streams_its_answer() {
    let qd = sandbox().up().await;
    let text = ok(&qd, &["run", "--harness", "demo", "hello"]).await;
    assert!(text.contains("I am the demo agent") && text.contains("/thinking"), "{text}");
    let text = ok(&qd, &["run", "--harness", "demo", "--quiet", "/thinking"]).await;
    assert_eq!(text.trim(), "I thought about it first; the thinking is folded away above this answer.");
    let text = ok(&qd, &["run", "--harness", "demo", "/tools"]).await;
    assert!(text.contains("bash") && text.contains("Both tools are done"), "{text}");
    let failed = qd.cli(&["run", "--harness", "demo", "/error"]).await;
    assert_eq!(failed.status.code(), Some(1));
    assert!(err(&failed).contains("qd logs"), "{}", err(&failed));
    let events = ok_json(&qd, &["run", "--harness", "demo", "/text"]).await;
    assert_eq!(events.last().unwrap()["event"], "agent.idle");
    assert!(events.iter().any(|event| event["event"] == "stream.text_delta"));
    let mut mux = qd.connect().await;
    assert_eq!(mux.ok(json!({"cmd": "list_sessions"})).await["sessions"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn sessions_are_listed_shown_searched_stopped_and_removed() {
    let qd = sandbox().up().await;
    assert!(ok(&qd, &["ls"]).await.is_empty());
    assert_eq!(ok_json(&qd, &["ls"]).await, [json!([])]);
    let id = ok(&qd, &["run", "--harness", "demo", "--title", "My boat", "--detach", "/text capstan"])
        .await
        .trim()
        .to_owned();
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": id})).await;
    if mux.state(&id).await["status"] != "idle" {
        mux.wait_event("agent.idle").await;
    }
    let table = ok(&qd, &["ls"]).await;
    assert!(table.contains(&id) && table.contains("My boat") && table.contains("idle"), "{table}");
    assert_eq!(ok_json(&qd, &["ls"]).await[0][0]["title"], "My boat");
    let logs = ok(&qd, &["logs", &id]).await;
    assert!(logs.contains("capstan") && logs.contains("This is a short answer"), "{logs}");
    // The beginning of an id is enough; without one it is the newest.
    assert_eq!(ok(&qd, &["logs", &id[..4]]).await, logs);
    assert_eq!(ok(&qd, &["logs"]).await, logs);
    let messages = ok_json(&qd, &["logs", &id]).await;
    assert_eq!((messages.len(), &messages[1]["role"]), (2, &json!("assistant")));
    assert_eq!(ok_json(&qd, &["logs", &id, "-n", "1"]).await.len(), 1);
    let found = ok(&qd, &["search", "capstan"]).await;
    assert!(found.contains(&id) && found.contains("capstan"), "{found}");
    assert_eq!(ok_json(&qd, &["search", "capstan"]).await[0][0]["session_id"], id.as_str());
    assert_eq!(ok_json(&qd, &["search", "nothing-like-this"]).await, [json!([])]);

    ok(&qd, &["send", &id, "/thinking"]).await;
    mux.wait_for("its end", |frame| frame["event"] == "agent.idle" && frame["reason"] == "stop").await;
    ok(&qd, &["stop", &id]).await;
    assert_eq!(mux.state(&id).await["status"], "closed");
    assert_eq!(ok_json(&qd, &["rm", &id]).await[0]["success"], true);
    assert_eq!(mux.ok(json!({"cmd": "list_sessions"})).await["sessions"], json!([]));
    let gone = qd.cli(&["logs", &id]).await;
    assert_eq!(gone.status.code(), Some(1));
    assert!(!err(&gone).is_empty());
}

#[tokio::test]
async fn questions_are_answered_from_the_command_line() {
    let (qd, mut mux, session) = demo_with_session().await;
    for (arguments, chosen) in [
        (["approve", session.as_str(), "--value", "green"], "green"),
        (["approve", session.as_str(), "--value", "3"], "blue"),
    ] {
        let from = mux.frames().len();
        ok(&qd, &["send", &session, "/question"]).await;
        mux.wait_since(from, "the question", |frame| frame["event"] == "agent.input_needed").await;
        assert!(ok(&qd, &["ls", "--waiting"]).await.contains(&session));
        ok(&qd, &arguments).await;
        mux.until_idle(&session, from).await;
        let last = mux.messages(&session).await.pop().unwrap();
        assert!(qd_testkit::mux::text_of(&last).contains(chosen));
    }
    let from = mux.frames().len();
    ok(&qd, &["send", &session, "/question"]).await;
    mux.wait_since(from, "the question", |frame| frame["event"] == "agent.input_needed").await;
    assert_eq!(ok_json(&qd, &["deny", &session]).await[0]["success"], true);
    mux.until_idle(&session, from).await;
    let nothing = qd.cli(&["approve", &session]).await;
    assert_eq!(nothing.status.code(), Some(1));
    assert!(err(&nothing).contains("no open question"));
    assert!(ok(&qd, &["ls", "--waiting"]).await.is_empty());
}

#[tokio::test]
async fn a_working_agent_is_steered_and_aborted_from_the_command_line() {
    let (qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    ok(&qd, &["send", &session, "/long 1000000"]).await;
    mux.wait_event("stream.text_delta").await;
    let refused = qd.cli(&["send", &session, "more"]).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).contains("--steer") || err(&refused).contains("steer"), "{}", err(&refused));
    ok(&qd, &["steer", &session, "/text"]).await;
    ok(&qd, &["send", "--follow-up", &session, "/text"]).await;
    let queue = mux.state(&session).await["queue"].clone();
    assert_eq!(queue, json!({"steering": ["/text"], "follow_up": ["/text"]}));
    ok(&qd, &["abort", &session]).await;
    assert_eq!(mux.until_idle(&session, from).await.last().unwrap()["reason"], "aborted");
}

/// Follows a session with this on stdin.
async fn attach_with_input(qd: &Qd, session: &str, input: &[u8]) -> Output {
    let mut command = qd.sandbox().command(&["attach", session]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, input).await.unwrap();
    drop(stdin);
    tokio::time::timeout(qd_testkit::mux::WAIT_MAX, child.wait_with_output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_pipe_attached_to_a_session_talks_to_it() {
    let (qd, mut mux, session) = demo_with_session().await;
    let output = attach_with_input(&qd, &session, b"/thinking\n").await;
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(out(&output).contains("I thought about it first"), "{}", out(&output));
    assert_eq!(mux.messages(&session).await.len(), 2);
}

#[tokio::test]
async fn run_works_after_the_server_was_killed_and_started_again() {
    let qd = sandbox().up().await;
    ok(&qd, &["run", "--harness", "demo", "/text"]).await;
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    let session = only_session(&mut mux).await;
    // The agent of an old session is started for the prompt; the whole answer must be waited for.
    let output = attach_with_input(&qd, &session, b"/thinking\n").await;
    assert!(out(&output).contains("above this answer."), "{}{}", out(&output), err(&output));
}

#[tokio::test]
async fn without_a_server_it_says_what_to_do() {
    let sandbox = sandbox();
    for arguments in [&["ls"][..], &["run", "--harness", "demo", "hi"], &["logs"], &["abort", "s1"]] {
        let output = sandbox.run(arguments).await;
        assert_eq!(output.status.code(), Some(3), "{}", err(&output));
        assert!(err(&output).contains("qd up"), "{}", err(&output));
    }
    let output = sandbox.run(&["ls", "--json"]).await;
    let error: Value = serde_json::from_str(err(&output).trim()).unwrap();
    assert!(error["error"].is_string() || error["error"].is_object(), "{error}");
    assert_eq!(sandbox.run(&["frobnicate"]).await.status.code(), Some(2));
    assert_eq!(sandbox.run(&["run"]).await.status.code(), Some(2));
}

#[tokio::test]
async fn the_doctor_looks_and_completions_are_printed() {
    let qd = sandbox().up().await;
    let text = ok(&qd, &["doctor"]).await;
    assert!(text.contains("pi") && text.contains("demo"), "{text}");
    let report = &ok_json(&qd, &["doctor"]).await[0];
    let check = |name: &str| {
        report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap()["health"]
            .clone()
    };
    assert_eq!((&report["ok"], check("demo"), check("pi")), (&json!(true), json!("ok"), json!("warning")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(ok(&qd, &["completions", shell]).await.contains("qd"), "{shell}");
    }
    for arguments in [&["--help"][..], &["--version"], &["run", "--help"]] {
        assert!(!ok(&qd, arguments).await.is_empty());
    }
}

#[tokio::test]
async fn a_form_is_shown_and_answered_by_its_keys() {
    let (qd, mut mux, _llm) = pi().await;
    let extension = qd_testkit::pi::test_extension("interview.ts");
    let session = pi_session(&qd, &mut mux, json!({"extensions": [extension]})).await;
    let answers = [
        (
            &["--answer", "name=Bob", "--answer", "kind=2"][..],
            r#"ask-interview: {"kind":"library","name":"Bob"}"#,
        ),
        (&["--answers", r#"{"name":"Eve"}"#], r#"ask-interview: {"kind":"app","name":"Eve"}"#),
    ];
    for (given, expected) in answers {
        mux.send(json!({"cmd": "prompt", "session_id": session, "message": "/ask-interview"})).await;
        mux.wait_event("agent.input_needed").await;
        assert!(ok(&qd, &["ls", "--waiting"]).await.contains("? New project"));
        let logs = ok(&qd, &["logs", &session]).await;
        assert!(logs.contains("name: What is it called? (required)"), "{logs}");
        let missing = qd.cli(&["approve", &session]).await;
        assert_eq!(missing.status.code(), Some(2));
        assert!(err(&missing).contains("name: this question needs an answer"), "{}", err(&missing));
        assert!(err(&missing).contains("--answer KEY=VALUE"), "{}", err(&missing));
        let from = mux.frames().len();
        ok(&qd, &[&["approve", session.as_str()], given].concat()).await;
        let is_told = |frame: &Value| {
            let told: Option<Value> = frame["message"].as_str().and_then(parsed);
            frame["event"] == "notify" && told == parsed(expected)
        };
        mux.wait_since(from, expected, is_told).await;
    }
}

/// What an extension told, whatever the order of its keys.
fn parsed(told: &str) -> Option<Value> {
    serde_json::from_str(told.strip_prefix("ask-interview: ")?).ok()
}
