//! Helpers for tests of runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::runner_fixture::RunnerFixture;

/// A runner with a run of the session `s`.
pub(crate) async fn running(argv: &[&str]) -> RunnerFixture {
    let mut runner = RunnerFixture::start(|_| {}).await;
    run(&mut runner, argv).await;
    runner
}

/// The same with a shell script.
pub(crate) async fn running_script(text: &str) -> RunnerFixture {
    running(&["sh", "-c", text]).await
}

/// Starts a run of the session `s`.
pub(crate) async fn run(runner: &mut RunnerFixture, argv: &[&str]) -> Value {
    run_as(runner, "s", json!({"argv": argv})).await
}

pub(crate) async fn run_as(runner: &mut RunnerFixture, session_id: &str, run: Value) -> Value {
    let config = json!({"harness": "pty", "run": run});
    runner.ok(json!({"cmd": "session.create", "session_id": session_id, "config": config})).await
}

/// A shell script in a run.
pub(crate) async fn script(runner: &mut RunnerFixture, text: &str) -> Value {
    run(runner, &["sh", "-c", text]).await
}

/// The records of a session by number; what came again after a restart counts once.
pub(crate) fn records(runner: &RunnerFixture, session_id: &str) -> BTreeMap<u64, Value> {
    let own = runner.lines.iter().filter(|line| line["type"] == "event" && line["session_id"] == session_id);
    own.filter_map(|line| Some((line["seq"].as_u64()?, line.clone()))).collect()
}

/// Everything the run has written.
pub(crate) fn output(runner: &RunnerFixture, session_id: &str) -> String {
    let records = records(runner, session_id);
    let texts = records.values().filter(|record| record["event"] == "run.output");
    texts.map(|record| record["text"].as_str().unwrap()).collect()
}

/// Waits until the run has written this.
pub(crate) async fn until_output(runner: &mut RunnerFixture, wanted: &str) {
    until_output_times(runner, wanted, 1).await;
}

/// Like `until_output`, for a text that comes several times: `cat` may answer long after the terminal's echo, so other
/// lines may be between the two.
pub(crate) async fn until_output_times(runner: &mut RunnerFixture, wanted: &str, times: usize) {
    let mut so_far = output(runner, "s");
    let mut at = runner.lines.len();
    while so_far.matches(wanted).count() < times {
        let line = runner.find(at, wanted, |line| line["event"] == "run.output").await;
        at = runner.lines.iter().position(|known| *known == line).unwrap() + 1;
        so_far = output(runner, "s");
    }
}

/// Waits for the end of a run.
pub(crate) async fn exited(runner: &mut RunnerFixture, session_id: &str) -> Value {
    let is_end = |line: &Value| line["event"] == "run.exited" && line["session_id"] == session_id;
    runner.find(0, "run.exited", is_end).await
}

pub(crate) async fn input(runner: &mut RunnerFixture, input_id: &str, text: &str) -> Value {
    runner.ok(json!({"cmd": "run.input", "session_id": "s", "input_id": input_id, "text": text})).await
}

pub(crate) async fn stop(runner: &mut RunnerFixture, signal: &str) -> Value {
    runner.ok(json!({"cmd": "run.stop", "session_id": "s", "signal": signal})).await
}

/// Ends the run and its runner.
pub(crate) async fn kill_and_stop(runner: &mut RunnerFixture) {
    stop(runner, "kill").await;
    exited(runner, "s").await;
    runner.stop().await;
}

/// The names of a session's records, in order; neighbours of one name are one.
pub(crate) fn story(runner: &RunnerFixture, session_id: &str) -> Vec<String> {
    let mut names: Vec<String> = records(runner, session_id)
        .values()
        .map(|record| record["event"].as_str().unwrap().to_owned())
        .collect();
    names.dedup();
    names
}
