//! Watching over real agents: hung, stopped, silent, and killed ones.

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, of, short};
use qd_testkit::process::eventually;
use qd_testkit::qd::{Qd, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{pi_session, prompt};

/// A server with the real pi that is watched closely, and a client.
async fn watched(arguments: &[&str]) -> (Qd, Mux, LlmServer) {
    let llm = LlmServer::start().await.unwrap();
    let mut sandbox = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm);
    for argument in ["--hang-warning", "1", "--probe-interval", "1"].iter().chain(arguments) {
        sandbox.argument(argument);
    }
    let qd = sandbox.up().await;
    let mux = qd.connect().await;
    (qd, mux, llm)
}

async fn pid_of(mux: &mut Mux, session: &str) -> i32 {
    i32::try_from(mux.state(session).await["process"]["pid"].as_i64().unwrap()).unwrap()
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn health(text: &Value, frame: &Value) -> bool {
    frame["event"] == "status" && frame["key"] == "qd.health" && frame["text"] == *text
}

#[tokio::test]
async fn a_stopped_agent_is_reported_until_it_answers_again() {
    let (qd, mut mux, _llm) = watched(&[]).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    let pid = pid_of(&mut mux, &session).await;
    signal(pid, Signal::STOP);
    let warning = mux.wait_event("notify").await;
    assert_eq!(warning["level"], "warning");
    assert!(warning["message"].as_str().unwrap().contains("does not respond"), "{}", short(&warning));
    mux.wait_for("the status", |frame| health(&json!("The agent does not respond"), frame)).await;
    let state = mux.state(&session).await;
    assert_eq!(state["status_texts"]["qd.health"], "The agent does not respond");
    assert_eq!(state["process"]["alive"], true);
    signal(pid, Signal::CONT);
    mux.wait_for("the all-clear", |frame| health(&Value::Null, frame)).await;
    assert!(mux.state(&session).await["status_texts"].get("qd.health").is_none());
    assert_eq!(mux.prompt(&session, "@@text text=back").await.last().unwrap()["reason"], "stop");
    assert_eq!(pid_of(&mut mux, &session).await, pid, "nobody asked for a restart");
}

#[tokio::test]
async fn a_hung_agent_is_killed_and_goes_on_from_its_file() {
    let (qd, mut mux, llm) = watched(&["--hang-restart", "2"]).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=\"the first answer\"").await;
    let pid = pid_of(&mut mux, &session).await;
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    signal(pid, Signal::STOP);
    let from = mux.frames().len();
    let cut = mux
        .send(json!({"cmd": "follow_up", "session_id": session, "message": "@@text text=cut",
            "idempotency_key": "cut"}))
        .await;
    let events = mux.until_idle(&session, from).await;
    let error = of(&events, "agent.error")[0];
    assert!(error["error"].as_str().unwrap().contains("The agent hung"), "{}", short(error));
    assert_eq!(error["recoverable"], true);
    assert_eq!(events.last().unwrap()["reason"], "error");
    let created = mux.wait_since(from, "the restart", |frame| frame["event"] == "session.created").await;
    assert_eq!(created["resumed"], true);
    let answer = mux.response(from, &cut).await;
    assert_eq!(answer["indeterminate"], true, "nobody can know: {}", short(&answer));
    let told = mux.wait_since(from, "what was cut off", |frame| {
        frame["event"] == "notify" && frame["message"].as_str().unwrap().contains("@@text text=cut")
    });
    assert_eq!(told.await["level"], "warning");
    eventually("the old process is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
    assert_ne!(pid_of(&mut mux, &session).await, pid);
    assert_eq!(mux.prompt(&session, "@@text text=on").await.last().unwrap()["reason"], "stop");
    let context = llm.requests().pop().unwrap().messages();
    assert!(context.iter().any(|(_, text)| text == "the first answer"), "{context:?}");
}

#[tokio::test]
async fn a_long_silent_tool_is_named_and_left_alone() {
    let (qd, mut mux, _llm) = watched(&["--hang-restart", "2"]).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    let from = mux.begin_prompt(&session, "@@bash command=\"sleep 7\"").await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(of(&events, "notify").len() + of(&events, "agent.error").len(), 0, "no word of a hang");
    let texts: Vec<&Value> = of(&events, "status")
        .into_iter()
        .filter(|event| event["key"] == "qd.health")
        .map(|event| &event["text"])
        .collect();
    let named =
        texts.iter().filter(|text| text.as_str().is_some_and(|text| text.starts_with("Running bash for")));
    assert!(named.count() >= 3, "{texts:?}");
    assert!(texts.last().unwrap().is_null(), "{texts:?}");
}

#[tokio::test]
async fn a_silent_model_is_told_once_and_not_killed() {
    let (qd, mut mux, llm) = watched(&["--hang-restart", "2"]).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.ok(prompt(&session, "@@hold name=slow")).await;
    let warning = mux.wait_event("notify").await;
    let message = warning["message"].as_str().unwrap();
    assert!(message.contains("silent for") && message.contains("generating"), "{message}");
    mux.wait_for("the status", |frame| health(&json!("The agent is silent"), frame)).await;
    // Far longer than the patience with an agent that does not answer.
    let heartbeat = mux.wait_event("session.heartbeat").await;
    assert!(heartbeat["process"]["rss_bytes"].as_u64().unwrap() > 1 << 20, "{}", short(&heartbeat));
    let pid = heartbeat["process"]["pid"].as_i64().unwrap();
    llm.release("slow");
    let from = mux.frames().iter().position(|frame| *frame == warning).unwrap();
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(of(&events, "notify").len(), 1, "one warning per silence");
    assert_eq!(i64::from(pid_of(&mut mux, &session).await), pid);
}

#[tokio::test]
async fn a_death_is_told_at_once_with_its_signal() {
    let (qd, mut mux, _llm) = watched(&[]).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    for (number, name) in [(Signal::SEGV, "SIGSEGV"), (Signal::KILL, "SIGKILL")] {
        mux.prompt(&session, "@@text text=up").await;
        signal(pid_of(&mut mux, &session).await, number);
        let error = mux.wait_event("agent.error").await;
        assert!(error["error"].as_str().unwrap().contains(name), "{}", short(&error));
        assert_eq!(mux.state(&session).await["status"], "failed");
    }
}
