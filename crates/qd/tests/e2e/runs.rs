//! Programs in terminals, over the run protocol and over `/ws/mux`, with the whole binary.

mod approvals;
mod bytes;
mod cli;
mod document;
mod foreign_hosts;
mod holes;
mod lifecycle;
mod outages;
mod screens;
mod services;

use qd_testkit::mux::Mux;
use qd_testkit::qd::Qd;
use qd_testkit::run_app::RunApp;
use serde_json::{Value, json};

use crate::{sandbox, until};

/// A server, an app of the document, and the name of the one host.
async fn app() -> (Qd, RunApp, String) {
    let qd = sandbox().up().await;
    let app = qd.run_app().await;
    let host = qd.runner_id().await;
    (qd, app, host)
}

/// The same with a run of `cat`.
async fn app_with_cat() -> (Qd, RunApp, String, String) {
    let (qd, mut app, host) = app().await;
    let run = start(&qd, &mut app, &host, "cat").await;
    (qd, app, host, run)
}

/// Starts a command line in the sandbox's working directory.
async fn start(qd: &Qd, app: &mut RunApp, host: &str, cmd: &str) -> String {
    let work = qd.sandbox().work();
    app.start(host, cmd, work.to_str().unwrap()).await
}

/// A run made over `/ws/mux`; the client follows it.
async fn mux_run(qd: &Qd, mux: &mut Mux, argv: &[&str]) -> String {
    let config = json!({"harness": "pty", "cwd": qd.sandbox().work(), "run": {"argv": argv}});
    mux.create(config).await
}

/// The fields of an object, sorted.
fn fields(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> =
        value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default();
    names.sort_unstable();
    names
}

/// Everything a run wrote, from the records on a canonical connection.
fn mux_output(mux: &Mux, session: &str) -> String {
    let own = |frame: &&Value| frame["event"] == "run.output" && frame["session_id"] == session;
    mux.frames().iter().filter(own).filter_map(|frame| frame["text"].as_str()).collect()
}

/// The state of a run when it has ended.
async fn exited(mux: &mut Mux, session: &str) -> Value {
    until("the end of the run", async || {
        let state = mux.state(session).await;
        if state["run"]["exit_code"].is_i64() { Ok(state) } else { Err(state.to_string()) }
    })
    .await
}

/// Types a text into a run.
async fn type_in(app: &mut RunApp, run: &str, text: &str) {
    app.send("run.send_input", run, json!({"input_id": RunApp::new_id(), "text": text})).await;
}

/// Says yes to a question of a run.
async fn approve(app: &mut RunApp, run: &str, question: &Value) {
    app.send("run.permission.approve", run, json!({"request_id": question["request_id"]})).await;
}

/// Starts a gated call and waits for its question: the id of the call, and the question.
async fn gated(app: &mut RunApp, kind: &str, run: &str, data: Value) -> (String, Value) {
    app.skip();
    let request_id = app.begin_rpc(kind, run, data).await;
    let question = app.event(run, "run.permission_requested").await;
    (request_id, question["data"].clone())
}

/// The same, approved: the response.
async fn gated_and_approved(app: &mut RunApp, kind: &str, run: &str, data: Value) -> Value {
    let from = app.count();
    let (request_id, question) = gated(app, kind, run, data).await;
    approve(app, run, &question).await;
    app.response(from, &request_id).await
}

/// Checks that no file below a directory has this in it.
fn assert_nowhere(directory: &std::path::Path, secret: &str) {
    for (path, content) in qd_testkit::qd::files_below(directory) {
        let is_there = content.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!is_there, "{} has it", path.display());
    }
}
