//! Programs, files and shell from the command line, with pipes as scripts have them.

use std::process::Stdio;

use qd_testkit::mux::WAIT_MAX;
use qd_testkit::qd::Qd;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::{err, out, sandbox, session_rows, until};

/// Runs `qd` with this on its stdin: exit code, stdout, stderr.
async fn piped(qd: &Qd, arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut command = qd.sandbox().command(arguments);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let write = tokio::spawn(async move {
        // A program that ends early leaves the rest unread.
        let _ = stdin.write_all(&input).await;
    });
    let output = tokio::time::timeout(WAIT_MAX, child.wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("`qd {}` does not end", arguments.join(" "))).unwrap();
    write.await.unwrap();
    (output.status.code().unwrap_or(-1), out(&output), err(&output))
}

#[tokio::test]
async fn a_program_is_run_with_its_output_and_its_exit_code() {
    let qd = sandbox().up().await;
    let (code, out, _) = piped(&qd, &["run", "--", "bash", "-c", "seq 1 50000; exit 7"], b"").await;
    let expected: String = (1..=50_000).map(|number| format!("{number}\r\n")).collect();
    assert_eq!(code, 7);
    assert!(out == expected, "{} bytes instead of {}", out.len(), expected.len());
    let (code, out, error) = piped(&qd, &["run", "--runner", "local", "--", "echo", "hi"], b"").await;
    assert_eq!((code, &*out), (0, "hi\r\n"), "{error}");
}

#[tokio::test]
async fn input_nobody_reads_any_more_does_not_hide_how_the_program_ended() {
    let qd = sandbox().up().await;
    let lines = "a line of many\n".repeat(60_000);
    for input in ["", "one\n", &*lines] {
        let (code, _, error) = piped(&qd, &["run", "--", "bash", "-c", "exit 7"], input.as_bytes()).await;
        assert_eq!(code, 7, "{} bytes: {error}", input.len());
    }
}

#[tokio::test]
async fn a_pipe_is_typed_in_and_its_end_is_the_end() {
    let qd = sandbox().up().await;
    for input in ["one\ntwo\n", "no line end"] {
        let (code, out, error) = piped(&qd, &["run", "--", "cat"], input.as_bytes()).await;
        assert_eq!(code, 0, "{error}");
        let last = input.trim_end().lines().last().unwrap();
        assert!(out.contains(last), "{out:?}");
    }
}

#[tokio::test]
async fn attaching_without_input_does_not_end_the_program() {
    let qd = sandbox().up().await;
    let (code, out, error) =
        piped(&qd, &["run", "--detach", "--", "bash", "-c", "echo up; read -r x; echo got:$x"], b"").await;
    assert_eq!(code, 0, "{error}");
    let session = out.trim().to_owned();
    let attach = qd.sandbox().command(&["attach", &session]).stdin(Stdio::null()).spawn().unwrap();
    let mut mux = qd.connect().await;
    // Somebody else still types into it, so nobody has ended its input.
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "hello\n"})).await;
    let output = tokio::time::timeout(WAIT_MAX, attach.wait_with_output()).await.unwrap().unwrap();
    let shown = crate::out(&output);
    assert!(shown.starts_with("up\r\n") && shown.contains("got:hello"), "{shown:?}");
    let (_, logs, _) = piped(&qd, &["logs", &session], b"").await;
    assert_eq!(logs, shown, "the log has the same");
}

#[tokio::test]
async fn a_shell_command_prints_everything_once() {
    let qd = sandbox().up().await;
    piped(&qd, &["run", "--detach", "--", "cat"], b"").await;
    let (code, out, error) = piped(&qd, &["bash", "seq 1 100000; echo bad >&2; exit 4"], b"").await;
    let expected: String = (1..=100_000).map(|number| format!("{number}\n")).collect();
    assert_eq!((code, &*error), (4, "bad\n"));
    assert!(out == expected, "{} bytes instead of {}", out.len(), expected.len());
    let (_, out, error) = piped(&qd, &["bash", "seq 1 400000"], b"").await;
    assert!(out.ends_with("399999\n400000\n") && error.contains("left out"), "{error}");
}

#[tokio::test]
async fn files_go_both_ways() {
    let qd = sandbox().up().await;
    piped(&qd, &["run", "--detach", "--", "cat"], b"").await;
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(|number| number.to_le_bytes()).collect();
    let work = qd.sandbox().work();
    std::fs::write(work.join("big.bin"), &content).unwrap();
    for arguments in [
        &["fs", "put", "big.bin", "sent.bin"][..],
        &["fs", "get", "sent.bin", "back.bin"],
        &["fs", "mkdir", "dir"],
        &["fs", "mv", "sent.bin", "dir/moved.bin"],
        &["fs", "cp", "dir", "copy"],
        &["fs", "rm", "dir", "-r"],
    ] {
        let (code, _, error) = piped(&qd, arguments, b"").await;
        assert_eq!(code, 0, "{arguments:?}: {error}");
    }
    assert!(std::fs::read(work.join("back.bin")).unwrap() == content);
    assert!(std::fs::read(work.join("copy/moved.bin")).unwrap() == content);
    assert!(!work.join("dir").exists());
    let (code, _, error) = piped(&qd, &["fs", "write", "note.txt"], "grüße\n".as_bytes()).await;
    assert_eq!(code, 0, "{error}");
    let (_, out, _) = piped(&qd, &["fs", "cat", "note.txt"], b"").await;
    assert_eq!(out, "grüße\n");
    let (code, _, error) = piped(&qd, &["fs", "cat", "../secret"], b"").await;
    assert_eq!(code, 1);
    assert!(error.contains("path contains .."), "{error}");
}

#[tokio::test]
async fn an_operator_waits_for_somebody_elses_yes() {
    let qd = sandbox().up().await;
    piped(&qd, &["run", "--detach", "--", "cat"], b"").await;
    let added = qd.http("POST", "/api/tokens", Some(&json!({"name": "op"}))).await.json();
    let token = added["token"].as_str().unwrap().to_owned();
    let mut command = qd.sandbox().command(&["bash", "echo ran"]);
    let call = command.env("QD_TOKEN", &token).env("QD_URL", qd.url()).spawn().unwrap();
    let mut mux = qd.connect().await;
    let session = session_rows(&mut mux).await[0]["session_id"].as_str().unwrap().to_owned();
    until("a question", async || {
        let state = mux.state(&session).await;
        if state["pending_input"] == json!([]) { Err(state.to_string()) } else { Ok(()) }
    })
    .await;
    let mut own = qd.sandbox().command(&["approve", &session]);
    let own = own.env("QD_TOKEN", &token).env("QD_URL", qd.url()).output().await.unwrap();
    assert!(!own.status.success(), "nobody says yes to oneself");
    let (_, listed, _) = piped(&qd, &["approvals", "--full"], b"").await;
    assert!(listed.contains("echo ran") && listed.contains("op"), "{listed}");
    let (code, _, error) = piped(&qd, &["approve", &session], b"").await;
    assert_eq!(code, 0, "{error}");
    let output = tokio::time::timeout(WAIT_MAX, call.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(out(&output), "ran\n", "{}", err(&output));
}
