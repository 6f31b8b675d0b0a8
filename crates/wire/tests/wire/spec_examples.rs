//! Every JSON example of the canonical specification round-trips, and so does one example of each type that the
//! specification gives in TypeScript only.

use std::collections::BTreeSet;

use crate::support::{check_round_trip, examples};
use qd_wire::link::LinkLine;
use qd_wire::message::{KnownPart, Message, Part};
use qd_wire::mux::{ClientFrame, ServerFrame, SystemEvent};
use qd_wire::{EventEnvelope, EventPayload};

#[test]
fn part_1_parts() {
    let mut types = BTreeSet::new();
    for (section, text) in examples(include_str!("examples/part1_parts.jsonl")) {
        let part: Part = check_round_trip(&section, &text);
        assert!(matches!(part, Part::Known(_)), "{section}: {text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        types.insert(value["type"].as_str().expect("a type").to_owned());
    }
    let expected: BTreeSet<String> = KnownPart::TYPES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(types, expected);
}

#[test]
fn part_1_messages() {
    for (section, text) in examples(include_str!("examples/part1_messages.jsonl")) {
        check_round_trip::<Message>(&section, &text);
    }
}

/// The names of Part 2, in its order.
const PART_2_EVENTS: &[&str] = &[
    "session.created",
    "session.closed",
    "session.heartbeat",
    "agent.idle",
    "agent.working",
    "agent.error",
    "agent.input_needed",
    "agent.input_resolved",
    "stream.message_start",
    "stream.text_delta",
    "stream.thinking_delta",
    "stream.tool_call_start",
    "stream.tool_call_delta",
    "stream.tool_call_end",
    "stream.message_end",
    "stream.done",
    "tool.start",
    "tool.progress",
    "tool.end",
    "retry.start",
    "retry.end",
    "compact.start",
    "compact.end",
    "config.model_changed",
    "config.thinking_level_changed",
    "notify",
    "status",
    "messages",
    "persisted",
];

#[test]
fn part_2_events() {
    let mut names = BTreeSet::new();
    for (section, text) in examples(include_str!("examples/part2_events.jsonl")) {
        let envelope: EventEnvelope = check_round_trip(&section, &text);
        assert!(matches!(envelope.payload, EventPayload::Known(_)), "{section}: kept as unknown: {text}");
        assert_eq!(envelope.payload.is_record(), envelope.seq.is_some(), "records have a seq: {text}");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        names.insert(value["event"].as_str().expect("a name").to_owned());
    }
    for name in PART_2_EVENTS {
        assert!(names.contains(*name), "no example of {name}");
    }
}

const PART_4_COMMAND: &str =
    r#"{"channel": "agent", "id": "req-1", "session_id": "ses_abc", "cmd": "prompt", "message": "Hello"}"#;

const PART_4_EVENTS: &[&str] = &[
    r#"{"channel": "agent", "session_id": "ses_abc", "runner_id": "local", "ts": 1738764000000, "event": "agent.working", "phase": "generating"}"#,
    r#"{"channel": "agent", "session_id": "ses_abc", "runner_id": "local", "ts": 1738764000000, "event": "stream.text_delta", "message_id": "msg-1", "delta": "Hello", "content_index": 0}"#,
];

/// What Quarterdeck decided where Part 4 is silent.
const SYSTEM_FRAMES: &[&str] = &[
    r#"{"channel":"system","type":"connected","protocol_version":"1.0.0","server_version":"0.1.0","connection_id":"c1"}"#,
    r#"{"channel":"system","type":"error","error":"not JSON"}"#,
    r#"{"channel":"system","type":"error","id":"req-1","error":"no such command"}"#,
    r#"{"channel":"system","type":"error","id":7,"error":"an id comes back as it came"}"#,
    r#"{"channel":"system","type":"session.changed","session_id":"s1","runner_id":"local","change":"created"}"#,
    r#"{"channel":"system","type":"runner.changed","runner_id":"local","status":"unhealthy"}"#,
    r#"{"channel":"system","type":"shutdown","reason":"asked"}"#,
];

#[test]
fn part_4_frames() {
    check_round_trip::<ClientFrame>("Part 4, Agent Channel Wire Format", PART_4_COMMAND);
    for text in PART_4_EVENTS {
        let frame: ServerFrame = check_round_trip("Part 4, Agent Channel Wire Format", text);
        assert!(matches!(frame, ServerFrame::Agent(_)), "{text}");
    }
    for text in SYSTEM_FRAMES {
        check_round_trip::<ServerFrame>("the system channel", text);
    }
    let connected: ServerFrame = serde_json::from_str(SYSTEM_FRAMES[0]).expect("the first frame");
    assert!(matches!(connected, ServerFrame::System(SystemEvent::Connected { .. })));
}

const LINK_LINES: &[(&str, &str)] = &[
    (
        "Part 5, Runner Registration",
        r#"{"type": "runner.hello", "runner_id": "wkst-alice-01", "hostname": "alice-workstation",
            "harnesses": ["pi", "opencode"], "max_sessions": 10,
            "version": "0.1.0", "os": "linux"}"#,
    ),
    ("Part 5, Runner Registration", r#"{"type": "runner.welcome", "runner_id": "wkst-alice-01"}"#),
    (
        "Part 5, Backend -> Runner",
        r#"{"type": "command", "session_id": "ses_abc", "user_id": "alice",
            "cmd": "session.create", "config": {"harness": "pi", "cwd": "/home/alice/project"},
            "id": "req-1"}"#,
    ),
    (
        "Part 5, Backend -> Runner",
        r#"{"type": "command", "session_id": "ses_abc", "user_id": "alice",
            "cmd": "prompt", "message": "Hello", "id": "req-2"}"#,
    ),
    (
        "Part 5, Runner -> Backend",
        r#"{"type": "event", "session_id": "ses_abc", "event": "agent.working",
            "phase": "generating", "ts": 1738764000000}"#,
    ),
    ("Part 5, Runner -> Backend", r#"{"type": "response", "id": "req-2", "cmd": "prompt", "success": true}"#),
    (
        "Part 5, Runner Heartbeat",
        r#"{"type": "runner.heartbeat", "runner_id": "wkst-alice-01",
            "uptime_s": 3600,
            "sessions": [
              {"session_id": "ses_abc", "harness": "pi",
               "process": {"alive": true, "pid": 12345, "rss_bytes": 104857600,
                           "cpu_pct": 2.3, "uptime_s": 1200}}
            ]}"#,
    ),
    (
        "Part 5, Process-Level Monitoring",
        r#"{"type": "event", "session_id": "ses_abc", "event": "agent.error", "error": "Process exited with code 1", "recoverable": false}"#,
    ),
    (
        "Part 7, What the Runner Sees",
        r#"{"type": "event", "session_id": "ses_abc",
            "event": "agent.working", "phase": "tool_running", "detail": "bash",
            "ts": 1738764000000}"#,
    ),
    (
        "Part 8, Remote Delegation Flow (its `...` filled in)",
        r#"{"type": "delegate.escalate", "session_id": "ses_A",
            "request": {"target_session_id": "ses_B", "message": "What is the branch?", "mode": "sync"}}"#,
    ),
    (
        "Part 8, Runner-to-Backend Escalation Protocol",
        r#"{"type": "delegate.escalate", "session_id": "ses_A",
            "request": {"target_session_id": "ses_B", "target_runner_id": "r2", "message": "x", "mode": "async"},
            "correlation_id": "x1"}"#,
    ),
    (
        "ours: a record",
        r#"{"type":"event","session_id":"s1","runner_id":"local","ts":1,"seq":7,"event":"agent.idle"}"#,
    ),
    (
        "ours: an outcome",
        r#"{"type":"response","id":"h12","session_id":"s1","runner_id":"local","ts":1,"cmd":"prompt","success":true,"data":{"a":1},"session_version":3}"#,
    ),
    ("ours: the ack", r#"{"type":"ack","session_id":"s1","seq":7}"#),
    (
        "ours: the cursors",
        r#"{"type":"runner.welcome","runner_id":"local","sessions":[{"session_id":"s1","last_seq":7}]}"#,
    ),
    (
        "ours: a command with all a client may add",
        r#"{"type":"command","id":"h12","user_id":"owner","connection_id":"c1","session_id":"s1","cmd":"prompt","message":"Hello","idempotency_key":"k","depends_on":["a"],"if_session_version":3}"#,
    ),
];

#[test]
fn part_5_7_and_8_lines() {
    for (section, text) in LINK_LINES {
        let line: LinkLine = check_round_trip(section, text);
        if let LinkLine::Event(event) = line {
            assert!(matches!(event.payload, EventPayload::Known(_)), "{section}");
        }
    }
}

/// The hub splices bytes, so the head of an event line has to come first and in this order.
#[test]
fn an_event_line_starts_with_its_head() {
    let text =
        r#"{"type":"event","session_id":"s1","runner_id":"local","ts":1,"seq":7,"event":"agent.idle"}"#;
    let line: LinkLine = serde_json::from_str(text).expect("a line");
    assert_eq!(serde_json::to_string(&line).expect("serialises"), text);
}
