//! The whole binary, end to end: `qd up` as a person starts it, clients on `/ws/mux`, the demo agent and real pi.
//! One module per theme; each test is named by what a user gets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "all of this is test code, helpers included")]

mod access;
mod cli;
mod clients;
mod fleet;
mod mcp;
mod memory;
mod pi;
mod pi_server;
mod push;
mod recovery;
mod runs;
mod server;
mod sessions;

use std::process::Output;
use std::time::Duration;

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, WAIT_MAX, short, transcript};
use qd_testkit::process::{eventually, with_marker};
use qd_testkit::qd::{Qd, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// How often something is asked again.
const POLL: Duration = Duration::from_millis(25);

/// A picture of one pixel, as base64.
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// A sandbox with the binary under test and no agent but the demo.
fn sandbox() -> Sandbox {
    Sandbox::new(env!("CARGO_BIN_EXE_qd"))
}

/// The same with the real pi and its scripted model.
async fn pi_sandbox() -> (Sandbox, LlmServer) {
    let llm = LlmServer::start().await.unwrap();
    (Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm), llm)
}

/// A server in this sandbox, and a client.
async fn up(sandbox: Sandbox) -> (Qd, Mux) {
    let qd = sandbox.up().await;
    let mux = qd.connect().await;
    (qd, mux)
}

/// The server, killed and started again, and a new client.
async fn restarted(qd: Qd) -> (Qd, Mux) {
    up(qd.kill9().await).await
}

/// A server for the demo agent and a client.
async fn demo() -> (Qd, Mux) {
    up(sandbox()).await
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
    pi_in(|sandbox| sandbox).await
}

/// The same in a sandbox that is changed first.
async fn pi_in(change: impl FnOnce(&mut Sandbox) -> &mut Sandbox) -> (Qd, Mux, LlmServer) {
    let (mut sandbox, llm) = pi_sandbox().await;
    change(&mut sandbox);
    let (qd, mux) = up(sandbox).await;
    (qd, mux, llm)
}

/// The same with a session of pi.
async fn pi_with_session() -> (Qd, Mux, LlmServer, String) {
    let (qd, mut mux, llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    (qd, mux, llm, session)
}

/// A session of the real pi, with more configuration.
async fn pi_session(qd: &Qd, mux: &mut Mux, more: Value) -> String {
    mux.create(with(json!({"harness": "pi", "cwd": qd.sandbox().work()}), more)).await
}

/// The command that prompts a session.
fn prompt(session: &str, message: &str) -> Value {
    say("prompt", session, message)
}

/// A command with a message: `prompt`, `steer` or `follow_up`.
fn say(cmd: &str, session: &str, message: &str) -> Value {
    json!({"cmd": cmd, "session_id": session, "message": message})
}

/// A command to a session, without parameters.
fn on(session: &str, cmd: &str) -> Value {
    json!({"cmd": cmd, "session_id": session})
}

/// An object with more fields.
fn with(mut object: Value, more: Value) -> Value {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

/// The command that answers a question.
fn answer(session: &str, request_id: &Value, fields: Value) -> Value {
    with(json!({"cmd": "input_response", "session_id": session, "request_id": request_id}), fields)
}

/// The queue of a session with these messages.
fn queue(steering: &[&str], follow_up: &[&str]) -> Value {
    json!({"steering": steering, "follow_up": follow_up})
}

/// Prompts the demo agent so that it asks a question, and waits for that.
async fn demo_asks(mux: &mut Mux, session: &str) -> Value {
    mux.ok(prompt(session, "/question")).await;
    mux.wait_event("agent.input_needed").await
}

/// Starts a turn that streams until it is stopped, and waits for the first of it; returns how many frames were there
/// before.
async fn begin_endless(mux: &mut Mux, session: &str) -> usize {
    let from = mux.begin_prompt(session, "/long 1000000").await;
    mux.wait_event("stream.text_delta").await;
    from
}

/// Has pi run a tool for ever, with a name of its own that finds the process; waits until it runs.
async fn endless_tool(mux: &mut Mux, session: &str, number: u32) -> String {
    let seconds = format!("{number}{}", std::process::id());
    mux.ok(prompt(session, &format!("@@bash command=\"sleep {seconds}\""))).await;
    mux.wait_event("tool.start").await;
    let marker = format!("sleep\0{seconds}");
    eventually("the tool runs", || !with_marker(&marker).is_empty()).await;
    marker
}

/// What one side said in a conversation (`user` or `assistant`), in order.
async fn said_by(mux: &mut Mux, role: &str, session: &str) -> Vec<String> {
    let messages = transcript(&mux.messages(session).await);
    messages.into_iter().filter(|(of, _)| of == role).map(|(_, text)| text).collect()
}

/// The rows of `list_sessions`.
async fn session_rows(mux: &mut Mux) -> Vec<Value> {
    mux.ok(json!({"cmd": "list_sessions"})).await["sessions"].as_array().unwrap().clone()
}

/// Checks some fields of an answer or event. `a/b` is the field `b` of the field `a`; a missing one counts as null.
#[track_caller]
fn assert_fields(value: &Value, expected: Value) {
    for (path, expected) in expected.as_object().unwrap() {
        let found = value.pointer(&format!("/{path}")).unwrap_or(&Value::Null);
        assert_eq!(found, expected, "{path} of {}", short(value));
    }
}

/// Asks again and again until there is an answer; an error is what was seen instead.
async fn until<T>(what: &str, mut ask: impl AsyncFnMut() -> Result<T, String>) -> T {
    let mut last = String::new();
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(seen) => last = seen,
            }
            tokio::time::sleep(POLL).await;
        }
    };
    let answer = tokio::time::timeout(WAIT_MAX, asking).await;
    answer.unwrap_or_else(|_| panic!("waited {WAIT_MAX:?} in vain for {what}: {last}"))
}

/// The process of a session's agent.
async fn pid_of(mux: &mut Mux, session: &str) -> i32 {
    i32::try_from(mux.state(session).await["process"]["pid"].as_i64().unwrap()).unwrap()
}

/// Sends a signal to a process that the test has started.
fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The stdout of a command.
fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The stderr of a command.
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

/// What a command printed with `--json`.
#[track_caller]
fn ok_json(output: &Output) -> Value {
    serde_json::from_str(&ok(output)).unwrap()
}
