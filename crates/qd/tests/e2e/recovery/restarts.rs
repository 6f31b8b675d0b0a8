//! After a restart, planned or not: what waited is delivered once, and what nobody can know is said.

use qd_testkit::mux::{Mux, names, short, text_of};
use qd_testkit::process::{eventually, kill9, with_marker};
use qd_testkit::qd::Qd;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    demo, demo_asks, demo_session, on, pi, pi_in, pi_session, pi_with_session, pid_of, prompt, queue,
    restarted, said_by, sandbox, say, signal, until, up, with,
};

/// What waited and what came after it may be one turn or several, so the first idle need not be the last.
async fn until_idle_with_empty_queue(mux: &mut Mux, session: &str, from: usize) {
    mux.until_idle(session, from).await;
    until("idle, and nothing waits", async || {
        let state = mux.state(session).await;
        let is_over = state["status"] == "idle" && state["queue"] == queue(&[], &[]);
        if is_over { Ok(()) } else { Err(short(&state)) }
    })
    .await;
}

/// A demo session that waits for a person, with two messages that wait for it.
async fn waiting(mux: &mut Mux) -> String {
    let session = demo_session(mux).await;
    demo_asks(mux, &session).await;
    mux.ok(with(say("follow_up", &session, "/text later"), json!({"client_id": "mine"}))).await;
    mux.ok(say("steer", &session, "/text sooner")).await;
    let both = queue(&["/text sooner"], &["/text later"]);
    mux.wait_for("both wait", |frame| frame["queue"] == both).await;
    session
}

/// Waits until what waited is answered, and the prompt that came after it.
async fn all_run_once(mux: &mut Mux, session: &str) {
    assert_eq!(mux.state(session).await["queue"], queue(&["/text sooner"], &["/text later"]));
    assert_eq!(mux.state(session).await["status"], "dormant", "what waits starts no agent by itself");
    mux.ok(on(session, "session.attach")).await;
    let from = mux.frames().len();
    mux.ok(prompt(session, "/text now")).await;
    until_idle_with_empty_queue(mux, session, from).await;
    assert_eq!(
        said_by(mux, "user", session).await,
        ["/question", "/text sooner", "/text later", "/text now"]
    );
    let later = mux.messages(session).await.into_iter().find(|message| text_of(message) == "/text later");
    assert_eq!(later.unwrap()["client_id"], "mine", "the client finds its own message again");
}

#[tokio::test]
async fn what_waited_at_kill_9_runs_once_when_the_session_is_used() {
    let (qd, mut mux) = demo().await;
    let session = waiting(&mut mux).await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let (qd, mut mux) = restarted(qd).await;
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
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(say("follow_up", &session, "@@text text=followed")).await;
    mux.ok(say("steer", &session, "@@text text=steered")).await;
    let both = queue(&["@@text text=steered"], &["@@text text=followed"]);
    mux.wait_for("both wait", |frame| frame["queue"] == both).await;
    kill9(pid_of(&mut mux, &session).await);
    mux.wait_event("agent.error").await;
    assert_eq!(mux.state(&session).await["queue"], both, "nothing is thrown away");
    let (_qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.state(&session).await["queue"], both);
    mux.ok(on(&session, "session.attach")).await;
    let from = mux.frames().len();
    // What waited goes first; the agent may be through with it before it gets the prompt.
    mux.ok(prompt(&session, "@@text text=asked")).await;
    until_idle_with_empty_queue(&mut mux, &session, from).await;
    let expected = ["@@hold name=never", "@@text text=steered", "@@text text=followed", "@@text text=asked"];
    assert_eq!(said_by(&mut mux, "user", &session).await, expected);
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
    let (qd, mut mux) = up(sandbox).await;
    let idle = demo_session(&mut mux).await;
    let closed = demo_session(&mut mux).await;
    mux.ok(json!({"cmd": "session.close", "session_id": closed})).await;
    let session = waiting(&mut mux).await;
    let (qd, mut mux) = restarted(qd).await;
    let answer = mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": 0})).await;
    let is_done = answer["state"]["status"] == "idle" && answer["state"]["queue"] == queue(&[], &[]);
    if !is_done {
        let is_last = |frame: &Value| {
            frame["event"] == "stream.message_end" && text_of(&frame["message"]) == "/text later"
        };
        mux.wait_for("the last of what waited", is_last).await;
        mux.wait_event("agent.idle").await;
    }
    assert_eq!(said_by(&mut mux, "user", &session).await, ["/question", "/text sooner", "/text later"]);
    assert_eq!(mux.state(&idle).await["status"], "idle");
    assert_eq!(mux.state(&closed).await["status"], "closed");
    let (_qd, mut mux) = up(qd.terminate().await).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": idle, "after": 0})).await;
    assert_eq!(mux.state(&idle).await["status"], "idle", "after a planned stop as well");
}

#[tokio::test]
async fn a_prompt_cut_off_by_a_kill_is_told_and_can_be_sent_again() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=before").await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    // A pi that does not read keeps the prompt under way.
    signal(pid_of(&mut mux, &session).await, Signal::STOP);
    let lost = prompt(&session, "@@text text=\"the lost one\"");
    let keyed = with(lost.clone(), json!({"idempotency_key": "k"}));
    mux.send(keyed.clone()).await;
    // Answered by the session after it has taken the prompt, which is stored by then.
    mux.state(&session).await;
    let (qd, mut mux) = restarted(qd).await;
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
    let (_qd, mut mux) = restarted(qd).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": told["seq"]})).await;
    assert_eq!(mux.call(keyed).await["indeterminate"], true);
    let from = mux.frames().len();
    mux.ok(with(lost, json!({"idempotency_key": "k2"}))).await;
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(!names(mux.frames()).contains(&"notify"), "it was told once");
    let said = said_by(&mut mux, "user", &session).await;
    assert_eq!(said, ["@@text text=before", "@@text text=\"the lost one\""]);
}

/// What a session says that cannot come back, and that it comes back when the cause is gone.
async fn cannot_come_back(qd: Qd, session: &str, expected: &str) -> (Qd, Mux) {
    let (qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.state(session).await["status"], "dormant");
    let error = mux.refused(prompt(session, "@@text text=on")).await;
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
    assert_eq!(said_by(&mut mux, "user", &session).await, ["@@text text=one", "@@text text=two"]);
}

#[tokio::test]
async fn an_agent_resumed_at_the_start_leaves_nothing_behind() {
    let (qd, mut mux, _llm) = pi_in(|sandbox| sandbox.argument("--resume").argument("at-start")).await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=one").await;
    let place = qd.sandbox().data_dir().display().to_string();
    let (qd, mut mux) = restarted(qd).await;
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
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    mux.ok(say("follow_up", &session, "@@text text=left")).await;
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
    let (_qd, mut mux) = restarted(qd).await;
    mux.ok(on(&session, "session.attach")).await;
    // Reads and settings start pi.
    mux.ok(json!({"cmd": "get_commands", "session_id": session})).await;
    mux.ok(json!({"cmd": "get_stats", "session_id": session})).await;
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "n"})).await;
    let state = mux.state(&session).await;
    assert_eq!((&state["status"], &state["queue"]), (&json!("idle"), &queue(&[], &["@@text text=left"])));
    assert_eq!(llm.requests().len(), calls, "a look costs nothing");
    let from = mux.frames().len();
    mux.ok(prompt(&session, "@@text text=next")).await;
    until_idle_with_empty_queue(&mut mux, &session, from).await;
    let said = said_by(&mut mux, "user", &session).await;
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
        mux.ok(prompt(&session, "@@text text=next")).await;
        until_idle_with_empty_queue(&mut mux, &session, from).await;
        assert!(
            !said_by(&mut mux, "user", &session).await.contains(&"@@text text=left".to_owned()),
            "{kind}"
        );
    }
}
