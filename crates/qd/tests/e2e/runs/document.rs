//! The document's own examples and flows, from a client's side.

use serde_json::json;

use super::{app, app_with_cat, fields, start, type_in};
use crate::{assert_fields, on, sandbox};
use qd_testkit::run_app::RunApp;

#[tokio::test]
async fn a_run_is_started_watched_typed_into_and_exits() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "read -r line; echo got:$line").await;
    let started = app.event(&run, "run.started").await;
    assert_eq!(started["host_id"], host);
    assert!(started["seq"].is_u64(), "{started}");
    let ts = started["ts"].as_str().unwrap();
    assert!(ts.ends_with('Z') && ts.as_bytes()[10] == b'T', "RFC 3339: {ts}");
    assert_fields(&started, json!({"data/tool": "test", "data/cwd": qd.sandbox().work().to_str().unwrap()}));
    assert!(started["data"]["command"].as_str().unwrap().contains("read -r line"), "{started}");
    let input_id = RunApp::new_id();
    app.send("run.send_input", &run, json!({"input_id": input_id, "text": "hello\n"})).await;
    let input = app.event(&run, "run.input").await;
    assert_eq!(input["data"]["actor"], "web");
    assert_eq!(input["data"]["input_id"], input_id);
    assert_eq!(input["data"]["text_redacted"], "hello\n");
    let digest = input["data"]["text_sha256"].as_str().unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
    app.wait_output(&run, "got:hello").await;
    let exited = app.event(&run, "run.exited").await;
    assert_eq!(exited["data"]["exit_code"], 0);
    let seqs: Vec<u64> = app.seqs(&run).iter().map(|(_, seq)| *seq).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "numbers only grow: {seqs:?}");
    assert_eq!(app.seqs(&run).last().unwrap().0, "run.exited");
}

#[tokio::test]
async fn output_says_its_stream_and_text() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "echo out; echo err >&2").await;
    app.event(&run, "run.exited").await;
    let output = app.frames().iter().find(|frame| frame["type"] == "run.output").unwrap().clone();
    assert_eq!(fields(&output["data"]), ["stream", "text"], "{output}");
    assert_eq!(output["data"]["stream"], "stdout");
    assert_eq!(app.output(&run), "out\r\nerr\r\n");
}

#[tokio::test]
async fn exit_codes_and_signals_are_told() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "exit 7").await;
    assert_eq!(app.event(&run, "run.exited").await["data"]["exit_code"], 7);
    let run = start(&qd, &mut app, &host, "kill -KILL $$").await;
    let exited = app.event(&run, "run.exited").await;
    assert_fields(&exited, json!({"data/exit_code": -1, "data/signal": 9}));
}

#[tokio::test]
async fn stop_ends_a_run_and_int_only_interrupts() {
    let (qd, mut app, host) = app().await;
    let cmd = "trap 'echo interrupted' INT; echo ready; while :; do sleep 0.1; done";
    let run = start(&qd, &mut app, &host, cmd).await;
    app.wait_output(&run, "ready").await;
    app.send("run.stop", &run, json!({"signal": "int"})).await;
    app.wait_output(&run, "interrupted").await;
    let response = app.rpc("rpc.run.stop", &run, json!({"signal": "term", "actor": "cli"})).await;
    assert_fields(&response, json!({"data/ok": true, "data/result/signal": "term"}));
    app.event(&run, "run.exited").await;
}

#[tokio::test]
async fn an_input_is_written_once_for_its_id_also_over_http_and_after_a_restart_of_the_hub() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "stty -echo; while read -r line; do echo got:$line; done").await;
    app.event(&run, "run.started").await;
    let input_id = RunApp::new_id();
    let input = json!({"input_id": input_id, "text": "one\n"});
    for _ in 0..3 {
        app.send("run.send_input", &run, input.clone()).await;
    }
    let answer = qd.http("POST", &format!("/runs/{run}/input"), Some(&input)).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    type_in(&mut app, &run, "two\n").await;
    app.wait_output(&run, "got:two").await;
    assert_eq!(app.output(&run).matches("got:one").count(), 1, "{}", app.output(&run));
    let inputs = app.frames().iter().filter(|frame| frame["type"] == "run.input").count();
    assert_eq!(inputs, 2);
}

#[tokio::test]
async fn http_input_has_the_documented_answers() {
    let (qd, _app, _host, run) = app_with_cat().await;
    let body = json!({"input_id": RunApp::new_id(), "text": "x\n"});
    let answer = qd.http("POST", "/runs/run-nowhere/input", Some(&body)).await;
    assert_eq!((answer.status, answer.text().trim()), (404, "unknown run_id"));
    let path = format!("/runs/{run}/input");
    for (token, text) in [(None, "missing bearer token"), (Some("wrong"), "invalid token")] {
        let answer = qd.http_as(token, "POST", &path, Some(&body)).await;
        assert_eq!((answer.status, answer.text().trim()), (401, text));
    }
}

#[tokio::test]
async fn login_gives_a_token_that_opens_the_app() {
    let qd = sandbox().up().await;
    let person = json!({"username": "ann", "password": "correct horse battery", "role": "operator"});
    let added = qd.http("POST", "/api/people", Some(&person)).await;
    assert!(added.status < 300, "{} {}", added.status, added.text());
    let wrong = json!({"username": "ann", "password": "wrong"});
    let refused = qd.http_as(None, "POST", "/auth/login", Some(&wrong)).await;
    assert_eq!((refused.status, &refused.json()["error"]), (401, &json!("invalid credentials")));
    let right = json!({"username": "ann", "password": "correct horse battery"});
    let answer = qd.http_as(None, "POST", "/auth/login", Some(&right)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let answer = answer.json();
    assert_eq!(fields(&answer), ["access_token"]);
    let mut app = RunApp::connect(qd.url(), answer["access_token"].as_str().unwrap()).await;
    let host = qd.runner_id().await;
    // Somebody who is no owner stays within `workspace_roots`, which is the home directory.
    let elsewhere = json!({"host_id": host, "tool": "test", "cmd": "true", "cwd": "/tmp"});
    let elsewhere = app.rpc("rpc.run.start", "", elsewhere).await;
    assert_eq!(elsewhere["data"]["code"], "permission_denied", "{elsewhere}");
    let home = qd.sandbox().home();
    let run = app.start(&host, "echo hi", home.to_str().unwrap()).await;
    app.event(&run, "run.exited").await;
}

#[tokio::test]
async fn subscriptions_narrow_what_comes_and_since_seq_replays() {
    let (qd, mut app, host) = app().await;
    let first = start(&qd, &mut app, &host, "echo first; cat").await;
    app.wait_output(&first, "first").await;
    let second = start(&qd, &mut app, &host, "echo second; cat").await;
    app.wait_output(&second, "second").await;
    let mut late = qd.run_app().await;
    late.send("run.subscribe", &first, json!({"since_seq": 0})).await;
    late.event(&first, "run.started").await;
    late.wait_output(&first, "first").await;
    type_in(&mut app, &second, "unseen\n").await;
    app.wait_output(&second, "unseen").await;
    type_in(&mut app, &first, "seen\n").await;
    // The terminal echoes it, and `cat` repeats it.
    late.wait_output(&first, "seen\r\nseen\r\n").await;
    app.wait_output(&first, "seen\r\nseen\r\n").await;
    assert_eq!(late.output(&second), "", "a subscription narrows the output");
    assert_eq!(late.output(&first), app.output(&first));
    let seqs: Vec<u64> = late.seqs(&first).iter().map(|(_, seq)| *seq).collect();
    let mut once = seqs.clone();
    once.dedup();
    assert_eq!(seqs, once, "nothing comes twice");
}

#[tokio::test]
async fn sessions_of_other_agents_are_runs_too() {
    let (qd, mut app, _host) = app().await;
    let mut mux = qd.connect().await;
    let session = mux.create(json!({"harness": "demo"})).await;
    let started = app.event(&session, "run.started").await;
    assert_eq!(started["data"]["tool"], "demo");
    type_in(&mut app, &session, "hello\n").await;
    app.event(&session, "run.output").await;
    let waiting = app.event(&session, "run.awaiting_input").await;
    assert_eq!(waiting["data"]["reason"], "prompt");
    mux.ok(on(&session, "session.close")).await;
    app.event(&session, "run.exited").await;
}

#[tokio::test]
async fn malformed_frames_get_an_error_and_harm_nothing() {
    let (qd, mut app, host) = app().await;
    for (text, about) in [
        ("{", None),
        ("[]", None),
        ("{}", None),
        (r#"{"type":"nonsense","ts":"2026-01-01T00:00:00Z"}"#, Some("nonsense")),
        (r#"{"type":"run.send_input","run_id":"x","data":{"text":"no id"}}"#, Some("run.send_input")),
        (r#"{"type":"rpc.fs.read","run_id":"x","data":{"path":"a"}}"#, Some("rpc.fs.read")),
        (r#"{"type":"run.stop","data":{}}"#, Some("run.stop")),
        (r#"{"type":"run.resize","run_id":"x","data":{"cols":"wide"}}"#, Some("run.resize")),
    ] {
        let from = app.count();
        app.send_text(text).await;
        let error = app.wait_since(from, text, |frame| frame["type"] == "error").await;
        assert!(error["data"]["error"].as_str().is_some_and(|error| !error.is_empty()), "{error}");
        if let Some(about) = about {
            assert_eq!(error["data"]["about"], about, "{error}");
        }
    }
    let run = start(&qd, &mut app, &host, "echo alive").await;
    app.wait_output(&run, "alive").await;
}
