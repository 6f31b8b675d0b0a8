//! Real pi: extensions that ask, tell and gate.

use qd_testkit::llm::LlmServer;
use qd_testkit::mux::{Mux, of, text_of};
use qd_testkit::pi::test_extension;
use qd_testkit::qd::Qd;
use serde_json::{Value, json};

use crate::{answer, assert_fields, on, pi, pi_session, prompt};

/// A server with pi, and a session with one of the test extensions.
async fn with_extension(name: &str) -> (Qd, Mux, LlmServer, String) {
    let (qd, mut mux, llm) = pi().await;
    let session = pi_session(&qd, &mut mux, json!({"extensions": [test_extension(name)]})).await;
    (qd, mux, llm, session)
}

#[tokio::test]
async fn each_dialog_is_asked_and_its_answer_reaches_the_extension() {
    let (_qd, mut mux, _llm, session) = with_extension("dialogs.ts").await;
    let select = json!({"type": "select", "title": "Pick one", "options": ["Allow", "Block"]});
    let confirm = json!({"type": "confirm", "title": "Sure?", "message": "All will be lost"});
    let input = json!({"type": "input", "title": "Name?", "placeholder": "type here"});
    let editor = json!({"type": "editor", "title": "Edit text", "prefill": "line 1\nline 2"});
    let cases = [
        ("dlg-select", &select, json!({"value": "Block"}), "\"Block\"", "answered"),
        ("dlg-confirm", &confirm, json!({"confirmed": true}), "true", "answered"),
        ("dlg-input", &input, json!({"value": "Bob"}), "\"Bob\"", "answered"),
        ("dlg-editor", &editor, json!({"value": "a\nb"}), "\"a\\nb\"", "answered"),
        ("dlg-select", &select, json!({"cancelled": true}), "null", "cancelled"),
        ("dlg-confirm", &confirm, json!({"confirmed": false}), "false", "answered"),
    ];
    for (command, expected, with, told, outcome) in cases {
        mux.send(prompt(&session, &format!("/{command}"))).await;
        let asked = mux.wait_event("agent.input_needed").await;
        let request_id = &asked["request"]["request_id"];
        assert_eq!(asked["request"], crate::with(expected.clone(), json!({"request_id": request_id})));
        assert_eq!(mux.state(&session).await["pending_input"], json!([asked["request"]]));
        mux.ok(answer(&session, request_id, with)).await;
        assert_eq!(mux.wait_event("agent.input_resolved").await["outcome"], outcome);
        let notice = mux.wait_event("notify").await;
        assert_fields(&notice, json!({"message": format!("{command}: {told}"), "level": "info"}));
    }
    // None of it was a turn of the model, and the agent waits for prompts.
    assert_eq!(mux.prompt(&session, "@@text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_dialog_times_out_for_everybody() {
    let (_qd, mut mux, _llm, session) = with_extension("dialogs.ts").await;
    let from = mux.frames().len();
    mux.send(prompt(&session, "/dlg-timeout 200")).await;
    let asked = mux.wait_event("agent.input_needed").await;
    assert_eq!(asked["request"]["timeout"], 200);
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_fields(&resolved, json!({"outcome": "timed_out", "request_id": asked["request"]["request_id"]}));
    // pi has a clock of its own, so its word may come first.
    mux.wait_since(from, "the extension's word", |frame| frame["message"] == "dlg-timeout: null").await;
    let late = answer(&session, &resolved["request_id"], json!({"value": "Yes"}));
    assert!(mux.refused(late).await.contains("already answered"));
}

#[tokio::test]
async fn notices_and_status_texts_are_seen() {
    let (_qd, mut mux, _llm, session) = with_extension("dialogs.ts").await;
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
    let commands = mux.ok(on(&session, "get_commands")).await;
    assert!(commands["commands"].as_array().unwrap().iter().any(|command| command["name"] == "dlg-select"));
}

#[tokio::test]
async fn a_gate_lets_through_or_blocks() {
    let (_qd, mut mux, _llm, session) = with_extension("gate.ts").await;
    for (confirmed, is_error, output) in [(true, false, "ran"), (false, true, "Refused by the gate")] {
        let from = mux.frames().len();
        mux.ok(prompt(&session, "@@bash command=\"echo ran\"")).await;
        let asked = mux.wait_event("agent.input_needed").await;
        assert_eq!(asked["request"]["title"], "Allow bash?");
        let decision = json!({"confirmed": confirmed});
        mux.ok(answer(&session, &asked["request"]["request_id"], decision)).await;
        let events = mux.until_idle(&session, from).await;
        let end = of(&events, "tool.end")[0];
        assert_eq!(end["is_error"], is_error, "{end}");
        assert!(end["output"].to_string().contains(output), "{end}");
    }
}

#[tokio::test]
async fn a_turn_that_waits_at_a_gate_can_be_aborted() {
    let (_qd, mut mux, _llm, session) = with_extension("gate.ts").await;
    let from = mux.begin_prompt(&session, "@@parallel n=3 command=\"echo {i}\"").await;
    let asked = mux.wait_event("agent.input_needed").await;
    mux.ok(json!({"cmd": "abort", "session_id": session})).await;
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_fields(&resolved, json!({"request_id": asked["request"]["request_id"], "outcome": "withdrawn"}));
    let events = mux.until_idle(&session, from).await;
    assert_eq!(events.last().unwrap()["reason"], "aborted");
    assert_eq!(of(&events, "agent.input_needed").len(), of(&events, "agent.input_resolved").len());
    assert_eq!(mux.state(&session).await["pending_input"], json!([]));
    assert_eq!(mux.prompt(&session, "@@text text=on").await.last().unwrap()["reason"], "stop");
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "on");
}

#[tokio::test]
async fn an_extension_that_throws_is_told_and_the_answer_comes_all_the_same() {
    let (_qd, mut mux, _llm, session) = with_extension("thrower.ts").await;
    let events = mux.prompt(&session, "@@text text=fine").await;
    assert_eq!(events.last().unwrap()["reason"], "stop");
    assert!(events.iter().any(|event| event.to_string().contains("thrown in ")));
    assert_eq!(text_of(mux.messages(&session).await.last().unwrap()), "fine");
}
