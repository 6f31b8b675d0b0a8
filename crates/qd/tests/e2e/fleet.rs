//! Other machines: joining, running sessions for a hub elsewhere, working without it, being cut off.

mod away;
mod joining;
mod keys;

use std::process::Output;

use qd_testkit::fleet::Machine;
use qd_testkit::mux::{Mux, short};
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};

use crate::{demo, ok, sandbox, until};

/// A hub, a client of it, and another machine called `desk` that has joined and is online.
async fn fleet() -> (Qd, Mux, Machine) {
    let (qd, mut mux) = demo().await;
    let desk = qd.machine(sandbox(), "desk").await;
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
    until(&format!("'{name}' to be {status}"), async || {
        let shown = runner(mux, name).await;
        if shown["status"] == status { Ok(shown) } else { Err(short(&shown)) }
    })
    .await
}

/// Waits until a text is in what somebody has said.
async fn until_said(what: impl Fn() -> String, text: &str) {
    until(text, async || {
        let said = what();
        if said.contains(text) { Ok(()) } else { Err(said) }
    })
    .await;
}

/// Waits until `qd runner status` on a machine says this: what it says then.
async fn until_local_status(sandbox: &Sandbox, text: &str) -> String {
    until(text, async || {
        let said = ok(&sandbox.run(&["runner", "status"]).await);
        if said.contains(text) { Ok(said) } else { Err(said) }
    })
    .await
}

/// The command that creates a session of the demo agent on a machine.
fn create_on(name: &str) -> Value {
    json!({"cmd": "session.create", "runner_id": name, "config": {"harness": "demo"}})
}

/// A session of the demo agent on a machine.
async fn session_on(mux: &mut Mux, name: &str) -> String {
    let data = mux.ok(create_on(name)).await;
    mux.skip();
    data["session_id"].as_str().unwrap().to_owned()
}

/// Every message of a session as `qd logs --json` prints them.
fn messages_in(output: &Output) -> Vec<Value> {
    ok(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A new code for a machine to join.
async fn invite_code(qd: &Qd) -> String {
    qd.invite().await["code"].as_str().unwrap().to_owned()
}
