//! Each hole that was found by attacking the original (`reference/run-notes.md` §7), by its number: the attack is
//! made, and does nothing. Those that are about one part alone are tested beside that part, under the same names.
#![allow(clippy::disallowed_methods, reason = "a promise about time is tested")]

use std::os::unix::fs::PermissionsExt;

use qd_testkit::run_app::RunApp;
use serde_json::{Value, json};

use super::{app, app_with_cat, approve, assert_nowhere, exited, gated, gated_and_approved, start, type_in};
use crate::{assert_fields, restarted, sandbox};

/// The error frame that answers what `send` sends.
async fn error_after(app: &mut RunApp, kind: &str, run: &str, data: Value) -> String {
    let from = app.count();
    app.send(kind, run, data).await;
    let (_, frame) = app.since(from, "an error", |frame| frame["type"] == "error").await;
    frame["data"]["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn hole_01_a_rogue_host_is_not_let_in_and_reaches_nobodys_run() {
    let (qd, mut app, host, run) = app_with_cat().await;
    let address = format!("{}/ws/host?host_id=host-rogue&host_token=guess", qd.url());
    let refused = qd_testkit::json_socket::JsonSocket::open(&address, &[]).await.err().unwrap();
    assert!(refused.contains("401") || refused.contains("403"), "{refused}");
    let added = qd.http("POST", "/api/hosts", Some(&json!({"host_id": "host-known"}))).await.json();
    let token = added["host_token"].as_str().unwrap();
    let address = format!("{}/ws/host?host_id=host-known&host_token={token}", qd.url());
    let mut rogue = qd_testkit::json_socket::JsonSocket::open(&address, &[]).await.unwrap();
    let mut spoofed = json!({
        "type": "run.output", "ts": "2026-01-01T00:00:00Z", "host_id": host, "run_id": run, "seq": 50,
        "data": {"stream": "stdout", "text": "spoofed"}
    });
    rogue.send_text(&spoofed.to_string()).await;
    rogue.wait_for("an error", |frame| frame["type"] == "error").await;
    type_in(&mut app, &run, "my-sudo-password\n").await;
    app.wait_output(&run, "my-sudo-password").await;
    assert!(!app.output(&run).contains("spoofed"));
    // The answer to an attempt at another run comes after whatever it was sent before.
    let other = start(&qd, &mut app, &host, "cat").await;
    spoofed["run_id"] = other.into();
    rogue.send_text(&spoofed.to_string()).await;
    rogue.wait_for("an error", |frame| frame["type"] == "error").await;
    assert!(!rogue.frames().iter().any(|frame| frame.to_string().contains("my-sudo-password")));
}

#[tokio::test]
async fn hole_02_a_made_up_decision_opens_no_gate() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    for kind in ["run.permission.deny", "run.permission.approve"] {
        let made_up = json!({"request_id": RunApp::new_id(), "decision": "approve_for_session", "allow_tools": ["bash"]});
        let error = error_after(&mut app, kind, &run, made_up).await;
        assert!(!error.is_empty());
    }
    gated(&mut app, "rpc.bash", &run, json!({"cmd": "touch ran"})).await;
    assert!(!qd.sandbox().work().join("ran").exists());
}

#[tokio::test]
async fn hole_03_a_dangling_symlink_creates_nothing_outside() {
    let (qd, mut app, host) = app().await;
    let outside = qd.sandbox().path("outside.txt");
    std::os::unix::fs::symlink(&outside, qd.sandbox().work().join("link.txt")).unwrap();
    let run = start(&qd, &mut app, &host, "cat").await;
    let from = app.count();
    let request_id = app.begin_rpc("rpc.fs.write", &run, json!({"path": "link.txt", "content": "x"})).await;
    let is_next = |frame: &Value| {
        frame["type"] == "run.permission_requested"
            || (frame["type"] == "rpc.response" && frame["data"]["request_id"] == request_id)
    };
    let (_, next) = app.since(from, "a question or an answer", is_next).await;
    if next["type"] == "run.permission_requested" {
        approve(&mut app, &run, &next["data"]).await;
    }
    let response = app.response(from, &request_id).await;
    assert_eq!(response["data"]["ok"], false, "{response}");
    assert!(!outside.exists());
}

#[tokio::test]
async fn hole_04_a_search_is_text_and_never_an_argument() {
    let (qd, mut app, host) = app().await;
    std::fs::write(qd.sandbox().path("secret"), "top-secret-line\n").unwrap();
    std::fs::write(qd.sandbox().work().join("a.txt"), "--file=here\n-e\n").unwrap();
    let run = start(&qd, &mut app, &host, "cat").await;
    let secret = qd.sandbox().path("secret");
    for query in
        [format!("--file={}", secret.display()), "--pre=/bin/sh".to_owned(), "-f/etc/passwd".to_owned()]
    {
        let response = app.rpc("rpc.fs.search", &run, json!({"q": query})).await;
        assert_eq!(response["data"]["ok"], true, "{response}");
        assert!(!response.to_string().contains("top-secret"), "{response}");
    }
    let response = app.rpc("rpc.fs.search", &run, json!({"q": "--file=here"})).await;
    assert_eq!(response["data"]["result"]["matches"][0]["line"], 1, "{response}");
}

#[tokio::test]
async fn hole_05_an_echoed_token_is_not_stored_and_files_are_private() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let secret = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8";
    let text = format!("export GITHUB_TOKEN={secret}\n");
    type_in(&mut app, &run, &text).await;
    let input = app.event(&run, "run.input").await;
    assert!(!input.to_string().contains(secret), "{input}");
    app.wait_output(&run, "GITHUB_TOKEN=").await;
    app.send("run.stop", &run, json!({"signal": "kill"})).await;
    app.event(&run, "run.exited").await;
    let stderr = qd.stderr();
    let sandbox = qd.terminate().await;
    assert!(!stderr.contains(secret), "the log has it");
    assert_nowhere(&sandbox.data_dir(), secret);
    for (path, _) in qd_testkit::qd::files_below(&sandbox.data_dir()) {
        let is_database =
            path.extension().is_some_and(|extension| extension == "db" || extension == "sqlite");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert!(!is_database || mode & 0o077 == 0, "{} is {mode:o}", path.display());
    }
}

#[tokio::test]
async fn hole_06_the_approver_sees_the_whole_command() {
    let (_qd, mut app, _host, run) = app_with_cat().await;
    let cmd = "cat /home/someuser/projects/webapp/config/production-settings-and-much-more/values.json \
               --token ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let (_, question) = gated(&mut app, "rpc.bash", &run, json!({"cmd": cmd})).await;
    assert_eq!(question["op_args"]["cmd"], cmd);
    assert!(!question.to_string().contains("REDACTED"), "{question}");
}

#[tokio::test]
async fn hole_07_sockets_do_not_outlive_their_access() {
    let qd = sandbox().up().await;
    let added = qd.http("POST", "/api/tokens", Some(&json!({"name": "phone"}))).await.json();
    let mut app = RunApp::connect(qd.url(), added["token"].as_str().unwrap()).await;
    assert!(qd.http("DELETE", "/api/tokens/phone", None).await.status < 300);
    while app.next().await.is_some() {}
}

#[tokio::test]
async fn hole_08_a_viewer_starts_nothing_and_answers_nothing() {
    let qd = sandbox().up().await;
    let host = qd.runner_id().await;
    let token = json!({"name": "wall", "scopes": ["view"]});
    let added = qd.http("POST", "/api/tokens", Some(&token)).await.json();
    let mut viewer = RunApp::connect(qd.url(), added["token"].as_str().unwrap()).await;
    let response =
        viewer.rpc("rpc.run.start", "", json!({"host_id": host, "tool": "x", "cmd": "true"})).await;
    assert_eq!(response["data"]["ok"], false, "{response}");
    let mut owner = qd.run_app().await;
    let run = start(&qd, &mut owner, &host, "cat").await;
    let (request, question) = gated(&mut owner, "rpc.bash", &run, json!({"cmd": "touch ran"})).await;
    viewer.event(&run, "run.permission_requested").await;
    let answer = json!({"request_id": question["request_id"]});
    let error = error_after(&mut viewer, "run.permission.approve", &run, answer.clone()).await;
    assert!(error.to_lowercase().contains("permission"), "{error}");
    let input = json!({"input_id": RunApp::new_id(), "text": "x\n"});
    let error = error_after(&mut viewer, "run.send_input", &run, input).await;
    assert!(error.to_lowercase().contains("permission"), "{error}");
    let from = owner.count();
    owner.send("run.permission.deny", &run, answer).await;
    assert_eq!(owner.response(from, &request).await["data"]["error"], "denied");
}

/// The socket takes everybody of our user for a person, except what a session has started: also what ran away from it.
#[tokio::test]
async fn hole_08_a_program_in_a_run_neither_answers_nor_starts_anything_by_the_socket() {
    let (qd, mut app, host, run) = app_with_cat().await;
    let program = env!("CARGO_BIN_EXE_qd");
    let cmd = format!(
        "{program} ls --local >list 2>&1; echo list:$?; until test -s id; do sleep 0.05; done; \
         {program} approve --local $QD_RUN_ID $(cat id) >answer 2>&1; echo answer:$?; \
         {program} run --local --detach -- touch ran >start 2>&1; echo start:$?; \
         (setsid bash -c '{program} approve --local $QD_RUN_ID $(cat id) >away 2>&1; echo $? >ended' &); \
         until test -s ended; do sleep 0.05; done; echo away:$(cat ended); cat"
    );
    let inner = start(&qd, &mut app, &host, &cmd).await;
    let (request, question) = gated(&mut app, "rpc.bash", &inner, json!({"cmd": "touch ran"})).await;
    let request_id = question["request_id"].as_str().unwrap();
    // Moved into its place, so that nobody reads a half.
    std::fs::write(qd.sandbox().work().join("id.new"), request_id).unwrap();
    std::fs::rename(qd.sandbox().work().join("id.new"), qd.sandbox().work().join("id")).unwrap();
    app.wait_output(&inner, "away:").await;
    let read = |name: &str| std::fs::read_to_string(qd.sandbox().work().join(name)).unwrap();
    let list = read("list");
    assert!(list.contains(&inner) && !list.contains(&run), "it may look at itself only: {list}");
    assert!(!list.contains("error"), "{list}");
    for name in ["answer", "start", "away"] {
        assert!(read(name).contains("a program inside a session"), "{name}: {}", read(name));
    }
    assert_ne!(read("ended"), "0\n");
    assert!(!qd.sandbox().work().join("ran").exists());
    // A person outside may.
    let output = qd.sandbox().run(&["approve", "--local", &inner, request_id]).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(app.response(0, &request).await["data"]["ok"], true);
}

#[tokio::test]
async fn hole_09_an_rpc_response_goes_to_the_asker_only() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let mut other = qd.run_app().await;
    app.rpc("rpc.fs.list", &run, json!({})).await;
    other.event(&run, "tool.result").await;
    // Its own answer comes after whatever it was sent before.
    let own = other.rpc("rpc.fs.list", &run, json!({})).await;
    let responses = other.frames().iter().filter(|frame| frame["type"] == "rpc.response");
    assert_eq!(responses.collect::<Vec<_>>(), [&own]);
}

#[tokio::test]
async fn hole_16_a_fifo_blocks_nobody() {
    let (qd, mut app, host) = app().await;
    let fifo = qd.sandbox().work().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let run = start(&qd, &mut app, &host, "cat").await;
    let response = app.rpc("rpc.fs.read", &run, json!({"path": "fifo"})).await;
    assert_eq!(response["data"]["error"], "path is not a regular file", "{response}");
    let response = app.rpc("rpc.fs.search", &run, json!({"q": "x"})).await;
    assert_eq!(response["data"]["ok"], true, "{response}");
    type_in(&mut app, &run, "alive\n").await;
    app.wait_output(&run, "alive").await;
}

#[tokio::test]
async fn hole_18_no_run_stays_running_for_ever() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "echo up; sleep 1000").await;
    app.wait_output(&run, "up").await;
    let (qd, mut mux) = restarted(qd).await;
    assert_eq!(exited(&mut mux, &run).await["status"], "closed");
    let runs = qd.http("GET", "/runs", None).await.json();
    let own = runs.as_array().unwrap().iter().find(|row| row["id"] == run || row["run_id"] == run).unwrap();
    assert_eq!(own["status"], "exited", "{own}");
}

#[tokio::test]
async fn hole_20_long_output_of_a_command_is_cut_between_characters() {
    let (_qd, mut app, _host, run) = app_with_cat().await;
    let cmd = "head -c 3000000 /dev/zero | tr '\\0' x | sed 's/x/中/g'";
    let response = gated_and_approved(&mut app, "rpc.bash", &run, json!({"cmd": cmd})).await;
    let result = &response["data"]["result"];
    assert_eq!(result["truncated"], true, "it is said that something is missing");
    assert!(result["stdout"].as_str().unwrap().chars().all(|character| character == '中'));
}

#[tokio::test]
async fn hole_21_a_write_is_whole_or_an_error() {
    let (qd, mut app, _host, run) = app_with_cat().await;
    let content = "0123456789abcdef".repeat(50_000);
    let big = json!({"path": "big", "content": content});
    let response = gated_and_approved(&mut app, "rpc.fs.write", &run, big).await;
    assert_eq!(response["data"]["result"]["bytes_written"], content.len(), "{}", response["data"]["error"]);
    assert!(std::fs::read_to_string(qd.sandbox().work().join("big")).unwrap() == content);
    // What a person cannot be shown as a whole is not asked for.
    let too_big = json!({"path": "bigger", "content": content.repeat(3)});
    let response = app.rpc("rpc.fs.write", &run, too_big).await;
    assert_eq!(response["data"]["ok"], false, "{}", response["data"]["error"]);
    assert!(!qd.sandbox().work().join("bigger").exists());
}

#[tokio::test]
async fn hole_22_nothing_is_answered_with_silence() {
    let (qd, mut app, _host) = app().await;
    let input = json!({"input_id": RunApp::new_id(), "text": "x\n"});
    let error = error_after(&mut app, "run.send_input", "run-nowhere", input).await;
    assert!(error.contains("unknown run_id"), "{error}");
    let response = app.rpc("rpc.fs.read", "run-nowhere", json!({"path": "a"})).await;
    assert_fields(&response, json!({"data/ok": false, "data/error": "unknown run_id"}));
    let response = app.rpc("rpc.host.info", "", json!({"host_id": "host-nowhere"})).await;
    assert_eq!(response["data"]["ok"], false, "{response}");
    drop(qd);
}

#[tokio::test]
async fn hole_24_the_past_of_a_run_is_paged() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "seq 1 20; cat").await;
    app.wait_output(&run, "20").await;
    for number in 0..30 {
        type_in(&mut app, &run, &format!("line {number}\n")).await;
    }
    app.wait_output(&run, "line 29").await;
    let first = qd.http("GET", &format!("/runs/{run}/messages?limit=10"), None).await.json();
    let first = first.as_array().unwrap();
    assert_eq!(first.len(), 10);
    let before = &first[0]["id"];
    let path = format!("/runs/{run}/messages?limit=10&before_id={before}");
    let page = qd.http("GET", &path, None).await.json();
    let page = page.as_array().unwrap();
    assert!(!page.is_empty() && page.iter().all(|row| row["id"].as_u64() < before.as_u64()), "{page:?}");
}
