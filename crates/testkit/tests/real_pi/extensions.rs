//! The extensions of `tests/extensions` in a real pi.

use qd_testkit::llm::LlmServer;
use qd_testkit::pi::test_extension;
use serde_json::{Value, json};

use crate::agent::{Agent, answers, of_type};

async fn start(extension: &str) -> (LlmServer, Agent) {
    let path = test_extension(extension);
    Agent::with_model(&["-e", path.to_str().unwrap()]).await
}

fn is_dialog(event: &Value) -> bool {
    matches!(event["method"].as_str(), Some("select" | "confirm" | "input" | "editor"))
}

#[tokio::test]
async fn each_dialog_reports_its_answer() {
    let (_llm, mut pi) = start("dialogs.ts").await;
    let cases = [
        ("/dlg-select", "select", json!({"value": "Block"}), "dlg-select: \"Block\""),
        ("/dlg-confirm", "confirm", json!({"confirmed": true}), "dlg-confirm: true"),
        ("/dlg-input", "input", json!({"value": "Bob"}), "dlg-input: \"Bob\""),
        ("/dlg-editor", "editor", json!({"value": "a\nb"}), "dlg-editor: \"a\\nb\""),
        ("/dlg-select", "select", json!({"cancelled": true}), "dlg-select: null"),
        ("/dlg-confirm", "confirm", json!({"cancelled": true}), "dlg-confirm: false"),
    ];
    for (command, method, mut answer, told) in cases {
        pi.send(json!({"type": "prompt", "message": command})).await;
        let dialog = pi.read_until(is_dialog).await.pop().unwrap();
        assert_eq!(dialog["method"], method, "{command}");
        answer["type"] = json!("extension_ui_response");
        answer["id"] = dialog["id"].clone();
        pi.send(answer).await;
        let notice = pi.read_until(|event| event["method"] == "notify").await.pop().unwrap();
        assert_eq!(notice["message"], told, "{command}");
    }
}

#[tokio::test]
async fn a_dialog_can_time_out_and_notices_are_sent() {
    let (_llm, mut pi) = start("dialogs.ts").await;
    pi.send(json!({"type": "prompt", "message": "/dlg-timeout 50"})).await;
    assert_eq!(pi.read_until(is_dialog).await.pop().unwrap()["timeout"], 50);
    let cases = [
        ("", "notify", json!({"message": "dlg-timeout: null", "notifyType": "info"})),
        ("/notify warning take care", "notify", json!({"message": "take care", "notifyType": "warning"})),
        ("/notify", "notify", json!({"message": "hello"})),
        ("/status busy", "setStatus", json!({"statusKey": "test", "statusText": "busy"})),
        ("/status", "setStatus", json!({"statusKey": "test"})),
    ];
    for (command, method, mut expected) in cases {
        if !command.is_empty() {
            pi.send(json!({"type": "prompt", "message": command})).await;
        }
        let request = pi.read_until(|event| event["method"] == method).await.pop().unwrap();
        expected["type"] = json!("extension_ui_request");
        expected["method"] = json!(method);
        expected["id"] = request["id"].clone();
        assert_eq!(request, expected, "{command}");
    }
}

#[tokio::test]
async fn the_gate_lets_through_or_blocks() {
    let (_llm, mut pi) = start("gate.ts").await;
    for (confirmed, is_error, output) in [(true, false, "ran"), (false, true, "Refused by the gate")] {
        pi.send(json!({"type": "prompt", "message": "@@bash command=\"echo ran\""})).await;
        let dialog = pi.read_until(is_dialog).await.pop().unwrap();
        assert_eq!(dialog["title"], "Allow bash?");
        pi.send(json!({"type": "extension_ui_response", "id": dialog["id"], "confirmed": confirmed})).await;
        let events = pi.read_until(|event| event["type"] == "agent_settled").await;
        let end = of_type(&events, "tool_execution_end")[0];
        assert_eq!(end["isError"], is_error, "{end}");
        assert!(end["result"]["content"][0]["text"].as_str().unwrap().contains(output), "{end}");
    }
}

#[tokio::test]
async fn a_broken_extension_stops_pi_and_a_throwing_one_does_not() {
    let (_llm, mut pi) = start("broken.ts").await;
    assert_eq!(pi.exit_code().await, Some(1));
    let stderr = pi.stderr().await;
    assert!(stderr.contains("Failed to load extension"), "{stderr}");

    let (_llm, mut pi) = start("thrower.ts").await;
    let events = pi.prompt("@@text text=fine").await;
    assert_eq!(answers(&events)[0].1, "fine");
    let errors = of_type(&events, "extension_error");
    assert!(errors.iter().any(|error| error["error"] == "thrown in message_update"), "{errors:?}");
}
