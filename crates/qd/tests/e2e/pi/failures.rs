//! Real pi, and look-alikes: everything that can die, be missing or talk rubbish.

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, of, text_of, transcript};
use qd_testkit::pi::{fake_pi, pi_command, test_extension};
use qd_testkit::process::{eventually, kill9, peak_resident_bytes, with_marker};
use qd_testkit::qd::{Qd, Sandbox};
use serde_json::{Value, json};

use crate::{pi, pi_session, pi_with_session, prompt, sandbox};

/// A server whose pi is a look-alike.
async fn with_fake_pi(name: &str) -> (Qd, Mux) {
    let mut sandbox = sandbox();
    let node = pi_command().unwrap().swap_remove(0);
    let bin = std::path::Path::new(&node).parent().unwrap().to_owned();
    sandbox.set("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap()));
    sandbox.set("QD_PI_COMMAND", fake_pi(name));
    let qd = sandbox.up().await;
    let mux = qd.connect().await;
    (qd, mux)
}

fn create(qd: &Qd, more: Value) -> Value {
    let mut config = json!({"harness": "pi", "cwd": qd.sandbox().work()});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"cmd": "session.create", "config": config})
}

async fn assert_no_session(mux: &mut Mux) {
    assert_eq!(mux.ok(json!({"cmd": "list_sessions"})).await["sessions"], json!([]));
}

/// A tool that runs for ever, with a name of its own; waits until it runs.
async fn endless_tool(mux: &mut Mux, session: &str, number: u32) -> String {
    let seconds = format!("{number}{}", std::process::id());
    mux.ok(prompt(session, &format!("@@bash command=\"sleep {seconds}\""))).await;
    mux.wait_event("tool.start").await;
    let marker = format!("sleep\0{seconds}");
    eventually("the tool runs", || !with_marker(&marker).is_empty()).await;
    marker
}

#[tokio::test]
async fn qd_killed_in_the_middle_of_a_stream_loses_nothing_but_the_unsaid() {
    let (qd, mut mux, llm, session) = pi_with_session().await;
    mux.prompt(&session, "@@text text=\"the first answer\"").await;
    let before = mux.messages(&session).await;
    mux.ok(prompt(&session, "@@hold name=never")).await;
    mux.wait_event("stream.text_delta").await;
    let cursor = mux.frames().iter().filter_map(|frame| frame["seq"].as_u64()).max().unwrap();
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
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
    assert!(
        context.iter().any(|(_, text)| text == "the first answer"),
        "the old context is there: {context:?}"
    );
    let after = mux.messages(&session).await;
    assert_eq!(after[..messages.len()], messages, "history stays as it was");
    assert_eq!(text_of(after.last().unwrap()), "the last answer");
    let indices: Vec<u64> = after.iter().map(|message| message["idx"].as_u64().unwrap()).collect();
    assert_eq!(indices, (0..after.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn qd_killed_in_the_middle_of_a_tool_leaves_no_process() {
    let (qd, mut mux, _llm, session) = pi_with_session().await;
    let marker = endless_tool(&mut mux, &session, 41).await;
    let pid = mux.state(&session).await["process"]["pid"].as_i64().unwrap();
    let sandbox = qd.kill9().await;
    eventually("the tool is gone", || with_marker(&marker).is_empty()).await;
    eventually("pi is gone", || !is_running(pid)).await;
    let place = sandbox.data_dir().display().to_string();
    eventually("nothing of this server is left", || with_marker(&place).is_empty()).await;
    let qd = sandbox.up().await;
    let mut mux = qd.connect().await;
    let events = mux.attach_and_prompt(&session, "@@text text=on").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "on");
}

fn is_running(pid: i64) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

#[tokio::test]
async fn pi_killed_in_the_middle_of_a_tool_leaves_no_process_and_the_session_goes_on() {
    let (_qd, mut mux, llm, session) = pi_with_session().await;
    let from = mux.frames().len();
    let marker = endless_tool(&mut mux, &session, 42).await;
    let pid = mux.state(&session).await["process"]["pid"].as_i64().unwrap();
    kill9(i32::try_from(pid).unwrap());
    let events = mux.until_idle(&session, from).await;
    let error = of(&events, "agent.error")[0];
    assert!(
        error["error"].as_str().unwrap().contains("signal 9") && error["recoverable"] == false,
        "{error}"
    );
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
    let qd = sandbox().up().await;
    let mut mux = qd.connect().await;
    let error = mux.refused(create(&qd, json!({}))).await;
    assert!(error.contains("pi is not installed") && error.contains("npm install"), "{error}");
    assert_no_session(&mut mux).await;
    assert_eq!(
        mux.ok(json!({"cmd": "get_runners"})).await["runners"][0]["harnesses"],
        json!(["demo", "pty", "terminal"])
    );
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
    let (qd, mut mux) = with_fake_pi("garbage-pi").await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
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
    let (qd, mut mux) = with_fake_pi("garbage-pi").await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    let events = mux.prompt(&session, "@@big mb=200").await;
    let peak = peak_resident_bytes(qd.pid()) / 1024;
    assert!(peak < 200 * 1024, "{peak} kB at the peak");
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(of(&events, "notify").iter().any(|notice| notice["level"] == "warning"));
}

#[tokio::test]
async fn an_agent_that_dies_is_told_with_its_last_words() {
    let (qd, mut mux) = with_fake_pi("garbage-pi").await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
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
    let llm = LlmServer::start().await.unwrap();
    let mut sandbox = Sandbox::with_pi(env!("CARGO_BIN_EXE_qd"), &llm);
    // pi by a link, so that it can go away.
    let link = sandbox.path("pi-link");
    let command = pi_command().unwrap();
    std::os::unix::fs::symlink(&command[1], &link).unwrap();
    sandbox.set("QD_PI_COMMAND", format!("{} {}", command[0], link.display()));
    let qd = sandbox.up().await;
    let mut mux = qd.connect().await;
    let session = pi_session(&qd, &mut mux, json!({})).await;
    mux.prompt(&session, "@@text text=one").await;
    std::fs::remove_file(&link).unwrap();
    let qd = qd.restart().await;
    let mut mux = qd.connect().await;
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    let error = mux.refused(prompt(&session, "@@text text=two")).await;
    assert!(error.contains("pi-link"), "{error}");
    mux.wait_event("agent.error").await;
    assert_eq!(mux.state(&session).await["status"], "failed");
    std::os::unix::fs::symlink(&command[1], &link).unwrap();
    let events = mux.prompt(&session, "@@text text=two").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    let answers: Vec<String> = transcript(&mux.messages(&session).await)
        .into_iter()
        .filter(|(role, _)| role == "assistant")
        .map(|(_, text)| text)
        .collect();
    assert_eq!(answers, ["one", "two"]);
}
