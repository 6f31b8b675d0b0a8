use qd_wire::InputRequest;
use serde_json::{Value, json};

use super::super::{PiCodec, PiOutput, encode};
use super::*;
use crate::agent::{AgentEvent, AgentRequest, QuestionAnswer};

fn decode(line: &Value) -> Vec<PiOutput> {
    let mut out = Vec::new();
    PiCodec::new().line(line.to_string().as_bytes(), 1, &mut out);
    out
}

fn status(key: &str, text: &str) -> Vec<PiOutput> {
    decode(
        &json!({"type": "extension_ui_request", "id": "u", "method": "setStatus", "statusKey": key, "statusText": text}),
    )
}

#[test]
fn the_bridge_tells_the_tools_and_nobody_sees_it() {
    let tools = json!([{"name": "bash", "description": "Run"}, {"name": "odd"}]).to_string();
    let expected = vec![
        PiTool { name: "bash".into(), description: "Run".into() },
        PiTool { name: "odd".into(), description: String::new() },
    ];
    assert_eq!(status("qd_tools", &tools), [PiOutput::Private(BridgeMessage::Tools(expected))]);
}

#[test]
fn what_the_bridge_says_and_nobody_can_read_is_not_shown() {
    for (key, text) in [
        ("qd_tools", "nonsense"),
        ("qd_navigated", "{}"),
        ("qd_model", "gpt"),
        ("qd_phase", "dancing"),
        ("octo_phase", "dancing"),
        ("qd_of_tomorrow", "x"),
    ] {
        let expected = PiOutput::Private(BridgeMessage::Unreadable { key: key.into() });
        assert_eq!(status(key, text), [expected], "{key}");
    }
    assert!(matches!(status("qd", "x")[..], [PiOutput::Event(AgentEvent::Status { .. })]));
}

#[test]
fn a_move_in_the_tree_is_told() {
    assert_eq!(status("qd_moved", "abcd"), [PiOutput::Private(BridgeMessage::Moved)]);
}

#[test]
fn only_a_marked_dialog_is_one_the_bridge_waits_for() {
    let ask = |title: &str| {
        decode(&json!({"type": "extension_ui_request", "id": "u1", "method": "confirm", "title": title,
        "message": "m"}))
    };
    let is_plain = |event: &PiOutput| match event {
        PiOutput::Event(AgentEvent::InputNeeded(request)) => request.title() == "Sure?",
        _ => false,
    };
    let marked = ask(&format!("{ASKED}Sure?"));
    assert_eq!(marked[0], PiOutput::Private(BridgeMessage::Asks { request_id: "u1".into() }));
    assert!(marked.len() == 2 && is_plain(&marked[1]), "{marked:?}");
    let unmarked = ask("Sure?");
    assert!(unmarked.len() == 1 && is_plain(&unmarked[0]), "{unmarked:?}");
}

#[test]
fn an_interview_that_cannot_be_read_is_shown_to_nobody() {
    let asked =
        decode(&json!({"type": "extension_ui_request", "id": "u1", "method": "editor", "title": "Form",
        "prefill": format!("{INTERVIEW}{}", json!({"questions": [{"id": "a", "options": [1]}]}))}));
    assert_eq!(asked[1], PiOutput::Private(BridgeMessage::UnreadableInterview { request_id: "u1".into() }));
    let PiOutput::Event(AgentEvent::Notify { message, .. }) = &asked[2] else { panic!("{asked:?}") };
    assert!(message.starts_with("An extension's interview 'Form' cannot be read"), "{message}");
    assert_eq!(asked.len(), 3);
}

#[test]
fn the_bridges_own_commands_are_known_by_their_first_word() {
    for message in ["/qd-navigate {}", "  /qd-navigate", "/qd-navigate\n{}"] {
        assert_eq!(private_command(message), Some("qd-navigate"), "{message}");
    }
    for message in ["qd-navigate", "/qd-navigates", "/x /qd-navigate", "say /qd-navigate", "", "/"] {
        assert_eq!(private_command(message), None, "{message}");
    }
}

#[test]
fn a_navigation_is_ordered_and_its_result_read() {
    let params = NavigateTreeParams { target_id: "abcd".into(), summarize: Some(true), ..Default::default() };
    let prompt = navigate_prompt("n1", &params);
    let order: Value = serde_json::from_str(prompt.strip_prefix("/qd-navigate ").unwrap()).unwrap();
    assert_eq!(
        (&order["id"], &order["targetId"], &order["options"]["summarize"]),
        (&json!("n1"), &json!("abcd"), &json!(true))
    );
    let done = json!({"id": "n1", "result": {"cancelled": false, "editorText": "hi"}}).to_string();
    let result = Ok(PiNavigated { editor_text: Some("hi".into()), ..Default::default() });
    assert_eq!(
        status("qd_navigated", &done),
        [PiOutput::Private(BridgeMessage::Navigated { id: "n1".into(), result })]
    );
    let failed = json!({"id": "n1", "error": "Entry abcd not found"}).to_string();
    let result = Err(AgentRefusal::Failed("Entry abcd not found".to_owned()));
    assert_eq!(
        status("qd_navigated", &failed),
        [PiOutput::Private(BridgeMessage::Navigated { id: "n1".into(), result })]
    );
}

#[test]
fn an_interview_travels_as_an_editor_and_its_answer_as_text() {
    let form = json!({"questions": [{"id": "name", "question": "Who?"}], "timeout": 500});
    let asked =
        decode(&json!({"type": "extension_ui_request", "id": "u1", "method": "editor", "title": "Form",
        "prefill": format!("{INTERVIEW}{form}")}));
    let [
        PiOutput::Private(BridgeMessage::Asks { .. }),
        PiOutput::Event(AgentEvent::InputNeeded(InputRequest::Interview {
            questions, timeout, title, ..
        })),
    ] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!((questions[0].kind.as_str(), *timeout, title.as_str()), ("text", Some(500), "Form"));
    let responses = json!({"name": "Bob"}).as_object().unwrap().clone();
    let line = encode(
        "",
        &AgentRequest::Answer { request_id: "u1".into(), answer: QuestionAnswer::Responses(responses) },
    );
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["value"], r#"{"name":"Bob"}"#);
}

#[test]
fn a_timeout_is_told_to_every_kind_of_dialog() {
    let line =
        encode("", &AgentRequest::Answer { request_id: "u1".into(), answer: QuestionAnswer::TimedOut });
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&line["value"], &line["confirmed"]), (&json!(TIMED_OUT), &json!(TIMED_OUT)));
    assert!(line.get("cancelled").is_none());
}
