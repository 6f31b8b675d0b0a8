//! Real pi, and look-alikes: everything that can die, be missing or talk rubbish.

use qd_testkit::mux::{Mux, of, text_of, transcript};
use qd_testkit::pi::{fake_pi, pi_command, test_extension};
use qd_testkit::process::{eventually, kill9, peak_resident_bytes, with_marker};
use qd_testkit::qd::Qd;
use serde_json::{Value, json};

use crate::{
    demo, endless_tool, pi, pi_in, pi_session, pi_with_session, pid_of, prompt, restarted, said_by, sandbox,
    session_rows, up, with,
};

/// A server whose pi is a look-alike.
async fn with_fake_pi(name: &str) -> (Qd, Mux) {
    let mut sandbox = sandbox();
    let node = pi_command().unwrap().swap_remove(0);
    let bin = std::path::Path::new(&node).parent().unwrap().to_owned();
    sandbox.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    sandbox.set("QD_PI_COMMAND", fake_pi(name));
    up(sandbox).await
}

/// The same with one that talks rubbish, and a session of it.
async fn with_garbage_pi() -> (Qd, Mux, String) {
    let (qd, mut mux) = with_fake_pi("garbage-pi").await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    (qd, mux, session)
}

fn create(qd: &Qd, more: Value) -> Value {
    let config = with(json!({"harness": "pi", "cwd": qd.sandbox().work()}), more);
    json!({"cmd": "session.create", "config": config})
}

async fn assert_no_session(mux: &mut Mux) {
    assert!(session_rows(mux).await.is_empty());
}

#[tokio::test]
async fn qd_killed_in_the_middle_of_a_stream_loses_nothing_but_the_unsaid() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=\"the first answer\"").await;
    let before = mux.messages(&session).await;
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let (_qd, mut mux) = restarted(qd).await;
    let data = mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": cursor})).await;
    assert_eq!((&data["resume"], &data["state"]["status"]), (&json!("ok"), &json!("dormant")));
    assert!(data.get("partial").is_none());
    let error = mux.wait_event("agent.error").await;
    assert!(error["error"].as_str().unwrap().contains("stopped while the agent was working"), "{error}");
    assert_eq!(mux.wait_event("agent.idle").await["reason"], "aborted");
    let messages = mux.messages(&session).await;
    assert_eq!(messages[..before.len()], before);
    assert_eq!(transcript(&messages[before.len()..])[0], ("user".to_owned(), "@@hold name=never".to_owned()));
    let events = mux.prompt(&session, "@@text text=\"the last answer\"").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let context = llm.requests().pop().unwrap().messages();
    let is_there = context.iter().any(|(_, text)| text == "the first answer");
    assert!(is_there, "the old context: {context:?}");
    let after = mux.messages(&session).await;
    assert_eq!(after[..messages.len()], messages, "history stays as it was");
    assert_eq!(text_of(after.last().unwrap()), "the last answer");
    let indices = after.iter().map(|message| message["idx"].as_u64().unwrap());
    assert!(indices.eq(0..after.len() as u64), "{after:?}");
}

#[tokio::test]
async fn qd_killed_in_the_middle_of_a_tool_leaves_no_process() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let marker = endless_tool(&mut mux, &session, 41).await;
    let pid = pid_of(&mut mux, &session).await;
    let sandbox = qd.kill9().await;
    eventually("the tool is gone", || with_marker(&marker).is_empty()).await;
    eventually("pi is gone", || !is_running(pid)).await;
    let place = sandbox.data_dir().display().to_string();
    eventually("nothing of this server is left", || with_marker(&place).is_empty()).await;
    let (_qd, mut mux) = up(sandbox).await;
    let events = mux.attach_and_prompt(&session, "@@text text=on").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "on");
}

fn is_running(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn pi_killed_in_the_middle_of_a_tool_leaves_no_process_and_the_session_goes_on() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    let marker = endless_tool(&mut mux, &session, 42).await;
    kill9(pid_of(&mut mux, &session).await);
    let events = mux.until_idle(&session, from).await;
    let error = of(&events, "agent.error")[0];
    assert!(error["error"].as_str().unwrap().contains("signal 9"), "{error}");
    assert_eq!(error["recoverable"], false);
    assert_eq!(of(&events, "tool.end")[0]["is_error"], true, "the tool is over too");
    assert_eq!(events.last().unwrap()["reason"], "error");
    eventually("the tool is gone", || with_marker(&marker).is_empty()).await;
    let state = mux.state(&session).await;
    assert_eq!(state["status"], "failed");
    assert!(state["error"].as_str().unwrap().contains("signal 9"));
    let events = mux.prompt(&session, "@@text text=\"alive again\"").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(llm.requests().pop().unwrap().messages().iter().any(|(_, text)| text.contains("sleep 42")));
    assert_eq!(mux.state(&session).await["status"], "idle");
}

#[tokio::test]
async fn closing_a_session_leaves_no_process() {
    let (qd, mut mux, _llm) = pi().await;
    for (number, cmd) in [(43, "session.close"), (44, "session.delete")] {
        let session = pi_session(&qd, &mut mux, json!({})).await;
        let marker = endless_tool(&mut mux, &session, number).await;
        mux.ok(json!({"cmd": cmd, "session_id": session})).await;
        eventually("the tool is gone", || with_marker(&marker).is_empty()).await;
    }
}

#[tokio::test]
async fn a_missing_pi_is_named_with_what_to_do() {
    let (qd, mut mux) = demo().await;
    let error = mux.refused(create(&qd, json!({}))).await;
    assert!(error.contains("pi is not installed") && error.contains("npm install"), "{error}");
    assert_no_session(&mut mux).await;
    let runners = mux.ok(json!({"cmd": "get_runners"})).await;
    assert_eq!(runners["runners"][0]["harnesses"], json!(["demo", "pty", "terminal"]));
}

#[tokio::test]
async fn a_pi_that_is_too_old_is_refused_by_version() {
    let (qd, mut mux) = with_fake_pi("old-pi").await;
    let error = mux.refused(create(&qd, json!({}))).await;
    assert!(error.contains("0.73.1") && error.contains("0.84.3") && error.contains("npm install"), "{error}");
    assert_no_session(&mut mux).await;
}

#[tokio::test]
async fn a_broken_extension_is_told_in_pis_own_words() {
    let (qd, mut mux, _llm) = pi().await;
    for (extension, expected) in
        [(test_extension("broken.ts"), "Failed to load extension"), ("/no/such.ts".into(), "/no/such.ts")]
    {
        let error = mux.refused(create(&qd, json!({"extensions": [extension]}))).await;
        assert!(error.contains(expected) && error.contains("1"), "{error}");
    }
    assert_no_session(&mut mux).await;
}

#[tokio::test]
async fn rubbish_from_the_agent_is_a_warning_and_the_answer_comes_all_the_same() {
    let (_qd, mut mux, session) = with_garbage_pi().await;
    let events = mux.prompt(&session, "hello").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let warnings = of(&events, "notify");
    assert!(warnings.iter().any(|notice| notice["level"] == "warning"), "{warnings:?}");
    assert!(warnings.len() < 100 && warnings.iter().all(|notice| notice.to_string().len() < 4096));
    let unknown = of(&events, "x-pi.something_new_in_pi");
    assert_eq!((unknown.len(), &unknown[0]["payload"]["deep"]), (1, &json!([1, 2, 3])));
    let answer = mux.messages(&session).await.pop().unwrap();
    assert_eq!(text_of(&answer), "You said:\u{2028}hello\u{2029}\u{85} — still one line.");
    let events = mux.prompt(&session, "again").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_line_without_end_is_bounded() {
    let (qd, mut mux, session) = with_garbage_pi().await;
    let events = mux.prompt(&session, "@@big mb=200").await;
    let peak = peak_resident_bytes(qd.pid()) / 1024;
    assert!(peak < 200 * 1024, "{peak} kB at the peak");
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(of(&events, "notify").iter().any(|notice| notice["level"] == "warning"));
}

#[tokio::test]
async fn an_agent_that_dies_is_told_with_its_last_words() {
    let (_qd, mut mux, session) = with_garbage_pi().await;
    let from = mux.frames().len();
    mux.send(prompt(&session, "@@die")).await;
    let events = mux.until_idle(&session, from).await;
    let error = of(&events, "agent.error")[0];
    let text = error["error"].as_str().unwrap();
    assert!(text.contains('3') && text.contains("dying as asked"), "{text}");
    assert_eq!((&error["recoverable"], &events.last().unwrap()["reason"]), (&json!(false), &json!("error")));
    assert_eq!(mux.state(&session).await["status"], "failed");
    // Commands to a dead agent: what needs none is answered, abort is refused, a prompt starts it again.
    assert!(mux.refused(json!({"cmd": "abort", "session_id": session})).await.contains("no running agent"));
    mux.messages(&session).await;
    let events = mux.prompt(&session, "hello").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn an_agent_that_cannot_come_back_fails_the_prompt_and_can_be_mended() {
    // pi by a link, so that it can go away.
    let command = pi_command().unwrap();
    let (qd, mut mux, _llm) = pi_in(|sandbox| {
        let link = sandbox.path("pi-link");
        std::os::unix::fs::symlink(&command[1], &link).unwrap();
        sandbox.set("QD_PI_COMMAND", format!("{} {}", command[0], link.display()))
    })
    .await;
    let link = qd.sandbox().path("pi-link");
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=one").await;
    std::fs::remove_file(&link).unwrap();
    let (_qd, mut mux) = restarted(qd).await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    let error = mux.refused(prompt(&session, "@@text text=two")).await;
    assert!(error.contains("pi-link"), "{error}");
    mux.wait_event("agent.error").await;
    assert_eq!(mux.state(&session).await["status"], "failed");
    std::os::unix::fs::symlink(&command[1], &link).unwrap();
    let events = mux.prompt(&session, "@@text text=two").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(said_by(&mut mux, "assistant", &session).await, ["one", "two"]);
}
