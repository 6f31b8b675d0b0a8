//! Watching over real agents: hung, stopped, silent, and killed ones.

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, of, short};
use qd_testkit::process::eventually;
use qd_testkit::qd::Qd;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{pi_in, pi_session, pid_of, prompt, say, signal, with};

/// A server with the real pi that is watched closely, a client, and a session of pi.
async fn watched(arguments: &[&str]) -> (Qd, Mux, LlmServer, String) {
    let arguments = ["--hang-warning", "1", "--probe-interval", "1"].iter().chain(arguments);
    let (qd, mut mux, llm) =
        pi_in(|sandbox| arguments.fold(sandbox, |sandbox, argument| sandbox.argument(argument))).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    (qd, mux, llm, session)
}

fn health(text: &Value, frame: &Value) -> bool {
    frame["event"] == "status" && frame["key"] == "qd.health" && frame["text"] == *text
}

#[tokio::test]
async fn a_stopped_agent_is_reported_until_it_answers_again() {
    let (_qd, mut mux, _llm, session) = watched(&[]).await;
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
    let (_qd, mut mux, llm, session) = watched(&["--hang-restart", "2"]).await;
    mux.prompt(&session, "@@text text=\"the first answer\"").await;
    let pid = pid_of(&mut mux, &session).await;
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    signal(pid, Signal::STOP);
    let from = mux.frames().len();
    let keyed = json!({"idempotency_key": "cut"});
    let cut = mux.send(with(say("follow_up", &session, "@@text text=cut"), keyed)).await;
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
    let (_qd, mut mux, _llm, session) = watched(&["--hang-restart", "2"]).await;
    let from = mux.begin_prompt(&session, "@@bash command=\"sleep 7\"").await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(of(&events, "notify").len() + of(&events, "agent.error").len(), 0, "no word of a hang");
    let mut states = of(&events, "status");
    states.retain(|event| event["key"] == "qd.health");
    let texts: Vec<&Value> = states.iter().map(|event| &event["text"]).collect();
    let is_named = |text: &&&Value| text.as_str().is_some_and(|text| text.starts_with("Running bash for"));
    assert!(texts.iter().filter(is_named).count() >= 3, "{texts:?}");
    assert!(texts.last().unwrap().is_null(), "{texts:?}");
}

#[tokio::test]
async fn a_silent_model_is_told_once_and_not_killed() {
    let (_qd, mut mux, llm, session) = watched(&["--hang-restart", "2"]).await;
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
    let (_qd, mut mux, _llm, session) = watched(&[]).await;
    for (number, name) in [(Signal::SEGV, "SIGSEGV"), (Signal::KILL, "SIGKILL")] {
        mux.prompt(&session, "@@text text=up").await;
        signal(pid_of(&mut mux, &session).await, number);
        let error = mux.wait_event("agent.error").await;
        assert!(error["error"].as_str().unwrap().contains(name), "{}", short(&error));
        assert_eq!(mux.state(&session).await["status"], "failed");
    }
}
