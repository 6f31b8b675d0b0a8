//! Events in, terminal text out.

use serde_json::{Value, json};

use super::*;

fn envelope(ts: i64, mut event: Value) -> EventEnvelope {
    let object = event.as_object_mut().unwrap();
    object.extend(json!({"session_id":"s","runner_id":"local","ts":ts}).as_object().unwrap().clone());
    serde_json::from_value(event).unwrap()
}

/// Renders events one second apart; what goes to stderr is marked.
fn rendered(mut renderer: Renderer, events: &[Value]) -> String {
    let mut text = String::new();
    for (index, event) in events.iter().enumerate() {
        let ts = i64::try_from(index).unwrap() * 1000;
        renderer.event(&envelope(ts, event.clone()));
        let Rendered { out, err } = renderer.take();
        text.push_str(&out);
        if !err.is_empty() {
            text.push_str(&format!("[stderr] {err}"));
        }
    }
    text.replace('\u{1b}', "␛")
}

fn text_delta(text: &str) -> Value {
    json!({"event":"stream.text_delta","message_id":"m1","content_index":1,"delta":text,"offset":0})
}

fn thinking_delta(text: &str) -> Value {
    json!({"event":"stream.thinking_delta","message_id":"m1","content_index":0,"delta":text,"offset":0})
}

fn message(role: &str, parts: Value) -> Value {
    json!({"id":"m1","idx":0,"role":role,"created_at":1,"parts":parts})
}

fn turn() -> Vec<Value> {
    let parts = json!([{"type":"thinking","id":"p0","text":"Let me see."},{"type":"text","id":"p1","text":"I look at it."}]);
    vec![
        json!({"event":"agent.working","phase":"generating"}),
        json!({"event":"stream.message_end","seq":1,"message":message("user", json!([{"type":"text","id":"p0","text":"look\nhere"}]))}),
        json!({"event":"stream.message_start","message_id":"m1","role":"assistant"}),
        thinking_delta("Let me "),
        thinking_delta("see."),
        text_delta("I look"),
        text_delta(" at it."),
        json!({"event":"stream.message_end","seq":2,"message":message("assistant", parts)}),
        json!({"event":"tool.start","tool_call_id":"t1","name":"bash","input":{"command":"sleep 1\necho"},"seq":3}),
        json!({"event":"tool.end","tool_call_id":"t1","name":"bash","output":"x","is_error":false,"seq":4}),
        json!({"event":"tool.start","tool_call_id":"t2","name":"read","input":{"path":"a.rs"},"seq":5}),
        json!({"event":"tool.start","tool_call_id":"t3","name":"todo","input":{"n":1},"seq":6}),
        json!({"event":"tool.end","tool_call_id":"t2","name":"read","output":{"content":[{"type":"text","text":"no such file"}]},"is_error":true,"duration_ms":12,"seq":7}),
        json!({"event":"tool.end","tool_call_id":"t3","name":"todo","output":null,"is_error":false,"duration_ms":61000,"seq":8}),
        json!({"event":"retry.start","attempt":1,"max_attempts":3,"delay_ms":2000,"error":"overloaded","seq":9}),
        json!({"event":"agent.error","error":"the provider said no","recoverable":true,"seq":10}),
        json!({"event":"agent.idle","reason":"aborted","seq":11}),
        json!({"event":"x-pi.strange","seq":12}),
    ]
}

#[test]
fn a_turn_reads_well() {
    insta::assert_snapshot!(rendered(Renderer::new(Style::PLAIN), &turn()));
}

#[test]
fn a_turn_in_colour() {
    insta::assert_snapshot!(rendered(Renderer::new(Style::COLOUR), &turn()));
}

#[test]
fn quiet_shows_the_answer_only() {
    insta::assert_snapshot!(rendered(Renderer::new(Style::PLAIN).quiet(true), &turn()));
}

#[test]
fn what_was_not_streamed_is_shown_at_the_end() {
    let parts =
        json!([{"type":"thinking","id":"p0","text":""},{"type":"text","id":"p1","text":"Whole answer"}]);
    let end = json!({"event":"stream.message_end","seq":1,"message":message("assistant", parts)});
    let idle = json!({"event":"agent.idle","reason":"stop","seq":2});
    let plain = || Renderer::new(Style::PLAIN);
    assert_eq!(rendered(plain(), &[end.clone(), idle.clone()]), "Whole answer\n");
    assert_eq!(rendered(plain(), &[text_delta("Whole"), end.clone(), idle.clone()]), "Whole answer\n");
    assert_eq!(rendered(plain(), &[text_delta("Whole answer"), end, idle]), "Whole answer\n");
}

#[test]
fn own_prompts_are_not_repeated() {
    let mut own = message("user", json!([{"type":"text","id":"p0","text":"hi"}]));
    own["client_id"] = "cli-7-1".into();
    let event = json!({"event":"stream.message_end","seq":1,"message":own});
    assert_eq!(rendered(Renderer::new(Style::PLAIN).own_client("cli-7"), std::slice::from_ref(&event)), "");
    assert_eq!(rendered(Renderer::new(Style::PLAIN).own_client("cli-8"), &[event]), "> hi\n");
}

#[test]
fn a_message_that_was_interrupted_says_so() {
    let mut own = message("user", json!([{"type":"text","id":"p0","text":"hi"}]));
    own["client_id"] = "cli-7-1".into();
    own["interrupted"] = true.into();
    let event = json!({"event":"stream.message_end","seq":1,"message":own});
    let to_others = rendered(Renderer::new(Style::PLAIN).own_client("cli-8"), std::slice::from_ref(&event));
    assert!(to_others.starts_with("> hi\n[interrupted: "), "{to_others}");
    let to_its_sender = rendered(Renderer::new(Style::PLAIN).own_client("cli-7"), &[event]);
    assert!(to_its_sender.starts_with("[interrupted: "), "{to_its_sender}");
}

#[test]
fn the_past_reads_like_the_present() {
    let messages = [
        message("user", json!([{"type":"text","id":"p0","text":"look"}])),
        message(
            "assistant",
            json!([{"type":"text","id":"p0","text":"I look."},
            {"type":"tool_call","id":"p1","tool_call_id":"t1","name":"bash","input":{"command":"ls"},"status":"success"},
            {"type":"tool_call","id":"p2","tool_call_id":"t2","name":"read","input":{"path":"x"},"status":"error"}]),
        ),
        json!({"id":"m2","idx":1,"role":"tool","created_at":1,"tool_call_id":"t1","tool_name":"bash",
            "parts":[{"type":"tool_result","id":"p0","tool_call_id":"t1","output":"a","is_error":false,"duration_ms":5}]}),
        json!({"id":"m3","idx":2,"role":"tool","created_at":1,"tool_call_id":"t2","tool_name":"read","is_error":true,
            "parts":[{"type":"text","id":"p0","text":"gone"}]}),
        json!({"id":"m4","idx":3,"role":"assistant","created_at":1,"stop_reason":"error","parts":[],"metadata":{"error":"quota"}}),
    ];
    let mut renderer = Renderer::new(Style::PLAIN);
    for value in messages {
        renderer.message(&serde_json::from_value(value).unwrap());
    }
    let Rendered { out, err } = renderer.take();
    insta::assert_snapshot!(format!("{out}[stderr] {err}"));
}

#[test]
fn the_answer_to_a_question_is_shown_whole() {
    let mut renderer = Renderer::new(Style::PLAIN);
    renderer.question_answer(Some("ann"), "first\nsecond \u{1b}[31m");
    renderer.question_answer(None, "yes");
    assert_eq!(renderer.take().out, "answered by ann:\n> first\n> second \u{fffd}[31m\nanswered:\n> yes\n");
}
