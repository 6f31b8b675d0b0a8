//! Services of the machine through a real runner: the gate, the record, the shell, and how calls end.

mod own_data;

use std::time::Duration;

use crate::support::runner_fixture::{RunnerFixture, in_session};
use crate::support::{assert_has, until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// A runner with a session `s` of the demo harness, working in the runner's folder.
async fn runner() -> RunnerFixture {
    runner_with(|_| {}).await
}

async fn runner_with(change: impl FnOnce(&mut qd_runner::RunnerConfig)) -> RunnerFixture {
    RunnerFixture::session_with("demo", |config| {
        let folder = config.default_cwd.clone().unwrap();
        std::fs::create_dir(folder.join("ws")).unwrap();
        config.services.workspace_roots = vec![folder.join("ws")];
        change(config);
    })
    .await
}

/// Sends a call that a person is asked about: the id of the command, and the question.
async fn gated(runner: &mut RunnerFixture, command: Value) -> (String, Value) {
    let from = runner.lines.len();
    let id = runner.send(command).await;
    (id, runner.event(from, "agent.input_needed").await["request"].clone())
}

fn by_operator(cmd: &str, parameters: Value) -> Value {
    in_session(cmd, "operator", parameters)
}

async fn answer(runner: &mut RunnerFixture, request_id: &Value, decision: &str) -> Value {
    let command = json!({ "cmd": "input_response", "session_id": "s", "request_id": request_id,
                          "decision": decision, "user_role": "owner" });
    runner.call(command).await
}

/// Where a line is, for the order of things.
fn place(runner: &RunnerFixture, what: &str, condition: impl Fn(&Value) -> bool) -> usize {
    runner.lines.iter().position(condition).unwrap_or_else(|| panic!("no {what}"))
}

#[tokio::test]
async fn a_call_is_recorded_before_and_after() {
    let mut runner = runner().await;
    std::fs::write(runner.folder().join("a.txt"), "contents that must not be recorded").unwrap();
    let id = runner.send(in_session("fs.read", "viewer", json!({ "path": "a.txt", "actor": "web" }))).await;
    let data = runner.response(&id).await["data"].clone();
    assert_eq!(data["content"], "contents that must not be recorded");
    let call = place(&runner, "tool.call", |line| line["event"] == "tool.call");
    let result = place(&runner, "tool.result", |line| line["event"] == "tool.result");
    let answered = place(&runner, "response", |line| line["id"] == *id);
    assert!(call < result && result < answered, "{call} {result} {answered}");
    let (call, result) = (&runner.lines[call], &runner.lines[result]);
    assert_eq!(call["request_id"], result["request_id"]);
    assert_has(call, json!({ "tool": "rpc.fs.read", "actor": "web", "user_id": "anna" }));
    assert_eq!(call["args"], json!({ "path": "a.txt" }));
    assert_eq!((&result["ok"], &result["result"]["size"]), (&json!(true), &json!(34)));
    assert!(result["duration_ms"].is_u64() && !result.to_string().contains("must not be"), "{result}");
    // What fails is recorded too.
    let refused = runner.call(in_session("fs.read", "viewer", json!({ "path": "../x" }))).await;
    assert_eq!(refused["code"], "invalid_request", "{refused}");
    let failed = |line: &Value| line["event"] == "tool.result" && line["ok"] == false;
    let failed = &runner.lines[place(&runner, "a failure", failed)];
    assert_eq!(failed["error"], refused["error"], "{failed}");
}

#[tokio::test]
async fn a_gated_call_asks_and_does_what_was_approved() {
    let mut runner = runner().await;
    let write = json!({ "path": "a.txt", "content": "hello", "request_id": "req-1", "actor": "web" });
    let (id, asked) = gated(&mut runner, by_operator("fs.write", write)).await;
    assert_eq!((&asked["type"], &asked["request_id"]), (&json!("permission"), &json!("req-1")));
    assert_eq!(asked["metadata"]["op_tool"], "rpc.fs.write");
    assert_eq!(asked["metadata"]["op_args"], json!({ "path": "a.txt", "content": "hello" }));
    assert!(!runner.folder().join("a.txt").exists());
    assert_eq!(answer(&mut runner, &asked["request_id"], "approve").await["success"], true);
    assert_eq!(runner.response(&id).await["data"]["bytes_written"], 5);
    assert_eq!(std::fs::read_to_string(runner.folder().join("a.txt")).unwrap(), "hello");
    // Call, question, answer, result, response.
    let order = ["tool.call", "agent.input_needed", "agent.input_resolved", "tool.result"];
    let places: Vec<usize> =
        order.iter().map(|name| place(&runner, name, |line| line["event"] == **name)).collect();
    assert!(places.is_sorted(), "{places:?}");
    let call = &runner.lines[places[0]];
    assert_eq!(call["args"]["content"], json!({ "bytes": 5 }));
    // The answer is one, and the second write asks again.
    let (id, asked) =
        gated(&mut runner, by_operator("fs.write", json!({ "path": "a.txt", "content": "no" }))).await;
    answer(&mut runner, &asked["request_id"], "deny").await;
    assert_eq!(runner.response(&id).await["code"], "denied");
    assert_eq!(std::fs::read_to_string(runner.folder().join("a.txt")).unwrap(), "hello");
    // An owner is not asked, unless that is wanted.
    runner.ok(in_session("fs.write", "owner", json!({ "path": "a.txt", "content": "mine" }))).await;
    gated(
        &mut runner,
        in_session("fs.write", "owner", json!({ "path": "a.txt", "content": "x", "ask": true })),
    )
    .await;
    runner.stop().await;
}

/// Hole 2: a made-up request changes nothing, and an allowance is for the tool of the request alone.
#[tokio::test]
async fn hole_02_nothing_is_allowed_by_a_request_that_was_never_made() {
    let mut runner = runner().await;
    for decision in ["approve_for_session", "approve", "deny"] {
        let refused = json!({ "cmd": "input_response", "session_id": "s", "request_id": "made-up",
                              "decision": decision, "allow_tools": ["bash"] });
        let refused = runner.call(refused).await;
        assert_eq!(refused["success"], false, "{refused}");
    }
    let (bash, asked_bash) =
        gated(&mut runner, by_operator("host.bash", json!({ "command": "touch ran" }))).await;
    assert_eq!(asked_bash["metadata"]["op_tool"], "bash");
    // Allowed for the session is what the request was for, whatever else is said.
    let (write, asked) =
        gated(&mut runner, by_operator("fs.write", json!({ "path": "w", "content": "1" }))).await;
    let allow = json!({ "cmd": "input_response", "session_id": "s", "request_id": asked["request_id"],
                        "decision": "approve_for_session", "allow_tools": ["bash"], "user_role": "owner" });
    runner.ok(allow).await;
    assert_eq!(runner.response(&write).await["success"], true);
    assert!(!runner.folder().join("ran").exists());
    runner.ok(in_session("fs.write", "operator", json!({ "path": "w", "content": "2" }))).await;
    let (delete, asked) = gated(&mut runner, by_operator("fs.delete", json!({ "path": "w" }))).await;
    answer(&mut runner, &asked["request_id"], "deny").await;
    assert_eq!(runner.response(&delete).await["code"], "denied");
    // A second answer to the first question finds nothing to allow.
    answer(&mut runner, &asked_bash["request_id"], "deny").await;
    assert_eq!(runner.response(&bash).await["code"], "denied");
    assert_eq!(answer(&mut runner, &asked_bash["request_id"], "approve_for_session").await["success"], false);
    gated(&mut runner, by_operator("host.bash", json!({ "command": "touch ran" }))).await;
    assert!(!runner.folder().join("ran").exists());
    // What was allowed is remembered.
    runner.restart(0).await;
    runner.ok(in_session("fs.write", "operator", json!({ "path": "w", "content": "3" }))).await;
    runner.stop().await;
}

/// Hole 17: a call that waits for a person survives the link and the runner, and is done once when approved.
#[tokio::test]
async fn hole_17_pending_calls_survive_a_restart() {
    let mut runner = runner().await;
    for (number, decision) in [(1, "approve"), (2, "deny"), (3, "approve")] {
        let command = format!("echo run >> file{number}");
        let params = json!({ "command": command, "request_id": format!("req-{number}"), "actor": "web" });
        let (_, asked) = gated(&mut runner, by_operator("host.bash", params)).await;
        runner.restart(0).await;
        let state = runner.state().await;
        assert_eq!(state["pending_input"][0]["request_id"], asked["request_id"], "{state}");
        assert_eq!(state["pending_input"][0]["metadata"]["op_args"]["command"], json!(command));
        let from = runner.lines.len();
        assert_eq!(answer(&mut runner, &asked["request_id"], decision).await["success"], true);
        let is_result =
            |line: &Value| line["event"] == "tool.result" && line["request_id"] == format!("req-{number}");
        let result = runner.find(from, "the result", is_result).await;
        let file = runner.folder().join(format!("file{number}"));
        if decision == "approve" {
            assert_has(&result, json!({ "ok": true, "actor": "web", "user_id": "anna" }));
            assert_eq!(std::fs::read_to_string(file).unwrap(), "run\n");
        } else {
            assert_eq!((&result["ok"], &result["error"]), (&json!(false), &json!("denied")));
            assert!(!file.exists());
        }
        assert_eq!(runner.state().await["pending_input"], json!([]));
        // Nobody is asked again, and nothing is done again.
        runner.restart(0).await;
        assert_eq!(runner.state().await["pending_input"], json!([]));
    }
    assert_eq!(std::fs::read_to_string(runner.folder().join("file1")).unwrap(), "run\n");
}

#[tokio::test]
async fn a_question_runs_out_of_time_and_ends_with_its_session() {
    let mut runner =
        runner_with(|config| config.services.gate_timeout = Some(Duration::from_millis(100))).await;
    let late = runner.call(in_session("fs.delete", "operator", json!({ "path": "x" }))).await;
    assert_eq!((&late["code"], &late["error"]), (&json!("timed_out"), &json!("timeout")));
    runner.stop().await;
    let mut runner = self::runner().await;
    let (id, _) = gated(&mut runner, by_operator("fs.delete", json!({ "path": "x" }))).await;
    runner.ok(json!({ "cmd": "session.close", "session_id": "s" })).await;
    let refused = runner.response(&id).await;
    assert_eq!(refused["code"], "denied");
    assert_eq!(refused["error"], "denied: the session was closed before anybody decided");
    let resolved = runner.event(0, "agent.input_resolved").await;
    assert_eq!(resolved["outcome"], "withdrawn");
    runner.event(0, "tool.result").await;
}

#[tokio::test]
async fn the_session_says_who_is_asked() {
    let mut runner = runner().await;
    for (name, gate) in [("open", "open"), ("ask", "ask")] {
        let config = json!({ "harness": "demo", "gate": gate });
        runner.ok(json!({ "cmd": "session.create", "session_id": name, "config": config })).await;
    }
    let write = |session: &str, role: &str| json!({ "cmd": "fs.write", "session_id": session, "user_role": role, "path": "x", "content": "1" });
    runner.ok(write("open", "operator")).await;
    gated(&mut runner, write("ask", "owner")).await;
    runner.stop().await;
}

#[tokio::test]
async fn roots_are_those_of_the_settings_and_of_sessions() {
    let mut runner = runner().await;
    let home = runner.folder();
    std::fs::write(home.join("ws/in.txt"), "in").unwrap();
    std::fs::write(home.join("out.txt"), "out").unwrap();
    std::os::unix::fs::symlink("/etc", home.join("ws/etc")).unwrap();
    let read = |root: &str, path: &str| json!({ "cmd": "fs.read", "root": root, "path": path, "user_role": "operator" });
    let workspace = home.join("ws").to_str().unwrap().to_owned();
    assert_eq!(runner.ok(read(&workspace, "in.txt")).await["content"], "in");
    // The directory of a session will do.
    assert_eq!(runner.ok(read(home.to_str().unwrap(), "out.txt")).await["content"], "out");
    for (root, expected) in [
        ("/etc", "permission_denied"),
        (&*format!("{workspace}/etc"), "permission_denied"),
        ("relative", "invalid_request"),
        ("/no/such/directory", "not_found"),
        ("", "invalid_request"),
    ] {
        let refused = runner.call(read(root, "hosts")).await;
        assert_eq!(refused["code"], expected, "{root}: {refused}");
    }
    let both = json!({ "cmd": "fs.read", "session_id": "s", "root": workspace, "path": "in.txt" });
    assert_eq!(runner.call(both).await["code"], "invalid_request");
    let unknown = json!({ "cmd": "fs.read", "session_id": "nobody", "path": "x" });
    assert_eq!(runner.call(unknown).await["code"], "session_not_found");
    // Without a session nobody can be asked.
    let write = |role: &str, ask: bool| json!({ "cmd": "fs.write", "root": workspace, "path": "w", "content": "1", "user_role": role, "ask": ask });
    for refused in [write("operator", false), write("owner", true)] {
        let refused = runner.call(refused).await;
        assert_eq!(refused["code"], "denied", "{refused}");
    }
    runner.ok(write("owner", false)).await;
    assert!(runner.lines.iter().all(|line| line["event"] != "tool.call"), "no session, no record");
}

/// Hole 5: what is read, written or typed into a command is in no record and in no file of the runner.
#[tokio::test]
async fn hole_05_contents_are_in_no_record() {
    let mut runner = runner().await;
    std::fs::write(runner.folder().join("a.txt"), "read-and-not-recorded").unwrap();
    let calls = [
        ("fs.read", json!({ "path": "a.txt" })),
        ("fs.write", json!({ "path": "b.txt", "content": "written-and-not-recorded" })),
        ("host.bash", json!({ "command": "cat >c.txt", "stdin": "typed-and-not-recorded" })),
    ];
    for (cmd, parameters) in calls {
        runner.ok(in_session(cmd, "owner", parameters)).await;
    }
    let records: Vec<String> =
        runner.lines.iter().filter(|line| line["type"] == "event").map(Value::to_string).collect();
    for name in ["tool.call", "tool.result"] {
        assert_eq!(records.iter().filter(|line| line.contains(name)).count(), 3, "{records:#?}");
    }
    assert!(!records.iter().any(|line| line.contains("and-not-recorded")), "{records:#?}");
    runner.stop().await;
    let database = std::fs::read(runner.database()).unwrap();
    assert!(!database.windows(16).any(|bytes| bytes == b"and-not-recorded"), "it is in the database");
}

/// Hole 16: a call that could block for ever blocks nobody.
#[tokio::test]
async fn hole_16_a_pipe_blocks_nobody() {
    let mut runner = runner().await;
    let pipe = runner.folder().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let all = async {
        let refused = runner.call(in_session("fs.read", "viewer", json!({ "path": "pipe" }))).await;
        assert_eq!(refused["success"], false, "{refused}");
        for seconds in [20, 21, 22] {
            runner
                .send(in_session("host.bash", "owner", json!({ "command": format!("sleep {seconds}") })))
                .await;
        }
        runner.ok(in_session("fs.stat", "viewer", json!({ "path": "pipe" }))).await;
        runner.ok(json!({ "cmd": "get_state", "session_id": "s" })).await;
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("nobody waits");
    runner.stop().await;
}

/// Hole 21: a command that fails keeps both of its streams.
#[tokio::test]
async fn hole_21_a_failing_command_keeps_both_streams() {
    let mut runner = runner().await;
    let command = "echo out; echo err >&2; cat; exit 3";
    let data =
        runner.ok(in_session("host.bash", "owner", json!({ "command": command, "stdin": "in" }))).await;
    assert_has(&data, json!({ "stdout": "out\nin", "stderr": "err\n", "exit_code": 3 }));
    assert_eq!((&data["truncated"], &data["stdout_bytes"]), (&json!(false), &json!(6)));
    let result = runner.event(0, "tool.result").await;
    assert_eq!((&result["ok"], &result["error"]), (&json!(false), &json!("bash exited with code 3")));
    assert_eq!(result["result"]["exit_code"], 3);
    let data = runner.ok(in_session("host.bash", "owner", json!({ "command": "kill -9 $$" }))).await;
    assert_eq!((&data["signal"], data.get("exit_code")), (&json!(9), None));
    let data =
        runner.ok(in_session("host.bash", "owner", json!({ "command": "pwd; echo $QD_SESSION_ID" }))).await;
    let home = runner.folder().canonicalize().unwrap();
    assert_eq!(data["stdout"], format!("{}\ns\n", home.display()));
}

/// Hole 20: what is left of much output begins and ends with whole characters, and all of it is counted.
#[tokio::test]
async fn hole_20_much_output_of_long_characters_is_cut_between_them() {
    let mut runner = runner().await;
    // The last MiB of each stream begins inside a character.
    let command = "yes 漢字かな交じり文 | head -c 4000001; echo; yes é | head -c 2000000 >&2";
    let id = runner.send(in_session("host.bash", "owner", json!({ "command": command }))).await;
    let data = runner.response(&id).await["data"].clone();
    assert_eq!((&data["stdout_bytes"], &data["stderr_bytes"]), (&json!(4_000_002), &json!(2_000_000)));
    assert_eq!((&data["truncated"], &data["exit_code"]), (&json!(true), &json!(0)));
    let stdout = data["stdout"].as_str().unwrap();
    // Only the end is cut by `head`, inside a character.
    let damage = stdout.matches('\u{fffd}').count();
    assert!(stdout.len() > 1_000_000 && damage <= 1, "{} {damage}", stdout.len());
    assert!(!data["stderr"].as_str().unwrap().contains('\u{fffd}'));
    // Told on the way, as much as there was time for, and the rest counted.
    let told = runner.lines.iter().filter(|line| line["type"] == "progress" && line["id"] == *id);
    let mut bytes = 0;
    for line in told {
        let data = &line["data"];
        assert!(data["stream"] == "stdout" || data["stream"] == "stderr", "{line}");
        assert!(data["text"].as_str().unwrap().len() <= 64 * 1024);
        bytes += data["text"].as_str().unwrap().len() as u64 + data["skipped"].as_u64().unwrap_or(0);
    }
    // A cut character is told as three bytes.
    assert!((6_000_002..6_000_012).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_command_ends_by_its_limit_or_by_a_cancel_with_all_it_started() {
    let mut runner = runner().await;
    let leaver = "sleep 300 & echo $! > child; echo began; wait";
    let limited = json!({ "command": leaver, "timeout_ms": 4000 });
    let data = runner.ok(in_session("host.bash", "owner", limited)).await;
    assert_eq!((&data["timed_out"], &data["stdout"]), (&json!(true), &json!("began\n")));
    until_gone(&runner).await;
    let id = runner.send(in_session("host.bash", "owner", json!({ "command": leaver }))).await;
    runner.find(0, "its first words", |line| line["type"] == "progress" && line["id"] == *id).await;
    runner.ok(json!({ "cmd": "_cancel", "session_id": "_system", "target": id })).await;
    let data = runner.response(&id).await["data"].clone();
    assert_eq!((&data["cancelled"], &data["stdout"]), (&json!(true), &json!("began\n")));
    until_gone(&runner).await;
    // What is left behind when the command itself ends is ended too.
    runner.ok(in_session("host.bash", "owner", json!({ "command": "sleep 300 & echo $! > child" }))).await;
    until_gone(&runner).await;
    for bad in [json!({ "command": " " }), json!({ "command": "x", "timeout_ms": 0 })] {
        assert_eq!(runner.call(in_session("host.bash", "owner", bad)).await["success"], false);
    }
}

async fn until_gone(runner: &RunnerFixture) {
    let pid: i32 = std::fs::read_to_string(runner.folder().join("child")).unwrap().trim().parse().unwrap();
    let cwd = format!("/proc/{pid}/cwd");
    until("the child is gone", async || std::fs::read_link(&cwd).is_err()).await;
}

#[tokio::test]
async fn a_question_is_taken_back_only_by_who_asked() {
    let mut runner = runner().await;
    let (id, _) = gated(&mut runner, by_operator("fs.delete", json!({ "path": "x" }))).await;
    // The asker's connection is gone: the question stays.
    runner.ok(json!({ "cmd": "_cancel", "session_id": "_system", "target": id })).await;
    assert_eq!(runner.state().await["pending_input"].as_array().unwrap().len(), 1);
    runner.ok(json!({ "cmd": "_cancel", "session_id": "_system", "target": id, "withdraw": true })).await;
    assert_eq!(runner.response(&id).await["code"], "cancelled");
    assert_eq!(runner.event(0, "agent.input_resolved").await["outcome"], "withdrawn");
    assert_eq!(runner.state().await["pending_input"], json!([]));
}

#[tokio::test]
async fn a_watch_says_what_changes_until_it_is_cancelled() {
    let mut runner = runner().await;
    let id = runner.send(in_session("fs.watch", "viewer", json!({ "path": "ws" }))).await;
    runner.event(0, "tool.call").await;
    let told =
        |line: &Value| line["type"] == "progress" && line["data"]["changes"].to_string().contains("new.txt");
    let path = runner.folder().join("ws/new.txt");
    let writing = tokio::spawn(async move {
        // Until the watch has begun, nothing is told; so it is written again and again.
        for number in 0.. {
            std::fs::write(&path, number.to_string()).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let change = runner.find(0, "the change", told).await;
    assert_eq!(change["id"], *id);
    writing.abort();
    runner.ok(json!({ "cmd": "_cancel", "session_id": "_system", "target": id })).await;
    let over = runner.response(&id).await;
    assert!(over["success"] == true || over["code"] == "cancelled", "{over}");
}

#[tokio::test]
async fn a_call_with_a_key_is_done_once() {
    let mut runner = runner().await;
    let command =
        in_session("host.bash", "owner", json!({ "command": "echo x >> once", "idempotency_key": "k" }));
    let first = runner.call(command.clone()).await;
    let again = runner.call(command.clone()).await;
    assert_eq!((&again["data"], &again["replayed"]), (&first["data"], &json!(true)));
    runner.restart(0).await;
    let again = runner.call(command).await;
    assert_eq!((&again["data"], &again["replayed"]), (&first["data"], &json!(true)));
    assert_eq!(std::fs::read_to_string(runner.folder().join("once")).unwrap(), "x\n");
    let other = in_session("host.bash", "owner", json!({ "command": "echo y", "idempotency_key": "k" }));
    assert_eq!(runner.call(other).await["success"], false);
}

#[tokio::test]
async fn a_local_client_is_the_owner_and_takes_its_command_with_it() {
    let mut runner =
        runner_with(|config| config.local_socket = Some(config.data_dir.with_extension("sock"))).await;
    let socket = runner.config.local_socket.clone().unwrap();
    let mut client = tokio::net::UnixStream::connect(&socket).await.unwrap();
    let line = json!({ "cmd": "host.bash", "id": "1", "session_id": "s", "command": "sleep 300 & echo $! > child; wait" });
    client.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    runner.event(0, "tool.call").await;
    let child = runner.folder().join("child");
    let written = || std::fs::read_to_string(&child).unwrap_or_default();
    until("the command runs", async || !written().trim().is_empty()).await;
    drop(client);
    let result = runner.event(0, "tool.result").await;
    assert_eq!(result["error"], "cancelled");
    until_gone(&runner).await;
    // Without a session, with the words of the run document.
    let mut client = BufReader::new(tokio::net::UnixStream::connect(&socket).await.unwrap()).lines();
    let mut say = async |line: Value| {
        let line = format!("{line}\n");
        client.get_mut().get_mut().write_all(line.as_bytes()).await.unwrap();
        let answer = client.next_line().await.unwrap().unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let answer = say(json!({ "cmd": "host.logs", "id": "2" })).await;
    assert_eq!(answer["code"], "unsupported", "{answer}");
    assert!(answer["error"].as_str().unwrap().contains("HOSTD_LOG_PATH is not set on this host"), "{answer}");
    // What runs here says how far it is, and can be taken back.
    let bash = json!({ "cmd": "host.bash", "id": "3", "session_id": "s", "command": "echo here; sleep 300" });
    let told = say(bash).await;
    assert_has(&told, json!({ "type": "progress", "id": "3", "cmd": "host.bash" }));
    assert_eq!((&told["data"]["stream"], &told["data"]["text"]), (&json!("stdout"), &json!("here\n")));
    let mut answers = [say(json!({ "cmd": "cancel", "id": "4", "target": "3" })).await, Value::Null];
    answers[1] = serde_json::from_str(&client.next_line().await.unwrap().unwrap()).unwrap();
    answers.sort_by_key(|answer| answer["id"].to_string());
    assert_eq!((&answers[0]["data"]["cancelled"], &answers[1]["success"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn the_host_tells_what_it_is() {
    let mut runner = runner().await;
    let info = runner.ok(json!({ "cmd": "host.info", "session_id": "_system", "user_role": "viewer" })).await;
    assert_eq!((&info["host_id"], &info["hostname"]), (&json!("r1"), &json!("here")));
    let tools: Vec<&str> =
        info["tools"].as_array().unwrap().iter().map(|tool| tool["tool"].as_str().unwrap()).collect();
    assert_eq!(tools, ["claude", "codex", "gemini", "iflow", "opencode", "pi"]);
    let doctor = runner.ok(json!({ "cmd": "host.doctor", "user_role": "viewer" })).await;
    assert_eq!(doctor["deps"], json!([{ "name": "git", "ok": true }, { "name": "bash", "ok": true }]));
    assert!(doctor["bin_map"]["path"].is_string());
    let all = runner.ok(json!({ "cmd": "host.capabilities", "user_role": "viewer" })).await;
    assert!(all["supported_rpc"].as_array().unwrap().contains(&json!("rpc.bash")), "{all}");
    assert!(all["spool_db_path"].as_str().unwrap().ends_with("runner.db"));
    assert!(all["harnesses"].as_array().unwrap().contains(&json!("demo")));
}
