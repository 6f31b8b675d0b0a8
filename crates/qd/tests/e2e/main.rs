//! The whole binary, end to end: `qd up` as a person starts it, clients on `/ws/mux`, the demo agent and real pi.
//! One module per theme; each test is named by what a user gets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test code, helpers included")]

mod access;
mod acknowledged;
mod cli;
mod crashes;
mod demo;
mod fleet;
mod garbage;
mod identity;
mod interleavings;
mod lifecycle;
mod mcp;
mod pi;
mod pi_server;
mod push;
mod queue;
mod reconnect;
mod restarts;
mod runs;
mod server;
mod several_clients;
mod supervision;

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::Mux;
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};

/// A sandbox with the binary under test and no agent but the demo.
fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_qd"))
}

/// A server for the demo agent and a client.
async fn demo() -> (Qd, Mux) {
    let qd = sandbox().up().await;
    let mux = qd.connect().await;
    (qd, mux)
}

/// A session of the demo agent.
async fn demo_session(mux: &mut Mux) -> String {
    mux.create(json!({"harness": "demo"})).await
}

/// The same with a session of the demo agent.
async fn demo_with_session() -> (Qd, Mux, String) {
    let (qd, mut mux) = demo().await;
    let session = demo_session(&mut mux).await;
    (qd, mux, session)
}

/// A server with the real pi and its scripted model, and a client.
async fn pi() -> (Qd, Mux, LlmServer) {
    let llm = LlmServer::start().await.unwrap();
    let qd = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm).up().await;
    let mux = qd.connect().await;
    (qd, mux, llm)
}

/// The same with a session of pi.
async fn pi_with_session() -> (Qd, Mux, LlmServer, String) {
    let (qd, mut mux, llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    (qd, mux, llm, session)
}

/// The command that prompts a session.
fn prompt(session: &str, message: &str) -> Value {
    json!({"cmd": "prompt", "session_id": session, "message": message})
}

/// A session of the real pi, with more configuration.
async fn pi_session(qd: &Qd, mux: &mut Mux, more: Value) -> String {
    let mut config = json!({"harness": "pi", "cwd": qd.sandbox().work()});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    mux.create(config).await
}
