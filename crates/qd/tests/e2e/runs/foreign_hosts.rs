//! The run protocol between machines: our runner as a host (`qd runner start --protocol run`), our hub as its server.

use serde_json::json;

use super::mux_output;
use crate::{ok_json, sandbox, up};

#[tokio::test]
async fn our_runner_is_a_host_of_our_hub_and_its_runs_survive_the_hub() {
    let qd = sandbox().up().await;
    let added = ok_json(&qd.cli(&["hosts", "add", "desk", "--json"]).await);
    let mut desk = sandbox();
    let token = desk.path("host-token");
    std::fs::write(&token, added["host_token"].as_str().unwrap()).unwrap();
    desk.argument("--protocol").argument("run").argument("--server").argument(qd.url());
    desk.argument("--host-id").argument("desk").argument("--host-token-file").argument(&token);
    let desk = desk.runner().await;
    let mut mux = qd.connect().await;
    mux.wait_online("desk").await;
    let run = json!({"tool": "sh", "cmd": "echo ready; read line; echo \"got $line\"; sleep 0.3; exit 7"});
    let config = json!({"harness": "pty", "run": run});
    let data = mux.ok(json!({"cmd": "session.create", "runner_id": "desk", "config": config})).await;
    let run_id = data["session_id"].as_str().unwrap().to_owned();
    mux.wait_since(0, "the prompt", |frame| {
        frame["event"] == "run.output" && frame["text"].as_str().is_some_and(|text| text.contains("ready"))
    })
    .await;
    let input = json!({"cmd": "run.input", "session_id": run_id, "input_id": "i1", "text": "hello\n"});
    assert_eq!(mux.ok(input.clone()).await["duplicate"], false);
    assert_eq!(mux.ok(input).await["duplicate"], true);
    let exited = mux.wait_since(0, "the end", |frame| frame["event"] == "run.exited").await;
    assert_eq!(exited["exit_code"], 7);
    assert_eq!(mux_output(&mux, &run_id).matches("got hello").count(), 1);
    drop(mux);
    // The hub is killed while a run writes: nothing is lost, nothing comes twice.
    let mut mux = qd.connect().await;
    let config =
        json!({"harness": "pty", "run": {"cmd": "for n in $(seq 1 100); do echo line $n; sleep 0.02; done"}});
    let data = mux.ok(json!({"cmd": "session.create", "runner_id": "desk", "config": config})).await;
    let run_id = data["session_id"].as_str().unwrap().to_owned();
    mux.wait_since(0, "a line", |frame| frame["event"] == "run.output").await;
    let (qd, mut mux) = up(qd.kill9_at_address().await).await;
    mux.wait_online("desk").await;
    let attached = mux.ok(json!({"cmd": "session.attach", "session_id": run_id, "after": 0})).await;
    assert_eq!(attached["resume"], "ok");
    mux.wait_since(0, "the end", |frame| frame["event"] == "run.exited").await;
    let expected: String = (1..=100).map(|number| format!("line {number}\r\n")).collect();
    assert_eq!(mux_output(&mux, &run_id), expected);
    desk.terminate().await;
    qd.terminate().await;
}
