//! After a restart, planned or not: what waited is delivered once, and what nobody can know is said.

use qd_testkit::mux::{Mux, names, short, text_of, transcript};
use qd_testkit::process::{eventually, kill9, with_marker};
use qd_testkit::qd::{Qd, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::{demo, demo_session, pi, pi_session, pi_with_session, sandbox};

fn command(cmd: &str, session: &str, message: &str) -> Value {
    json!({"cmd": cmd, "session_id": session, "message": message})
}

fn queue(steering: &[&str], follow_up: &[&str]) -> Value {
    json!({"steering": steering, "follow_up": follow_up})
}

/// What people said, in order.
async fn said(mux: &mut Mux, session: &str) -> Vec<String> {
    let messages = transcript(&mux.messages(session).await);
    messages.into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
}

async fn until_idle_with_empty_queue(mux: &mut Mux, session: &str, from: usize) {
    mux.until_idle(session, from).await;
    let state = mux.state(session).await;
    assert_eq!((&state["status"], &state["queue"]), (&json!("idle"), &queue(&[], &[])), "{}", short(&state));
}

/// A demo session that waits for a person, with two messages that wait for it.
async fn waiting(mux: &mut Mux) -> String {
    let session = demo_session(mux).await;
    mux.ok(command("prompt", &session, "/question")).await;
    mux.wait_event("agent.input_needed").await;
    let mut later = command("follow_up", &session, "/text later");
    later["client_id"] = json!("mine");
    mux.ok(later).await;
    mux.ok(command("steer", &session, "/text sooner")).await;
    let both = queue(&["/text sooner"], &["/text later"]);
    mux.wait_for("both wait", |frame| frame["queue"] == both).await;
    session
}

/// Waits until what waited is answered, and the prompt that came after it.
async fn all_run_once(mux: &mut Mux, session: &str) {
    assert_eq!(mux.state(session).await["queue"], queue(&["/text sooner"], &["/text later"]));
    assert_eq!(mux.state(session).await["status"], "dormant", "what waits starts no agent by itself");
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    let from = mux.frames().len();
    mux.ok(command("prompt", session, "/text now")).await;
    until_idle_with_empty_queue(mux, session, from).await;
    assert_eq!(said(mux, session).await, ["/question", "/text sooner", "/text later", "/text now"]);
    let later = mux.messages(session).await.into_iter().find(|message| text_of(message) == "/text later");
    assert_eq!(later.unwrap()["client_id"], "mine", "the client finds its own message again");
}

#[tokio::test]
async fn what_waited_at_kill_9_runs_once_when_the_session_is_used() {
    let (qd, mut mux) = demo().await;
    let session = waiting(&mut mux).await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": cursor})).await;
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_eq!(resolved["outcome"], "withdrawn", "nobody can answer it any more");
    assert_eq!(mux.wait_event("agent.idle").await["reason"], "aborted");
    // A second restart changes nothing.
    let qd = qd.restart().await;
    all_run_once(&mut qd.connect().await, &session).await;
}

#[tokio::test]
async fn what_waited_at_a_planned_stop_runs_once_when_the_session_is_used() {
    let (qd, mut mux) = demo().await;
    let session = waiting(&mut mux).await;
    let qd = qd.terminate().await.up().await;
    all_run_once(&mut qd.connect().await, &session).await;
}

#[tokio::test]
async fn what_waited_in_a_dead_pi_is_read_by_the_next() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.ok(command("prompt", &session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(command("follow_up", &session, "@@text text=followed")).await;
    mux.ok(command("steer", &session, "@@text text=steered")).await;
    let both = queue(&["@@text text=steered"], &["@@text text=followed"]);
    mux.wait_for("both wait", |frame| frame["queue"] == both).await;
    let pid = mux.state(&session).await["process"]["pid"].as_i64().unwrap();
    kill9(i32::try_from(pid).unwrap());
    mux.wait_event("agent.error").await;
    assert_eq!(mux.state(&session).await["queue"], both, "nothing is thrown away");
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    assert_eq!(mux.state(&session).await["queue"], both);
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    let from = mux.frames().len();
    // What waited goes first; the agent may be through with it before it gets the prompt.
    mux.ok(command("prompt", &session, "@@text text=asked")).await;
    until_idle_with_empty_queue(&mut mux, &session, from).await;
    let expected = ["@@hold name=never", "@@text text=steered", "@@text text=followed", "@@text text=asked"];
    assert_eq!(said(&mut mux, &session).await, expected);
    let seen: Vec<String> =
        llm.requests().pop().unwrap().messages().into_iter().map(|(_, text)| text).collect();
    // pi writes its file with the first answer, so the one that was cut off is not in it.
    for text in &expected[1..] {
        assert_eq!(seen.iter().filter(|seen| seen == text).count(), 1, "{text} in {seen:?}");
    }
}

#[tokio::test]
async fn sessions_resume_at_the_start_if_that_is_wanted() {
    let mut sandbox = sandbox();
    sandbox.argument("--resume").argument("at-start");
    let qd = sandbox.up().await;
    let mut mux = qd.connect().await;
    let idle = demo_session(&mut mux).await;
    let closed = demo_session(&mut mux).await;
    mux.ok(json!({"cmd": "session.close", "session_id": closed})).await;
    let session = waiting(&mut mux).await;
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    let answer = mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let is_done = answer["state"]["status"] == "idle" && answer["state"]["queue"] == queue(&[], &[]);
    if !is_done {
        mux.wait_for("the last of what waited", |frame| {
            frame["event"] == "stream.message_end" && text_of(&frame["message"]) == "/text later"
        })
        .await;
        mux.wait_event("agent.idle").await;
    }
    assert_eq!(said(&mut mux, &session).await, ["/question", "/text sooner", "/text later"]);
    assert_eq!(mux.state(&idle).await["status"], "idle");
    assert_eq!(mux.state(&closed).await["status"], "closed");
    let qd = qd.terminate().await.up().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": idle, "after": 0})).await;
    assert_eq!(mux.state(&idle).await["status"], "idle", "after a planned stop as well");
}

#[tokio::test]
async fn a_prompt_cut_off_by_a_kill_is_told_and_can_be_sent_again() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=before").await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    // A pi that does not read keeps the prompt under way.
    let pid = i32::try_from(mux.state(&session).await["process"]["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let mut keyed = command("prompt", &session, "@@text text=\"the lost one\"");
    keyed["idempotency_key"] = json!("k");
    mux.send(keyed.clone()).await;
    // Answered by the session after it has taken the prompt, which is stored by then.
    mux.state(&session).await;
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": cursor})).await;
    let told = mux.wait_event("notify").await;
    let message = told["message"].as_str().unwrap();
    assert!(message.contains("'prompt'") && message.contains("the lost one"), "{message}");
    assert!(message.contains("may or may not have run") && told["level"] == "warning", "{message}");
    for _ in 0..2 {
        let answer = mux.call(keyed.clone()).await;
        assert_eq!((&answer["success"], &answer["indeterminate"]), (&json!(false), &json!(true)));
    }
    // Told once, whatever happens later.
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": told["seq"]})).await;
    assert_eq!(mux.call(keyed.clone()).await["indeterminate"], true);
    keyed["idempotency_key"] = json!("k2");
    let from = mux.frames().len();
    mux.ok(keyed).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(!names(mux.frames()).contains(&"notify"), "it was told once");
    let said = said(&mut mux, &session).await;
    assert_eq!(said, ["@@text text=before", "@@text text=\"the lost one\""]);
}

/// What a session says that cannot come back, and that it comes back when the cause is gone.
async fn cannot_come_back(qd: Qd, session: &str, expected: &str) -> (Qd, Mux) {
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    assert_eq!(mux.state(session).await["status"], "dormant");
    let error = mux.refused(command("prompt", session, "@@text text=on")).await;
    assert!(error.contains(expected), "{error}");
    let state = mux.state(session).await;
    assert_eq!(state["status"], "failed");
    assert!(state["error"].as_str().unwrap().contains(expected), "{}", short(&state));
    (qd, mux)
}

#[tokio::test]
async fn a_session_that_cannot_come_back_says_why() {
    let (qd, mut mux, _llm) = pi().await;
    let place = qd.sandbox().path("place");
    std::fs::create_dir(&place).unwrap();
    let session = pi_session(&qd, &mut mux, json!({"cwd": place})).await;
    mux.prompt(&session, "@@text text=one").await;
    let file = mux.state(&session).await["native_session_file"].as_str().unwrap().to_owned();

    std::fs::remove_dir(&place).unwrap();
    let (qd, _mux) = cannot_come_back(qd, &session, "There is no directory").await;
    std::fs::create_dir(&place).unwrap();
    let aside = format!("{file}.aside");
    std::fs::rename(&file, &aside).unwrap();
    let (_qd, mut mux) = cannot_come_back(qd, &session, &file).await;
    assert!(!std::path::Path::new(&file).exists(), "no empty conversation takes its place");
    std::fs::rename(&aside, &file).unwrap();
    let events = mux.attach_and_prompt(&session, "@@text text=two").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(said(&mut mux, &session).await, ["@@text text=one", "@@text text=two"]);
}

#[tokio::test]
async fn an_agent_resumed_at_the_start_leaves_nothing_behind() {
    let llm = qd_testkit::llm::LlmServer::start().await.unwrap();
    let mut sandbox = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm);
    sandbox.argument("--resume").argument("at-start");
    let qd = sandbox.up().await;
    let mut mux = qd.connect().await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=one").await;
    let place = qd.sandbox().data_dir().display().to_string();
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    mux.wait_for("it is back", |frame| frame["event"] == "session.created" && frame["resumed"] == true).await;
    assert_eq!(mux.prompt(&session, "@@text text=two").await.last().unwrap()["reason"], "stop");
    qd.kill9().await;
    eventually("nothing is left", || with_marker(&place).is_empty()).await;
}

/// A pi session whose turn was aborted while a message waited for its end.
async fn left_over(qd: &Qd, mux: &mut Mux) -> String {
    let session = pi_session(qd, mux, json!({})).await;
    mux.prompt(&session, "@@text text=before").await;
    let from = mux.frames().len();
    mux.ok(command("prompt", &session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(command("follow_up", &session, "@@text text=left")).await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    mux.until_idle(&session, from).await;
    assert_eq!(mux.state(&session).await["queue"], queue(&[], &["@@text text=left"]));
    session
}

#[tokio::test]
async fn what_an_abort_left_over_is_run_by_the_next_prompt_only() {
    let (qd, mut mux, llm) = pi().await;
    let session = left_over(&qd, &mut mux).await;
    let calls = llm.requests().len();
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    // Reads and settings start pi.
    mux.ok(json!({"cmd": "get_commands", "session_id": session})).await;
    mux.ok(json!({"cmd": "get_stats", "session_id": session})).await;
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "n"})).await;
    let state = mux.state(&session).await;
    assert_eq!((&state["status"], &state["queue"]), (&json!("idle"), &queue(&[], &["@@text text=left"])));
    assert_eq!(llm.requests().len(), calls, "a look costs nothing");
    let from = mux.frames().len();
    mux.ok(command("prompt", &session, "@@text text=next")).await;
    until_idle_with_empty_queue(&mut mux, &session, from).await;
    let said = said(&mut mux, &session).await;
    assert_eq!(&said[said.len() - 2..], ["@@text text=left", "@@text text=next"]);
}

#[tokio::test]
async fn what_waited_stays_behind_when_the_session_moves() {
    let (qd, mut mux, _llm) = pi().await;
    for kind in ["new", "tree"] {
        let session = left_over(&qd, &mut mux).await;
        mux.skip();
        if kind == "new" {
            mux.ok(json!({"cmd": "session.new", "session_id": session})).await;
        } else {
            let tree = mux.ok(json!({"cmd": "get_tree", "session_id": session})).await;
            let target = tree["nodes"][0]["entry_id"].clone();
            mux.ok(json!({"cmd": "navigate_tree", "session_id": session, "target_id": target})).await;
        }
        let told = mux.wait_event("notify").await["message"].as_str().unwrap().to_owned();
        assert!(told.ends_with("\n@@text text=left"), "{kind}: {told}");
        assert_eq!(mux.state(&session).await["queue"], queue(&[], &[]), "{kind}");
        let from = mux.frames().len();
        mux.ok(command("prompt", &session, "@@text text=next")).await;
        until_idle_with_empty_queue(&mut mux, &session, from).await;
        assert!(!said(&mut mux, &session).await.contains(&"@@text text=left".to_owned()), "{kind}");
    }
}
