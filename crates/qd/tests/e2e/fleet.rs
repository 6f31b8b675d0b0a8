//! Other machines: joining, running sessions for a hub elsewhere, working without it, being cut off.

mod away;
mod joining;
mod keys;

use std::process::Output;
use std::time::Duration;

use qd_testkit::fleet::Machine;
use qd_testkit::mux::{Mux, WAIT_MAX, short};
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};

use crate::sandbox;

/// How often something is asked again.
const POLL: Duration = Duration::from_millis(25);

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The stdout of a command that must have succeeded.
#[track_caller]
fn ok(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}{}", out(output), err(output));
    out(output)
}

/// The stderr of a command that must have failed with this code.
#[track_caller]
fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", out(output), err(output));
    err(output)
}

/// A hub, a client of it, and another machine called `desk` that has joined and is online.
async fn fleet() -> (Qd, Mux, Machine) {
    let qd = sandbox().up().await;
    let desk = qd.machine(sandbox(), "desk").await;
    let mut mux = qd.connect().await;
    until_status(&mut mux, "desk", "online").await;
    (qd, mux, desk)
}

/// What the hub knows of a runner.
async fn runner(mux: &mut Mux, name: &str) -> Value {
    let data = mux.ok(json!({"cmd": "get_runners"})).await;
    let runners = data["runners"].as_array().unwrap();
    runners.iter().find(|runner| runner["runner_id"] == name).cloned().unwrap_or(Value::Null)
}

/// Waits until the hub shows a runner so.
async fn until_status(mux: &mut Mux, name: &str, status: &str) -> Value {
    let mut last = Value::Null;
    let asked = tokio::time::timeout(WAIT_MAX, async {
        loop {
            last = runner(mux, name).await;
            if last["status"] == status {
                return last.clone();
            }
            tokio::time::sleep(POLL).await;
        }
    });
    asked.await.unwrap_or_else(|_| panic!("'{name}' did not become {status}: {}", short(&last)))
}

/// Waits until a text is in what somebody has said.
async fn until_said(what: impl Fn() -> String, text: &str) {
    let asked = tokio::time::timeout(WAIT_MAX, async {
        while !what().contains(text) {
            tokio::time::sleep(POLL).await;
        }
    });
    assert!(asked.await.is_ok(), "'{text}' was not said:\n{}", what());
}

/// Waits until `qd runner status` on a machine says this: what it says then.
async fn until_local_status(sandbox: &Sandbox, text: &str) -> String {
    let mut last = String::new();
    let asked = tokio::time::timeout(WAIT_MAX, async {
        loop {
            last = ok(&sandbox.run(&["runner", "status"]).await);
            if last.contains(text) {
                return last.clone();
            }
        }
    });
    asked.await.unwrap_or_else(|_| panic!("'{text}' was not said:\n{last}"))
}

/// A session of the demo agent on a machine.
async fn session_on(mux: &mut Mux, name: &str) -> String {
    let create = json!({"cmd": "session.create", "runner_id": name, "config": {"harness": "demo"}});
    let data = mux.ok(create).await;
    mux.skip();
    data["session_id"].as_str().unwrap().to_owned()
}

/// Every message of a session as `qd logs --json` prints them.
fn messages_in(output: &Output) -> Vec<Value> {
    ok(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
