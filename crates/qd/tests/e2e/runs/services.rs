//! Services of the machine, over the document's RPCs, over `/ws/mux` and over its channels.

use qd_testkit::mux::{Mux, WAIT_MAX};
use serde_json::{Value, json};

use super::{app, fields, mux_run, start};
use crate::{assert_fields, demo};

#[tokio::test]
async fn every_read_of_the_document_has_its_shape() {
    let (qd, mut app, host) = app().await;
    let work = qd.sandbox().work();
    std::fs::create_dir(work.join("src")).unwrap();
    std::fs::write(work.join("src/main.rs"), "fn main() {\n    needle();\n}\n").unwrap();
    std::fs::write(work.join("README.md"), "hello\n").unwrap();
    for arguments in [vec!["init", "-q"], vec!["add", "."]] {
        let status = std::process::Command::new("git").args(&arguments).current_dir(&work).status().unwrap();
        assert!(status.success());
    }
    let run = start(&qd, &mut app, &host, "cat").await;
    let ok = |response: Value| {
        assert_eq!(response["data"]["ok"], true, "{response}");
        response["data"]["result"].clone()
    };
    let read = ok(app.rpc("rpc.fs.read", &run, json!({"path": "README.md"})).await);
    assert_fields(&read, json!({"path": "README.md", "content": "hello\n", "truncated": false}));
    let list = ok(app.rpc("rpc.fs.list", &run, json!({})).await);
    assert_eq!(list["path"], ".");
    let names: Vec<&str> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, [".git", "src", "README.md"]);
    assert_fields(&list, json!({"entries/0/is_dir": true, "entries/0/size_bytes": null}));
    assert_fields(&list, json!({"entries/2/size_bytes": 6}));
    let search = ok(app.rpc("rpc.fs.search", &run, json!({"q": "needle"})).await);
    let found = &search["matches"][0];
    assert_fields(found, json!({"path": "src/main.rs", "line": 2, "column": 5}));
    let status = ok(app.rpc("rpc.git.status", &run, json!({})).await);
    assert!(status["stdout"].as_str().unwrap().contains("A  README.md"), "{status}");
    std::fs::write(work.join("README.md"), "changed\n").unwrap();
    let diff = ok(app.rpc("rpc.git.diff", &run, json!({"path": "README.md"})).await);
    assert!(diff["stdout"].as_str().unwrap().contains("+changed"), "{diff}");
    let runs = ok(app.rpc("rpc.runs.list", &run, json!({})).await);
    let own = &runs["runs"][0];
    assert_eq!((&own["run_id"], &own["awaiting_input"]), (&json!(run), &json!(false)), "{runs}");
    assert!(own["pid"].is_u64() && own["tool"] == "test");
    let info = ok(app.rpc("rpc.host.info", "", json!({"host_id": host})).await);
    for field in ["host_id", "pid", "os", "arch", "version", "tools"] {
        assert!(!info[field].is_null(), "{field}: {info}");
    }
    let doctor = ok(app.rpc("rpc.host.doctor", "", json!({"host_id": host})).await);
    assert!(doctor["deps"].as_array().unwrap().iter().any(|dep| dep["name"] == "git" && dep["ok"] == true));
    let capabilities = ok(app.rpc("rpc.host.capabilities", "", json!({"host_id": host})).await);
    assert_eq!(capabilities["supported_rpc"].as_array().unwrap().len(), 14, "{capabilities}");
    let logs = app.rpc("rpc.host.logs.tail", "", json!({"host_id": host, "lines": 5})).await;
    assert!(logs["data"]["ok"].is_boolean(), "{logs}");
    let unknown = app.rpc("rpc.no.such", &run, json!({})).await;
    assert_fields(&unknown, json!({"data/ok": false, "data/error": "unknown rpc type"}));
}

#[tokio::test]
async fn the_owner_writes_unasked_on_the_canonical_face_and_it_is_recorded() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["cat"]).await;
    let write = json!({"cmd": "fs.write", "session_id": session, "path": "a/b.txt", "content": "one", "create_parents": true});
    let written = mux.ok(write).await;
    assert_eq!(written["bytes_written"], 3);
    let guarded = json!({"cmd": "fs.write", "session_id": session, "path": "a/b.txt", "content": "two", "expected_hash": "00"});
    let error = mux.refused(guarded).await;
    assert!(error.contains(written["hash"].as_str().unwrap()), "the error says what is there: {error}");
    let call = mux.wait_event("tool.call").await;
    assert_eq!((&call["tool"], &call["user_id"]), (&json!("rpc.fs.write"), &json!("owner")), "{call}");
    let audit = qd.http("GET", &format!("/api/audit?session={session}"), None).await.json();
    let entries = audit["entries"].as_array().unwrap();
    let is_ours = |entry: &Value| entry["kind"] == "tool.result" && entry["principal"] == "owner";
    assert!(entries.iter().any(is_ours), "{audit}");
}

#[tokio::test]
async fn a_long_command_says_what_it_prints_and_can_be_cancelled() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["cat"]).await;
    let from = mux.frames().len();
    let bash =
        json!({"cmd": "host.bash", "id": "b1", "session_id": session, "command": "echo started; sleep 1000"});
    mux.send(bash).await;
    let progress = mux.wait_event("progress").await;
    assert_fields(&progress, json!({"id": "b1", "data/text": "started\n"}));
    mux.ok(json!({"cmd": "cancel", "target": "b1"})).await;
    let response = mux.response(from, &json!("b1")).await;
    assert_fields(&response, json!({"data/cancelled": true, "data/stdout": "started\n"}));
    let error = mux.refused(json!({"cmd": "cancel", "target": "b1"})).await;
    assert!(error.contains("b1"), "{error}");
}

#[tokio::test]
async fn changes_of_files_are_told_to_who_watches() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["cat"]).await;
    mux.send(json!({"cmd": "fs.watch", "id": "w1", "session_id": session})).await;
    let ready = mux.wait_event("progress").await;
    assert_eq!(ready["data"]["changes"], json!([]), "an empty list says that the watch is on: {ready}");
    std::fs::write(qd.sandbox().work().join("new.txt"), "x").unwrap();
    let told = mux.wait_event("progress").await;
    assert_eq!(told["data"]["changes"][0]["path"], "new.txt", "{told}");
    mux.ok(json!({"cmd": "cancel", "target": "w1"})).await;
}

#[tokio::test]
async fn the_files_channel_speaks_as_its_clients_do() {
    let (qd, mut mux) = demo().await;
    let work = qd.sandbox().work();
    mux_run(&qd, &mut mux, &["cat"]).await;
    std::fs::write(work.join("a.txt"), "hello").unwrap();
    let tree = files(&mut mux, json!({"type": "tree", "path": ".", "workspace_path": work})).await;
    assert_fields(&tree, json!({"type": "tree_result", "entries/0/name": "a.txt"}));
    let read = files(&mut mux, json!({"type": "read", "path": "a.txt", "workspace_path": work})).await;
    assert_eq!((&read["type"], &read["content"]), (&json!("read_result"), &json!("aGVsbG8=")), "{read}");
    let write = json!({"type": "write", "path": "b.txt", "content": "aGVsbG8=", "workspace_path": work});
    assert_eq!(files(&mut mux, write).await["success"], true);
    let stat = files(&mut mux, json!({"type": "stat", "path": "b.txt", "workspace_path": work})).await;
    assert_eq!((&stat["stat"]["exists"], &stat["stat"]["size"]), (&json!(true), &json!(5)), "{stat}");
    let error = files(&mut mux, json!({"type": "read", "path": "../x", "workspace_path": work})).await;
    assert_eq!(error["type"], "error", "{error}");
    assert!(fields(&error).contains(&"id"), "an error names what it answers: {error}");
}

/// Sends on `files` and gives the answer.
async fn files(mux: &mut Mux, mut frame: Value) -> Value {
    frame["channel"] = json!("files");
    let from = mux.frames().len();
    let id = mux.send(frame).await;
    mux.wait_since(from, "an answer on files", |frame| frame["channel"] == "files" && frame["id"] == id).await
}

#[tokio::test]
async fn a_terminal_is_shared_and_survives_its_clients() {
    let (qd, mut mux) = demo().await;
    let work = qd.sandbox().work();
    let open =
        json!({"channel": "terminal", "type": "open", "workspace_path": work, "cols": 100, "rows": 30});
    let from = mux.frames().len();
    let id = mux.send(open).await;
    let opened =
        mux.wait_since(from, "opened", |frame| frame["channel"] == "terminal" && frame["id"] == id).await;
    assert_eq!(opened["type"], "opened", "{opened}");
    let terminal = opened["terminal_id"].as_str().unwrap().to_owned();
    type_into(&mut mux, &terminal, "echo first-$((1+1))\n").await;
    wait_shown(&mut mux, &terminal, "first-2").await;
    let mut second = qd.connect().await;
    join(&mut second, &terminal).await;
    wait_shown(&mut second, &terminal, "first-2").await;
    drop(mux);
    type_into(&mut second, &terminal, "echo second-$((2+2))\n").await;
    wait_shown(&mut second, &terminal, "second-4").await;
    type_into(&mut second, &terminal, "exit 5\n").await;
    let exit =
        second.wait_for("exit", |frame| frame["channel"] == "terminal" && frame["type"] == "exit").await;
    assert_eq!(exit["exit_code"], 5, "{exit}");
}

async fn join(mux: &mut Mux, terminal: &str) {
    let open =
        json!({"channel": "terminal", "type": "open", "terminal_id": terminal, "cols": 100, "rows": 30});
    mux.send(open).await;
    let opened =
        mux.wait_for("opened", |frame| frame["channel"] == "terminal" && frame["type"] == "opened").await;
    assert_eq!(opened["joined"], true, "{opened}");
}

async fn type_into(mux: &mut Mux, terminal: &str, text: &str) {
    mux.send(json!({"channel": "terminal", "type": "input", "terminal_id": terminal, "data": text})).await;
}

/// Waits until the terminal has shown this; output is base64.
async fn wait_shown(mux: &mut Mux, terminal: &str, text: &str) {
    use base64::Engine;
    let shown = |frames: &[Value]| {
        let own = frames.iter().filter(|frame| frame["type"] == "output" && frame["terminal_id"] == terminal);
        let bytes: Vec<u8> = own
            .filter_map(|frame| frame["data_base64"].as_str())
            .flat_map(|data| base64::engine::general_purpose::STANDARD.decode(data).unwrap())
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let wait = async {
        while !shown(mux.frames()).contains(text) {
            mux.next().await.expect("the connection lasts");
        }
    };
    let seen = tokio::time::timeout(WAIT_MAX, wait).await;
    assert!(seen.is_ok(), "{text} was never shown: {}", shown(mux.frames()));
}
