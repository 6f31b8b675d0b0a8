use qd_wire::InputRequest;
use serde_json::{Value, json};

use super::super::{PiCodec, PiOutput, encode};
use super::*;
use crate::agent::{AgentEvent, AgentRequest, Answer};

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
    assert_eq!(status("qd_tools", &tools), [PiOutput::Bridge(BridgeWord::Tools(expected))]);
    assert!(matches!(status("qd_tools", "nonsense")[..], [PiOutput::Event(AgentEvent::Status { .. })]));
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
        [PiOutput::Bridge(BridgeWord::Navigated { id: "n1".into(), result })]
    );
    let failed = json!({"id": "n1", "error": "Entry abcd not found"}).to_string();
    let result = Err("Entry abcd not found".to_owned());
    assert_eq!(
        status("qd_navigated", &failed),
        [PiOutput::Bridge(BridgeWord::Navigated { id: "n1".into(), result })]
    );
}

#[test]
fn an_interview_travels_as_an_editor_and_its_answer_as_text() {
    let form = json!({"questions": [{"id": "name", "question": "Who?"}], "timeout": 500});
    let asked =
        decode(&json!({"type": "extension_ui_request", "id": "u1", "method": "editor", "title": "Form",
        "prefill": format!("{INTERVIEW}{form}")}));
    let [
        PiOutput::Event(AgentEvent::InputNeeded(InputRequest::Interview {
            questions, timeout, title, ..
        })),
    ] = &asked[..]
    else {
        panic!("{asked:?}")
    };
    assert_eq!((questions[0].kind.as_str(), *timeout, title.as_str()), ("text", Some(500), "Form"));
    let responses = json!({"name": "Bob"}).as_object().unwrap().clone();
    let line =
        encode("", &AgentRequest::Answer { request_id: "u1".into(), answer: Answer::Responses(responses) });
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(line["value"], r#"{"name":"Bob"}"#);
}

#[test]
fn a_timeout_is_told_to_every_kind_of_dialog() {
    let line = encode("", &AgentRequest::Answer { request_id: "u1".into(), answer: Answer::TimedOut });
    let line: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!((&line["value"], &line["confirmed"]), (&json!(TIMED_OUT), &json!(TIMED_OUT)));
    assert!(line.get("cancelled").is_none());
}
