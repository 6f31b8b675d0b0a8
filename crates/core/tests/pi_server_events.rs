//! Events of the pi-server face: pi's recorded lines as they are passed on, and those made for another agent, in the
//! order and the shape of pi's.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "this test needs a part of it")]
mod pi_support;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use qd_core::agent::{AgentEvent, WhenBusy};
use qd_core::harness::demo::DemoAgent;
use qd_core::harness::pi::pass_through;
use qd_core::view::pi_server::event::EventProducer;
use serde_json::{Value, json};

const NOW: i64 = 1_800_000_000_000;

/// Recorded scenarios whose passed events are kept as snapshots.
const SHOWN: &[&str] = &[
    "0.87.1/simple",
    "0.87.1/tool_bash",
    "0.87.1/thinking",
    "0.87.1/retry_529",
    "0.87.1/compact_threshold",
    "0.87.1/compact_manual",
    "0.87.1/compact_overflow",
    "0.87.1/ext_dialogs",
    "0.87.1/ext_octo",
    "0.87.1/bash_cmd",
    "0.87.1/steer",
    "1.5.0/simple",
];

fn passed(fixture: &str) -> Vec<Value> {
    let fixtures = pi_support::fixtures();
    let fixture = fixtures.iter().find(|known| known.name == fixture).expect(fixture);
    let lines = fixture.lines.iter().map(|line| std::str::from_utf8(line).expect("text"));
    let events = lines.filter_map(pass_through).map(|event| serde_json::from_str(&event).expect("JSON"));
    events.collect()
}

/// `message_update text_delta`, `message_start user`.
fn name(event: &Value) -> String {
    let mut name = event["type"].as_str().expect("a type").to_owned();
    for detail in [&event["assistantMessageEvent"]["type"], &event["message"]["role"], &event["method"]] {
        if let Some(detail) = detail.as_str() {
            write!(name, " {detail}").expect("a string");
        }
    }
    name
}

/// Names with their fields, equal neighbours once.
fn shown(events: &[Value]) -> String {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for event in events {
        let fields: Vec<&str> = event.as_object().expect("an object").keys().map(String::as_str).collect();
        let line = format!("{} ({})", name(event), fields.join(" "));
        match lines.last_mut() {
            Some((last, count)) if *last == line => *count += 1,
            _ => lines.push((line, 1)),
        }
    }
    lines.into_iter().map(|(line, count)| format!("{count}x {line}\n")).collect()
}

#[test]
fn recorded_lines_as_they_are_passed_on() {
    for fixture in SHOWN {
        insta::assert_snapshot!(format!("passed__{}", fixture.replace('/', "__")), shown(&passed(fixture)));
    }
}

#[test]
fn no_line_of_pi_is_spoilt() {
    let mut deltas = 0;
    for fixture in pi_support::fixtures() {
        for line in fixture.lines {
            let Ok(line) = std::str::from_utf8(&line) else { continue };
            let Ok(sent) = serde_json::from_str::<Value>(line) else { continue };
            let Some(passed) = pass_through(line) else {
                let is_private = sent["type"] == "response" || sent["type"] == "extension_ui_request";
                assert!(is_private || !sent["type"].is_string(), "{line}");
                continue;
            };
            if sent["type"] == "message_update" {
                assert!(matches!(passed, Cow::Borrowed(_)), "deltas are not copied");
                deltas += 1;
            }
            let mut told: Value = serde_json::from_str(&passed).expect("JSON");
            if let Some(renamed) = told["type"].as_str().and_then(|name| name.strip_prefix("auto_comp")) {
                assert_ne!(told["reason"], "manual");
                told["type"] = json!(format!("comp{renamed}"));
            }
            if told["type"] == "extension_ui_request" {
                assert_eq!(told["requestId"], told["id"]);
                told.as_object_mut().unwrap().remove("requestId");
            }
            assert_eq!(told, sent);
        }
    }
    assert!(deltas > 1000, "{deltas}");
}

#[test]
fn what_only_the_runner_needs_is_not_passed_on() {
    let kept_back = [
        r#"{"id":"req-1","type":"response","command":"get_state","success":true}"#,
        r#"{"type":"response","command":"parse","success":false}"#,
        r#"{"type":"extension_ui_request","id":"1","method":"select","title":"t","options":[]}"#,
        r#"{"type":"extension_ui_request","id":"1","method":"editor","title":"t","prefill":"\u0001qd:interview:{}"}"#,
        r#"{"type":"extension_ui_request","id":"1","method":"setStatus","statusKey":"qd_phase","statusText":"x"}"#,
        r#"{"type":"extension_ui_request","id":"1","method":"setStatus","statusKey":"octo_phase"}"#,
        "not JSON",
        "null",
        "[1]",
        r#"{"type":7}"#,
    ];
    for line in kept_back {
        assert_eq!(pass_through(line), None, "{line}");
    }
    // An event is known whatever the order of its fields.
    let other = pass_through(r#"{"reason":"overflow","type":"compaction_start"}"#).expect("an event");
    assert_eq!(other, r#"{"type":"auto_compaction_start","reason":"overflow"}"#);
    assert_eq!(pass_through(r#"{"x":1,"type":"an-Event"}"#).as_deref(), Some(r#"{"type":"an-Event","x":1}"#));
}

/// What the demo agent does with these prompts, in pi's form.
fn produced(prompts: &[&str]) -> Vec<Value> {
    let (mut agent, mut events, mut now) = (DemoAgent::default(), Vec::new(), NOW);
    for prompt in prompts {
        let when_busy = Some(WhenBusy::FollowUp);
        agent.prompt(now, (*prompt).to_owned(), when_busy, &mut events).expect("a prompt");
    }
    while let Some(wake) = agent.next_wake() {
        now = now.max(wake);
        agent.advance(now, &mut events);
    }
    in_the_form_of_pi(&events)
}

fn in_the_form_of_pi(events: &[AgentEvent]) -> Vec<Value> {
    let (mut producer, mut out) = (EventProducer::default(), Vec::new());
    for event in events {
        producer.produce(NOW, event, &mut out);
    }
    out.iter().map(|text| serde_json::from_str(text).expect("JSON")).collect()
}

#[test]
fn the_demo_agent_in_the_form_of_pi() {
    for script in ["text", "thinking", "tools", "error"] {
        let events = produced(&[&format!("/{script}")]);
        insta::assert_snapshot!(format!("produced__{script}"), shown(&events));
    }
    insta::assert_snapshot!("produced__two_prompts", shown(&produced(&["/text", "/text"])));
    let end = produced(&["/text"]).into_iter().find(|event| event["type"] == "agent_end").unwrap();
    insta::assert_json_snapshot!("produced__agent_end", end);
}

/// The names in order, neighbours of one name once; pi's system prompt is its own matter.
fn order(events: &[Value], keep: impl Fn(&str) -> bool) -> Vec<String> {
    let mut names: Vec<String> = events.iter().map(name).filter(|name| keep(name)).collect();
    names.retain(|name| !name.ends_with(" system"));
    names.dedup();
    names
}

/// The events of the first prompt.
fn until_settled(events: Vec<Value>) -> Vec<Value> {
    let end = events.iter().position(|event| event["type"] == "agent_settled").expect("settled");
    events.into_iter().take(end + 1).collect()
}

#[test]
fn the_order_is_pis() {
    let real = until_settled(passed("0.87.1/simple"));
    assert_eq!(order(&produced(&["/text"]), |_| true), order(&real, |_| true));
    // With tools: the demo runs two at once, one after the other they end.
    let flow = |name: &str| !name.starts_with("message_update") && !name.starts_with("tool_execution");
    let real = until_settled(passed("0.87.1/tool_bash"));
    let collapsed = |names: Vec<String>| {
        let mut names = names;
        let pairs = ["message_start toolResult", "message_end toolResult"];
        let is_pair = |at: usize, names: &[String]| names[at..].starts_with(&pairs.map(str::to_owned));
        let mut at = 0;
        while at + 4 <= names.len() {
            if is_pair(at, &names) && is_pair(at + 2, &names) {
                names.drain(at..at + 2);
            } else {
                at += 1;
            }
        }
        names
    };
    assert_eq!(collapsed(order(&produced(&["/tools"]), flow)), collapsed(order(&real, flow)));
    let tools = |events: &[Value]| {
        let mut names = order(events, |name| name.starts_with("tool_execution"));
        names.truncate(3);
        names
    };
    assert_eq!(tools(&produced(&["/tools"])), tools(&real));
}

/// The fields of each kind of event, and of the message in it.
fn shapes(events: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut shapes = BTreeMap::new();
    for event in events {
        let mut fields: Vec<String> = event.as_object().unwrap().keys().cloned().collect();
        for inner in ["message", "assistantMessageEvent", "usage"] {
            let inner_fields = event[inner].as_object().into_iter().flat_map(|object| object.keys());
            fields.extend(inner_fields.map(|field| format!("{inner}.{field}")));
        }
        shapes.insert(name(event), fields);
    }
    shapes
}

#[test]
fn the_shapes_are_pis() {
    // Names of a provider's own, which other agents have no word for.
    let of_the_provider = ["responseId", "rawStopReason", "reasoning", "details"];
    let mut real = shapes(&passed("0.87.1/tool_bash"));
    real.extend(shapes(&passed("0.87.1/thinking")));
    let made = shapes(&[produced(&["/tools"]), produced(&["/thinking"])].concat());
    assert!(made.len() >= 18, "{made:?}");
    for (name, fields) in made {
        let expected = real.get(&name).unwrap_or_else(|| panic!("pi has no {name}"));
        for field in expected {
            let own = field.rsplit('.').next().unwrap_or_default();
            assert!(fields.contains(field) || of_the_provider.contains(&own), "{name} lacks {field}");
        }
    }
}

#[test]
fn every_start_has_its_end_when_the_agent_is_cut_off() {
    let mut agent = DemoAgent::default();
    let mut events = Vec::new();
    agent.prompt(NOW, "/tools".to_owned(), None, &mut events).unwrap();
    let has_tools =
        |events: &[AgentEvent]| events.iter().any(|event| matches!(event, AgentEvent::ToolStarted { .. }));
    while !has_tools(&events) {
        let wake = agent.next_wake().expect("it works");
        agent.advance(wake, &mut events);
    }
    agent.abort(&mut events);
    for cut in 1..events.len() {
        let mut part = events[..cut].to_vec();
        part.push(AgentEvent::TurnSettled { aborted: true });
        let made = in_the_form_of_pi(&part);
        let count = |name: &str| made.iter().filter(|event| event["type"] == name).count();
        for (start, end) in [
            ("agent_start", "agent_end"),
            ("turn_start", "turn_end"),
            ("message_start", "message_end"),
            ("tool_execution_start", "tool_execution_end"),
        ] {
            assert_eq!(count(start), count(end), "{start} after {cut} events");
        }
        assert_eq!(made.last().unwrap(), &json!({ "type": "agent_settled", "aborted": true }));
        assert!(made.iter().all(|event| event["type"] != "turn_end" || event["message"].is_object()));
    }
}

#[test]
fn who_comes_in_the_middle_hears_the_end() {
    let mut agent = DemoAgent::default();
    let mut events = Vec::new();
    agent.prompt(NOW, "/text".to_owned(), None, &mut events).unwrap();
    while let Some(wake) = agent.next_wake() {
        agent.advance(wake, &mut events);
    }
    for from in 1..events.len() {
        let made = in_the_form_of_pi(&events[from..]);
        let names = order(&made, |name| matches!(name, "agent_end" | "agent_settled"));
        assert_eq!(names, ["agent_end", "agent_settled"], "from event {from}");
        // The whole answer is told at its end, whatever was missed of it.
        let ended = made.iter().find(|event| event["assistantMessageEvent"]["type"] == "text_end");
        if let Some(ended) = ended {
            let text = ended["assistantMessageEvent"]["content"].as_str().unwrap();
            assert!(text.starts_with("This is a short answer."), "{text}");
        }
    }
}

#[test]
fn retries_compactions_queues_and_notices() {
    let queue = qd_wire::data::QueueState { steering: vec!["a".to_owned()], follow_up: Vec::new() };
    let ended = |success| AgentEvent::CompactionEnded {
        success,
        will_retry: false,
        error: (!success).then(|| "too small".to_owned()),
        summary_failed: false,
        summary: success.then(|| "s".to_owned()),
        tokens_before: Some(7),
    };
    let events = [
        AgentEvent::RetryStarted { attempt: 1, max_attempts: 3, delay_ms: 200, error: "529".to_owned() },
        AgentEvent::RetryEnded { success: false, attempt: 3, final_error: Some("529".to_owned()) },
        AgentEvent::CompactionStarted { reason: "threshold".to_owned() },
        ended(true),
        AgentEvent::CompactionStarted { reason: "manual".to_owned() },
        ended(false),
        AgentEvent::QueueChanged(queue),
        AgentEvent::Notify { level: qd_wire::event::NotifyLevel::Warning, message: "m".to_owned() },
        AgentEvent::Status { key: "k".to_owned(), text: None },
        AgentEvent::ThinkingLevelChanged { level: "low".to_owned() },
        AgentEvent::TitleChanged { title: "t".to_owned() },
    ];
    insta::assert_json_snapshot!("produced__other", in_the_form_of_pi(&events));
}
