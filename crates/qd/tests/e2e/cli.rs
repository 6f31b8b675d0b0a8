//! The command line against a running server.

mod piped;

use qd_testkit::mux::text_of;
use qd_testkit::qd::Qd;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use crate::{
    assert_fields, demo_with_session, err, failed, out, pi, pi_session, sandbox, session_rows, signal, until,
};

/// Runs a command that must succeed: its stdout.
async fn ok(qd: &Qd, arguments: &[&str]) -> String {
    let output = qd.cli(arguments).await;
    assert_eq!(output.status.code(), Some(0), "qd {arguments:?}: {}{}", out(&output), err(&output));
    out(&output)
}

/// Runs a command that must fail with this code: its stderr.
async fn fail(qd: &Qd, arguments: &[&str], code: i32) -> String {
    let output = qd.cli(arguments).await;
    assert_eq!(output.status.code(), Some(code), "qd {arguments:?}: {}{}", out(&output), err(&output));
    err(&output)
}

/// Runs a command that must succeed with `--json`: its values, one per line.
async fn ok_json(qd: &Qd, arguments: &[&str]) -> Vec<Value> {
    let text = ok(qd, &[arguments, &["--json"]].concat()).await;
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
        .collect()
}

/// Starts a session of the demo agent and leaves it alone: its id.
async fn detached(qd: &Qd, arguments: &[&str]) -> String {
    let run = [&["run", "--detach", "--harness", "demo"], arguments].concat();
    ok(qd, &run).await.trim().to_owned()
}

/// Waits until the newest session of `qd ls` has this in a field.
async fn until_first(qd: &Qd, field: &str, value: impl Into<Value>) {
    let value = value.into();
    until(field, async || {
        let found = &ok_json(qd, &["ls"]).await[0][0][field];
        if *found == value { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
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
    let failed = fail(&qd, &["run", "--harness", "demo", "/error"], 1).await;
    assert!(failed.contains("qd logs"), "{failed}");
    let events = ok_json(&qd, &["run", "--harness", "demo", "/text"]).await;
    assert_eq!(events.last().unwrap()["event"], "agent.idle");
    assert!(events.iter().any(|event| event["event"] == "stream.text_delta"));
    assert_eq!(session_rows(&mut qd.connect().await).await.len(), 5);
}

#[tokio::test]
async fn sessions_are_listed_shown_searched_stopped_and_removed() {
    let qd = sandbox().up().await;
    assert!(ok(&qd, &["ls"]).await.is_empty());
    assert_eq!(ok_json(&qd, &["ls"]).await, [json!([])]);
    let id = detached(&qd, &["--title", "My boat", "/text capstan"]).await;
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
    assert!(session_rows(&mut mux).await.is_empty());
    assert!(!fail(&qd, &["logs", &id], 1).await.is_empty());
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
        assert!(text_of(&last).contains(chosen));
    }
    let from = mux.frames().len();
    ok(&qd, &["send", &session, "/question"]).await;
    mux.wait_since(from, "the question", |frame| frame["event"] == "agent.input_needed").await;
    assert_eq!(ok_json(&qd, &["deny", &session]).await[0]["success"], true);
    mux.until_idle(&session, from).await;
    assert!(fail(&qd, &["approve", &session], 1).await.contains("no open question"));
    assert!(ok(&qd, &["ls", "--waiting"]).await.is_empty());
}

#[tokio::test]
async fn a_working_agent_is_steered_and_aborted_from_the_command_line() {
    let (qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    ok(&qd, &["send", &session, "/long 1000000"]).await;
    mux.wait_event("stream.text_delta").await;
    let refused = fail(&qd, &["send", &session, "more"], 1).await;
    assert!(refused.contains("--steer") || refused.contains("steer"), "{refused}");
    ok(&qd, &["steer", &session, "/text"]).await;
    ok(&qd, &["send", "--follow-up", &session, "/text"]).await;
    let queue = mux.state(&session).await["queue"].clone();
    assert_eq!(queue, json!({"steering": ["/text"], "follow_up": ["/text"]}));
    ok(&qd, &["abort", &session]).await;
    assert_eq!(mux.until_idle(&session, from).await.last().unwrap()["reason"], "aborted");
}

#[tokio::test]
async fn without_a_server_it_says_what_to_do() {
    let sandbox = sandbox();
    for arguments in [&["ls"][..], &["run", "--harness", "demo", "hi"], &["logs"], &["abort", "s1"]] {
        let error = failed(&sandbox.run(arguments).await, 3);
        assert!(error.contains("qd up"), "{error}");
    }
    let output = sandbox.run(&["ls", "--json"]).await;
    let error: Value = serde_json::from_str(err(&output).trim()).unwrap();
    assert!(error["error"].is_string() || error["error"].is_object(), "{error}");
    failed(&sandbox.run(&["frobnicate"]).await, 2);
    failed(&sandbox.run(&["run"]).await, 2);
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
        let missing = fail(&qd, &["approve", &session], 2).await;
        assert!(missing.contains("name: this question needs an answer"), "{missing}");
        assert!(missing.contains("--answer KEY=VALUE"), "{missing}");
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

#[tokio::test]
async fn a_newcomer_sees_a_living_session() {
    let sandbox = sandbox();
    let up = ["up", "--ready-json", "--listen", "127.0.0.1:0"];
    let mut server = sandbox.command(&up).spawn().unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).await.unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(ready["pid"], server.id().unwrap());
    let run =
        async |arguments: &[&str]| sandbox.run(&[&["run", "--harness", "demo"], arguments].concat()).await;
    let answer = crate::ok(&run(&["hello"]).await);
    assert!(answer.contains("demo agent"), "{answer}");
    let tools = crate::ok(&run(&["/tools"]).await);
    assert!(tools.contains("▸ bash") && tools.contains(" ok "), "{tools}");
    let quiet = crate::ok(&run(&["-q", "/tools"]).await);
    assert!(!quiet.contains('▸'), "{quiet}");
    let error = failed(&run(&["/error"]).await, 1);
    assert!(error.contains("error:") && error.contains("hint: show the conversation"), "{error}");
    let events = crate::ok(&run(&["--json", "/text"]).await);
    let last: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    assert_fields(&last, json!({"event": "agent.idle", "reason": "stop"}));
    let newest = crate::ok(&sandbox.run(&["logs"]).await);
    assert!(newest.starts_with("> /text\n"), "{newest}");
    assert!(crate::ok(&sandbox.run(&["search", "hello"]).await).contains("[hello]"));
    let sessions = crate::ok_json(&sandbox.run(&["ls", "--json"]).await);
    assert_eq!(sessions.as_array().unwrap().len(), 5);
    signal(i32::try_from(server.id().unwrap()).unwrap(), Signal::TERM);
    assert!(server.wait().await.unwrap().success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "", "stdout carries the ready line only");
    assert!(!sandbox.data_dir().join("endpoint.json").exists());
}

#[tokio::test]
async fn questions_are_answered_from_another_terminal() {
    let qd = sandbox().up().await;
    let id = detached(&qd, &["/question"]).await;
    until_first(&qd, "pending_input_count", 1).await;
    let asked = fail(&qd, &["approve", &id], 2).await;
    assert!(
        asked.contains("choose one of") && asked.contains("--value") && asked.contains("  2. "),
        "{asked}"
    );
    let logs = ok(&qd, &["logs", &id]).await;
    assert!(logs.contains("  2. ") && logs.contains(&format!("qd approve {id} ")), "{logs}");
    let waiting = ok(&qd, &["ls", "-w"]).await;
    assert!(waiting.contains("\n  ? "), "{waiting}");
    let approved = ok(&qd, &["approve", &id[..id.len() - 2], "--value", "2"]).await;
    assert!(approved.starts_with("? ") && approved.contains("approved"), "{approved}");
    until_first(&qd, "state", "idle").await;
    assert!(fail(&qd, &["deny", &id], 1).await.contains("no open question"));
    ok(&qd, &["stop", &id]).await;
    assert!(ok(&qd, &["stop", &id]).await.contains("already closed"));
    let closed = fail(&qd, &["send", &id, "more"], 1).await;
    assert!(closed.contains(&format!("qd restart {id}")) && !closed.contains("session.restart"), "{closed}");
    ok(&qd, &["restart", &id]).await;
    ok(&qd, &["send", &id, "/text"]).await;
    until_first(&qd, "state", "idle").await;
    ok(&qd, &["stop", &id]).await;
    ok(&qd, &["rm", &id]).await;
    assert_eq!(ok_json(&qd, &["ls"]).await, [json!([])]);
    assert!(fail(&qd, &["logs"], 1).await.contains("no session yet"));
}

#[tokio::test]
async fn a_working_agent_is_steered_and_aborted() {
    let qd = sandbox().up().await;
    let id = detached(&qd, &["/long 100000"]).await;
    let busy = fail(&qd, &["send", &id, "more"], 1).await;
    assert!(busy.contains("--steer") && busy.contains("--follow-up"), "{busy}");
    assert!(!busy.contains("streaming_behavior"), "{busy}");
    ok(&qd, &["steer", &id, "left"]).await;
    assert!(ok(&qd, &["abort", &id]).await.starts_with("aborted"));
    until_first(&qd, "state", "idle").await;
    assert!(ok(&qd, &["abort", &id]).await.contains("nothing to abort"));
}

#[tokio::test]
async fn a_killed_server_leaves_nothing_in_the_way() {
    let qd = sandbox().up().await;
    let token = qd.token().to_owned();
    ok(&qd, &["run", "--harness", "demo", "/text"]).await;
    let before = ok(&qd, &["logs", "--json"]).await;
    let second = fail(&qd, &["up", "--listen", "127.0.0.1:0"], 1).await;
    assert!(second.contains(&format!("pid {}", qd.pid())), "{second}");
    let taken = qd.url().strip_prefix("http://").unwrap();
    assert!(failed(&sandbox().run(&["up", "--listen", taken]).await, 1).contains("--listen"));
    let refused = fail(&qd, &["ls", "--json", "--token", "wrong"], 1).await;
    assert!(refused.contains("401") && refused.contains("\"refused\""), "{refused}");
    assert!(fail(&qd, &["ls", "--url", "garbage"], 2).await.contains("not a URL"));
    let sandbox = qd.kill9().await;
    assert!(failed(&sandbox.run(&["ls"]).await, 3).contains("qd up"));
    let qd = sandbox.up().await;
    assert_eq!(qd.token(), token);
    assert_eq!(ok(&qd, &["logs", "--json"]).await, before);
    qd.terminate().await;
}

#[tokio::test]
async fn wrong_usage_is_told_apart() {
    let sandbox = sandbox();
    for (arguments, says) in [
        (&["fly"][..], ""),
        (&["search", " "], "empty"),
        (&["search", "-n", "0", "x"], ""),
        (&["search", "--role", "captain", "x"], "assistant"),
        (&["up", "--listen", "0.0.0.0:0", "--tls", "off"], "--insecure-bind"),
        (&["ls", "--config", "/no/such.toml"], "/no/such.toml"),
    ] {
        let output = sandbox.run(arguments).await;
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", err(&output));
        assert!(err(&output).contains(says), "{arguments:?}: {}", err(&output));
    }
    let error: Value = serde_json::from_str(&failed(&sandbox.run(&["ls", "--json"]).await, 3)).unwrap();
    assert_eq!(error["error"]["kind"], "unreachable");
    assert!(crate::ok(&sandbox.run(&["completions", "bash"]).await).contains("_qd"));
    assert!(crate::ok(&sandbox.run(&["--help"]).await).contains("qd run --harness demo"));
}
