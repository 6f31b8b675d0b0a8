//! Gates and questions: asked with everything a person needs, answered once, bound to what was asked, kept through
//! restarts.

use serde_json::{Value, json};

use super::{app, app_with_cat, approve, assert_nowhere, gated, gated_and_approved, start, type_in};
use crate::assert_fields;

#[tokio::test]
async fn a_write_waits_for_a_yes_and_shows_all_of_it() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let content = format!("key = {}\n", "a1B2c3D4".repeat(40));
    let from = app.count();
    let (request_id, question) =
        gated(&mut app, "rpc.fs.write", &run, json!({"path": "a.txt", "content": content})).await;
    assert_eq!((&question["reason"], &question["op_tool"]), (&json!("permission"), &json!("rpc.fs.write")));
    assert_eq!(question["op_args"]["content"], content, "who decides sees everything");
    assert_eq!(question["op_args"]["path"], "a.txt");
    assert!(question["op_args_summary"].as_str().unwrap().chars().count() <= 81, "{question}");
    assert_eq!((&question["approve_text"], &question["deny_text"]), (&json!(""), &json!("")));
    assert!(!qd.sandbox().work().join("a.txt").exists(), "nothing is written before the answer");
    let mut second = qd.run_app().await;
    approve(&mut second, &run, &question).await;
    let response = app.response(from, &request_id).await;
    assert_eq!(response["data"]["ok"], true, "{response}");
    assert_eq!(response["data"]["rpc_type"], "rpc.fs.write");
    assert_eq!(response["data"]["result"]["bytes_written"], content.len());
    assert_eq!(std::fs::read_to_string(qd.sandbox().work().join("a.txt")).unwrap(), content);
    let decided = app.event(&run, "run.permission_decided").await;
    assert_eq!(decided["data"]["decision"], "approve", "{decided}");
    let is_call = |frame: &&Value| frame["type"] == "tool.call" || frame["type"] == "tool.result";
    let calls: Vec<&Value> = app.frames().iter().filter(is_call).collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(!calls[0].to_string().contains("a1B2c3D4a1B2"), "the record has no contents: {}", calls[0]);
    assert_eq!(calls[1]["data"]["ok"], true);
    assert!(calls[1]["data"]["duration_ms"].is_u64());
}

#[tokio::test]
async fn a_denied_command_does_not_run() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let from = app.count();
    let (request_id, question) = gated(&mut app, "rpc.bash", &run, json!({"cmd": "touch ran"})).await;
    assert_fields(&question, json!({"op_tool": "bash", "op_args/cmd": "touch ran"}));
    app.send("run.permission.deny", &run, json!({"request_id": question["request_id"]})).await;
    let response = app.response(from, &request_id).await;
    assert_eq!((&response["data"]["ok"], &response["data"]["error"]), (&json!(false), &json!("denied")));
    assert!(!qd.sandbox().work().join("ran").exists());
    // The loser of two answers is told.
    let from = app.count();
    approve(&mut app, &run, &question).await;
    let (_, error) = app.since(from, "an error", |frame| frame["type"] == "error").await;
    assert!(error["data"]["error"].as_str().unwrap().contains("already answered"), "{error}");
}

#[tokio::test]
async fn a_failed_command_keeps_both_its_streams() {
    let (_qd, mut app, _host, run) = app_with_cat().await;
    let cmd = json!({"cmd": "echo out; echo err >&2; exit 3"});
    let response = gated_and_approved(&mut app, "rpc.bash", &run, cmd).await;
    assert_eq!(response["data"]["ok"], false);
    assert!(response["data"]["error"].as_str().unwrap().starts_with("bash exited with code 3"), "{response}");
    let result = &response["data"]["result"];
    assert_eq!((&result["stdout"], &result["stderr"]), (&json!("out\n"), &json!("err\n")), "{response}");
}

#[tokio::test]
async fn allowed_for_the_session_counts_for_its_own_tool_only() {
    let (qd, mut app, host, run) = app_with_cat().await;
    let from = app.count();
    let (request_id, question) = gated(&mut app, "rpc.bash", &run, json!({"cmd": "echo one"})).await;
    let decision = json!({
        "request_id": question["request_id"], "decision": "approve_for_session",
        "allow_tools": ["bash", "rpc.fs.write"]
    });
    app.send("run.permission.approve", &run, decision).await;
    assert_eq!(app.response(from, &request_id).await["data"]["ok"], true);
    let response = app.rpc("rpc.bash", &run, json!({"cmd": "echo two"})).await;
    assert_eq!(response["data"]["result"]["stdout"], "two\n", "it is not asked again: {response}");
    let (_, question) = gated(&mut app, "rpc.fs.write", &run, json!({"path": "b", "content": "x"})).await;
    assert_eq!(question["op_tool"], "rpc.fs.write", "another tool is asked for");
    let other = start(&qd, &mut app, &host, "cat").await;
    let (_, question) = gated(&mut app, "rpc.bash", &other, json!({"cmd": "echo three"})).await;
    assert_eq!(question["op_tool"], "bash", "another session is asked for");
}

#[tokio::test]
async fn questions_on_the_screen_can_be_answered_and_never_block() {
    let (qd, mut app, host) = app().await;
    let cmd = "echo 'Tests confirm the fix works'; printf 'Proceed? (y/n) '; read -r answer; echo said:$answer; \
               printf 'Proceed? (y/n) '; read -r answer; echo then:$answer";
    let run = start(&qd, &mut app, &host, cmd).await;
    let question = app.event(&run, "run.permission_requested").await["data"].clone();
    assert!(question["prompt"].as_str().unwrap().contains("Proceed?"), "{question}");
    let waiting = app.event(&run, "run.awaiting_input").await;
    assert_eq!(waiting["data"]["request_id"], question["request_id"]);
    approve(&mut app, &run, &question).await;
    app.wait_output(&run, "said:y").await;
    app.event(&run, "run.permission_requested").await;
    type_in(&mut app, &run, "no\n").await;
    app.wait_output(&run, "then:no").await;
    app.event(&run, "run.exited").await;
}

#[tokio::test]
async fn a_password_is_asked_for_and_never_stored() {
    let (qd, mut app, host) = app().await;
    let run =
        start(&qd, &mut app, &host, "read -rs -p 'Password: ' word; echo; echo length:${#word}; cat").await;
    app.event(&run, "run.awaiting_input").await;
    type_in(&mut app, &run, "hunter2-secret\n").await;
    app.wait_output(&run, "length:14").await;
    let input = app.event(&run, "run.input").await;
    assert!(!input.to_string().contains("hunter2"), "{input}");
    qd.http("GET", "/healthz", None).await;
    let sandbox = qd.terminate().await;
    assert_nowhere(&sandbox.data_dir(), "hunter2-secret");
}

#[tokio::test]
async fn a_gated_call_survives_a_kill_and_is_done_when_it_is_approved() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let (_, question) =
        gated(&mut app, "rpc.fs.write", &run, json!({"path": "late.txt", "content": "late"})).await;
    let qd = qd.restart().await;
    let mut app = qd.run_app().await;
    let mut mux = qd.connect().await;
    let state = mux.state(&run).await;
    assert_eq!(state["pending_input"][0]["request_id"], question["request_id"], "{state}");
    approve(&mut app, &run, &question).await;
    let result = app.event(&run, "tool.result").await;
    assert_eq!(result["data"]["ok"], true, "{result}");
    assert_eq!(std::fs::read_to_string(qd.sandbox().work().join("late.txt")).unwrap(), "late");
}

/// Whoever decides sees everything, also after a crash; what is kept when it is decided has no secrets.
#[tokio::test]
async fn a_secret_in_a_question_is_shown_to_who_decides_and_not_kept() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let secret = "ghp_Z9b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let cmd = format!("GITHUB_TOKEN={secret}; echo length:${{#GITHUB_TOKEN}} > seen");
    let (_, question) = gated(&mut app, "rpc.bash", &run, json!({ "cmd": cmd })).await;
    assert_eq!(question["op_args"]["cmd"], cmd, "{question}");
    let qd = qd.restart().await;
    let mut app = qd.run_app().await;
    let mut mux = qd.connect().await;
    let state = mux.state(&run).await;
    assert!(state["pending_input"].to_string().contains(secret), "{state}");
    approve(&mut app, &run, &question).await;
    let result = app.event(&run, "tool.result").await;
    assert_eq!(result["data"]["ok"], true, "{result}");
    assert_eq!(std::fs::read_to_string(qd.sandbox().work().join("seen")).unwrap(), "length:40\n");
    let history = qd.http("GET", &format!("/runs/{run}/messages?limit=100"), None).await.json().to_string();
    assert!(history.contains("***REDACTED***; echo length:"), "{history}");
    assert!(!history.contains(secret), "{history}");
    let sandbox = qd.terminate().await;
    assert_nowhere(&sandbox.data_dir(), secret);
}
