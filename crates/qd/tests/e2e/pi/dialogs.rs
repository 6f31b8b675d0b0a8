//! Real pi: extensions that ask, tell and gate.

use qd_testkit::mux::{Mux, of, text_of};
use qd_testkit::pi::test_extension;
use qd_testkit::qd::Qd;
use serde_json::{Value, json};

use crate::{pi, pi_session, prompt};

async fn with_extension(qd: &Qd, mux: &mut Mux, name: &str) -> String {
    pi_session(qd, mux, json!({"extensions": [test_extension(name)]})).await
}

async fn answer(mux: &mut Mux, session: &str, request_id: &Value, mut with: Value) {
    with["cmd"] = json!("input_response");
    with["session_id"] = json!(session);
    with["request_id"] = request_id.clone();
    mux.ok(with).await;
}

#[tokio::test]
async fn each_dialog_is_asked_and_its_answer_reaches_the_extension() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "dialogs.ts").await;
    let cases = [
        (
            "/dlg-select",
            json!({"type": "select", "title": "Pick one", "options": ["Allow", "Block"]}),
            json!({"value": "Block"}),
            "dlg-select: \"Block\"",
            "answered",
        ),
        (
            "/dlg-confirm",
            json!({"type": "confirm", "title": "Sure?", "message": "All will be lost"}),
            json!({"confirmed": true}),
            "dlg-confirm: true",
            "answered",
        ),
        (
            "/dlg-input",
            json!({"type": "input", "title": "Name?", "placeholder": "type here"}),
            json!({"value": "Bob"}),
            "dlg-input: \"Bob\"",
            "answered",
        ),
        (
            "/dlg-editor",
            json!({"type": "editor", "title": "Edit text", "prefill": "line 1\nline 2"}),
            json!({"value": "a\nb"}),
            "dlg-editor: \"a\\nb\"",
            "answered",
        ),
        (
            "/dlg-select",
            json!({"type": "select", "title": "Pick one", "options": ["Allow", "Block"]}),
            json!({"cancelled": true}),
            "dlg-select: null",
            "cancelled",
        ),
        (
            "/dlg-confirm",
            json!({"type": "confirm", "title": "Sure?", "message": "All will be lost"}),
            json!({"confirmed": false}),
            "dlg-confirm: false",
            "answered",
        ),
    ];
    for (command, mut expected, with, told, outcome) in cases {
        mux.send(prompt(&session, command)).await;
        let asked = mux.wait_event("agent.input_needed").await;
        expected["request_id"] = asked["request"]["request_id"].clone();
        assert_eq!(asked["request"], expected);
        assert_eq!(mux.state(&session).await["pending_input"], json!([expected]));
        answer(&mut mux, &session, &expected["request_id"], with).await;
        assert_eq!(mux.wait_event("agent.input_resolved").await["outcome"], outcome);
        let notice = mux.wait_event("notify").await;
        assert_eq!((&notice["message"], &notice["level"]), (&json!(told), &json!("info")));
    }
    // None of it was a turn of the model, and the agent waits for prompts.
    assert_eq!(mux.prompt(&session, "@@text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_dialog_times_out_for_everybody() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "dialogs.ts").await;
    let from = mux.frames().len();
    mux.send(prompt(&session, "/dlg-timeout 200")).await;
    let asked = mux.wait_event("agent.input_needed").await;
    assert_eq!(asked["request"]["timeout"], 200);
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_eq!(
        (&resolved["outcome"], &resolved["request_id"]),
        (&json!("timed_out"), &asked["request"]["request_id"])
    );
    // pi has a clock of its own, so its word may come first.
    mux.wait_since(from, "the extension's word", |frame| frame["message"] == "dlg-timeout: null").await;
    let late = json!({"cmd": "input_response", "session_id": session, "request_id": resolved["request_id"], "value": "Yes"});
    assert!(mux.refused(late).await.contains("already answered"));
}

#[tokio::test]
async fn notices_and_status_texts_are_seen() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "dialogs.ts").await;
    mux.send(prompt(&session, "/notify warning take care")).await;
    let notice = mux.wait_event("notify").await;
    assert_eq!((&notice["level"], &notice["message"]), (&json!("warning"), &json!("take care")));
    mux.send(prompt(&session, "/status busy")).await;
    let is_ours = |frame: &Value| frame["event"] == "status" && frame["key"] == "test";
    assert_eq!(mux.wait_for("a status", is_ours).await["text"], "busy");
    assert_eq!(mux.state(&session).await["status_texts"]["test"], "busy");
    mux.send(prompt(&session, "/status")).await;
    assert_eq!(mux.wait_for("its end", is_ours).await["text"], Value::Null);
    assert!(mux.state(&session).await["status_texts"].get("test").is_none());
    let commands = mux.ok(json!({"cmd": "get_commands", "session_id": session})).await;
    assert!(commands["commands"].as_array().unwrap().iter().any(|command| command["name"] == "dlg-select"));
}

#[tokio::test]
async fn a_gate_lets_through_or_blocks() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "gate.ts").await;
    for (confirmed, is_error, output) in [(true, false, "ran"), (false, true, "Refused by the gate")] {
        let from = mux.frames().len();
        mux.ok(prompt(&session, "@@bash command=\"echo ran\"")).await;
        let asked = mux.wait_event("agent.input_needed").await;
        assert_eq!(asked["request"]["title"], "Allow bash?");
        answer(&mut mux, &session, &asked["request"]["request_id"], json!({"confirmed": confirmed})).await;
        let events = mux.until_idle(&session, from).await;
        let end = of(&events, "tool.end")[0];
        assert_eq!(end["is_error"], is_error, "{end}");
        assert!(end["output"].to_string().contains(output), "{end}");
    }
}

#[tokio::test]
async fn a_turn_that_waits_at_a_gate_can_be_aborted() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "gate.ts").await;
    let from = mux.begin_prompt(&session, "@@parallel n=3 command=\"echo {i}\"").await;
    let asked = mux.wait_event("agent.input_needed").await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_eq!(
        (&resolved["request_id"], &resolved["outcome"]),
        (&asked["request"]["request_id"], &json!("withdrawn"))
    );
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "aborted");
    let (asked, resolved) =
        (of(&events, "agent.input_needed").len(), of(&events, "agent.input_resolved").len());
    assert_eq!(asked, resolved);
    assert_eq!(mux.state(&session).await["pending_input"], json!([]));
    assert_eq!(mux.prompt(&session, "@@text text=on").await.last().unwrap()["reason"], "stop");
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "on");
}

#[tokio::test]
async fn an_extension_that_throws_is_told_and_the_answer_comes_all_the_same() {
    let (qd, mut mux, _llm) = pi().await;
    let session = with_extension(&qd, &mut mux, "thrower.ts").await;
    let events = mux.prompt(&session, "@@text text=fine").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(events.iter().any(|event| event.to_string().contains("thrown in ")));
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "fine");
}
