//! How runs end: by themselves, stopped, killed, with the runner.

use std::path::Path;

use qd_testkit::process::eventually;
use serde_json::json;

use super::{app, exited, mux_output, mux_run, start};
use crate::{demo, on, restarted, session_rows};

#[tokio::test]
async fn a_run_whose_runner_was_killed_is_reported_ended_and_leaves_nothing_behind() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "echo alive; exec sleep 1000").await;
    app.wait_output(&run, "alive").await;
    let (qd, mut mux) = restarted(qd).await;
    let state = exited(&mut mux, &run).await;
    assert_eq!((&state["run"]["exit_code"], &state["status"]), (&json!(-1), &json!("closed")), "{state}");
    let mut app = qd.run_app().await;
    app.send("run.subscribe", &run, json!({"since_seq": 0})).await;
    app.event(&run, "run.exited").await;
    assert_eq!(app.seqs(&run).last().unwrap().0, "run.exited");
    let host = qd.runner_id().await;
    let mut app = qd.run_app().await;
    let again = start(&qd, &mut app, &host, "echo next").await;
    app.wait_output(&again, "next").await;
}

#[tokio::test]
async fn a_run_that_ignores_term_is_killed_with_its_children() {
    let (qd, mut app, host) = app().await;
    let cmd = "trap '' TERM; bash -c 'trap \"\" TERM; echo child:$$; while :; do sleep 1; done' & wait";
    let run = start(&qd, &mut app, &host, cmd).await;
    app.wait_output(&run, "child:").await;
    app.wait_output(&run, "\n").await;
    let output = app.output(&run);
    let child: String =
        output.split("child:").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    app.send("run.stop", &run, json!({"signal": "term"})).await;
    app.event(&run, "run.exited").await;
    let path = format!("/proc/{child}");
    eventually("the child is gone", || !Path::new(&path).exists()).await;
}

#[tokio::test]
async fn a_resize_reaches_the_program() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["bash", "-c", "stty size; read -r _; stty size"]).await;
    mux.ok(json!({"cmd": "run.resize", "session_id": session, "cols": 132, "rows": 50})).await;
    mux.ok(json!({"cmd": "run.stdin", "session_id": session, "text": "\n"})).await;
    mux.wait_event("run.exited").await;
    let output = mux_output(&mux, &session);
    assert!(output.contains("24 80") && output.contains("50 132"), "{output}");
    let refused =
        mux.refused(json!({"cmd": "run.resize", "session_id": session, "cols": 1, "rows": 0})).await;
    assert!(!refused.is_empty());
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_a_clear_error() {
    let (qd, mut mux) = demo().await;
    let create = |cwd: &Path, program: &str| {
        let config = json!({"harness": "pty", "cwd": cwd, "run": {"argv": [program]}});
        json!({"cmd": "session.create", "config": config})
    };
    let error = mux.refused(create(&qd.sandbox().work(), "no-such-program-here")).await;
    assert!(error.contains("no-such-program-here") && error.contains("PATH"), "{error}");
    let error = mux.refused(create(Path::new("/no/such/place"), "true")).await;
    assert!(error.contains("/no/such/place"), "{error}");
    assert!(session_rows(&mut mux).await.is_empty(), "nothing is left of them");
}

#[tokio::test]
async fn closing_a_run_ends_it_and_restarting_starts_it_anew() {
    let (qd, mut mux) = demo().await;
    let session = mux_run(&qd, &mut mux, &["bash", "-c", "echo born; cat"]).await;
    mux.wait_event("run.output").await;
    mux.ok(on(&session, "session.close")).await;
    mux.wait_event("run.exited").await;
    mux.ok(on(&session, "session.restart")).await;
    mux.wait_event("run.started").await;
    mux.wait_event("run.output").await;
    mux.ok(on(&session, "session.delete")).await;
}

#[tokio::test]
async fn the_server_stops_cleanly_with_runs_at_work() {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "trap '' TERM HUP; echo up; while :; do sleep 1; done").await;
    app.wait_output(&run, "up").await;
    qd.terminate().await;
}
