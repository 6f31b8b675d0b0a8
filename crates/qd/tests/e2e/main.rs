//! The whole binary, end to end: `qd up` as a person starts it, clients on `/ws/mux`, the demo agent and real pi.
//! One module per theme; each test is named by what a user gets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test code, helpers included")]

mod access;
mod acknowledged;
mod cli;
mod coming_back;
mod crashes;
mod demo;
mod fleet;
mod foreign;
mod garbage;
mod identity;
mod interleavings;
mod lifecycle;
mod mcp;
mod people;
mod pi_bridge;
mod pi_dialogs;
mod pi_failures;
mod pi_files;
mod pi_races;
mod pi_server;
mod pi_settings;
mod pi_stdio;
mod pi_turns;
mod push;
mod queue;
mod reconnect;
mod runs;
mod server;
mod supervision;

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::Mux;
use qd_testkit::qd::{Qd, World};
use serde_json::{Value, json};

/// A world with the binary under test and no agent but the demo.
fn world() -> World {
    World::new(env!("CARGO_BIN_EXE_qd"))
}

/// A server for the demo agent and a client.
async fn demo() -> (Qd, Mux) {
    let qd = world().up().await;
    let mux = qd.connect().await;
    (qd, mux)
}

/// A session of the demo agent.
async fn demo_session(mux: &mut Mux) -> String {
    mux.create(json!({"harness": "demo"})).await
}

/// A server with the real pi and its scripted model, and a client.
async fn pi() -> (Qd, Mux, LlmServer) {
    let llm = LlmServer::start().await.unwrap();
    let qd = World::with_pi(env!("CARGO_BIN_EXE_qd"), &llm).up().await;
    let mux = qd.connect().await;
    (qd, mux, llm)
}

/// A session of the real pi, with more configuration.
async fn pi_session(qd: &Qd, mux: &mut Mux, more: Value) -> String {
    let mut config = json!({"harness": "pi", "cwd": qd.world().work()});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    mux.create(config).await
}
