//! Extension dialogs through the face: asked and answered while a prompt runs.

use qd_testkit::pi::test_extension;
use qd_testkit::pi_server::PiClient;
use qd_testkit::qd::Qd;
use serde_json::{Value, json};

use super::{on, pi, pi_with, prompt, rename};
use crate::assert_fields;

async fn session_with(qd: &Qd, client: &mut PiClient, extension: &str) -> String {
    client.create(json!({"cwd": qd.sandbox().work(), "extensions": [test_extension(extension)]})).await
}

fn answer(session: &str, request: &Value, response: Value) -> Value {
    json!({"type": "extension_ui_response", "sessionId": session, "requestId": request["requestId"], "response": response})
}

async fn notified(client: &mut PiClient, words: &str) -> String {
    let is_it = |frame: &Value| {
        frame["event"]["type"] == "extension_ui_request"
            && frame["event"]["method"] == "notify"
            && frame["event"]["message"].as_str().is_some_and(|message| message.contains(words))
    };
    client.wait_for(words, is_it).await["event"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_dialog_raised_inside_a_prompt_is_answered() {
    let (qd, mut client, _llm) = pi().await;
    let session = session_with(&qd, &mut client, "gate.ts").await;
    let from = client.count();
    client.ok(prompt(&session, "@@bash command=\"echo allowed > it\"")).await;
    let request = client.wait_event("extension_ui_request").await;
    assert_fields(&request, json!({"method": "confirm", "title": "Allow bash?"}));
    let yes = answer(&session, &request, json!({"method": "confirm", "confirmed": true}));
    client.ok(yes.clone()).await;
    client.settled(from, &session).await;
    assert_eq!(std::fs::read_to_string(qd.sandbox().work().join("it")).unwrap(), "allowed\n");
    let late = client.refused(yes).await;
    assert!(late.contains("already settled"), "{late}");
    let unknown = answer(&session, &json!({"requestId": "nobody"}), json!({"method": "cancelled"}));
    assert_eq!(client.refused(unknown).await, "No pending UI request with id nobody");
}

#[tokio::test]
async fn every_method_reaches_the_extension_as_it_was_answered() {
    let (qd, mut client, _llm) = pi().await;
    let session = session_with(&qd, &mut client, "dialogs.ts").await;
    let cases = [
        ("dlg-select", "select", json!({"method": "select", "value": "Block"}), "\"Block\""),
        ("dlg-confirm", "confirm", json!({"method": "confirm", "confirmed": true}), "true"),
        ("dlg-input", "input", json!({"method": "input", "value": "Ada"}), "\"Ada\""),
        ("dlg-editor", "editor", json!({"method": "editor", "value": "a\nb"}), "\"a\\nb\""),
        ("dlg-select", "select", json!({"method": "cancelled"}), "null"),
    ];
    for (command, method, response, heard) in cases {
        let id = client.send(prompt(&session, &format!("/{command}"))).await;
        let is_request = |frame: &Value| {
            frame["event"]["type"] == "extension_ui_request" && frame["event"]["method"] == method
        };
        let request = client.wait_for(method, is_request).await;
        client.ok(answer(&session, &request["event"], response)).await;
        assert_eq!(notified(&mut client, command).await, format!("{command}: {heard}"));
        assert_eq!(client.response(0, &id).await["success"], true);
    }
}

#[tokio::test]
async fn an_interview_is_asked_and_answered() {
    let (qd, mut client, _llm) = pi().await;
    let session = session_with(&qd, &mut client, "interview.ts").await;
    client.send(prompt(&session, "/ask-interview")).await;
    let request = client.wait_event("extension_ui_request").await;
    assert_eq!(request["method"], "interview", "{request}");
    let questions = request["questions"].as_array().unwrap();
    assert_eq!(questions.iter().map(|question| &question["id"]).collect::<Vec<_>>(), ["name", "kind"]);
    let responses = json!({"name": "Ada", "kind": "library"});
    client.ok(answer(&session, &request, json!({"method": "interview", "responses": responses}))).await;
    let heard = notified(&mut client, "ask-interview:").await;
    let heard: Value = serde_json::from_str(heard.strip_prefix("ask-interview: ").unwrap()).unwrap();
    assert_eq!(heard, responses);
}

#[tokio::test]
async fn a_dialog_nobody_answers_is_an_error_in_the_extension() {
    let (qd, mut client, _llm) = pi_with(&[("QD_QUESTION_TIMEOUT_SECONDS", "1")]).await;
    let session = session_with(&qd, &mut client, "interview.ts").await;
    for method in ["select", "confirm", "input", "editor", "interview"] {
        client.skip();
        client.send(prompt(&session, &format!("/ask-{method}"))).await;
        let resolved = client.wait_event("extension_ui_resolved").await;
        assert_eq!(resolved["outcome"], "timed_out", "{method}");
        let heard = notified(&mut client, "threw").await;
        assert!(heard.starts_with(&format!("ask-{method} threw: UI request timed out")), "{heard}");
    }
    assert_eq!(client.ok(on(&session, "get_state")).await["data"]["isStreaming"], false);
}

#[tokio::test]
async fn a_client_that_comes_later_sees_the_open_dialog() {
    let (qd, mut client, _llm) = pi().await;
    let session = session_with(&qd, &mut client, "gate.ts").await;
    let from = client.count();
    client.ok(prompt(&session, "@@bash command=\"true\"")).await;
    client.wait_event("extension_ui_request").await;
    let mut second = qd.pi_client().await;
    second.ok(on(&session, "switch_session")).await;
    let request = second.wait_event("extension_ui_request").await;
    second.ok(answer(&session, &request, json!({"method": "confirm", "confirmed": false}))).await;
    let resolved = client.wait_event("extension_ui_resolved").await;
    assert_eq!(resolved["requestId"], request["requestId"]);
    client.settled(from, &session).await;
}

#[tokio::test]
async fn a_dialog_of_a_slash_command_holds_nobody_up() {
    let (qd, mut client, _llm) = pi().await;
    let session = session_with(&qd, &mut client, "dialogs.ts").await;
    let from = client.count();
    let asking = client.send(prompt(&session, "/dlg-confirm")).await;
    let request = client.wait_event("extension_ui_request").await;
    client.ok(rename(&session, "meanwhile")).await;
    client.turn(&session, "@@text text=\"still here\"").await;
    client.ok(answer(&session, &request, json!({"method": "confirm", "confirmed": true}))).await;
    assert_eq!(client.response(from, &asking).await["success"], true);
    client.send(prompt(&session, "/dlg-confirm")).await;
    client.wait_event("extension_ui_request").await;
    client.ok(on(&session, "delete_session")).await;
}
