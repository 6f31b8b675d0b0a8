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

use crate::sandbox;

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
    let poll = async {
        loop {
            let state = mux.state(session).await;
            if state["run"]["exit_code"].is_i64() {
                return state;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(qd_testkit::mux::WAIT_MAX, poll).await.expect("the run ends")
}
