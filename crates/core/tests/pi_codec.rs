//! The pi codec: recorded traffic in, events out, and the shapes no recording has.
#![allow(clippy::expect_used, reason = "a helper of a test fails the test")]

#[allow(dead_code, reason = "each test binary uses a part of it")]
mod pi_support;

use pi_support::{NOW_MS, decode, fixtures, render};
use qd_core::agent::{AgentEvent, AgentRequest, Image, QuestionAnswer, WhenBusy};
use qd_core::harness::pi::{PiCodec, PiOutput, UNKNOWN_FIELDS_BYTES_MAX, encode};
use qd_wire::event::{AgentPhase, NotifyLevel};
use qd_wire::message::{KnownPart, Part, Role, StopReason};
use serde_json::{Value, json};

#[test]
fn every_recording_decodes_as_before() {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for fixture in fixtures() {
            let name = format!("pi_codec__{}", fixture.name.replace('/', "__"));
            insta::assert_snapshot!(name, render(&decode(&fixture.lines)));
        }
    });
}

#[test]
fn nothing_real_pi_printed_is_malformed_or_unknown() {
    for fixture in fixtures() {
        for output in decode(&fixture.lines) {
            match output {
                PiOutput::Malformed { error, preview } => panic!("{}: {error}: {preview}", fixture.name),
                PiOutput::Event(AgentEvent::Unknown { event, .. }) => assert!(
                    ["x-pi.set_widget", "x-pi.set_title", "x-pi.set_editor_text", "x-pi.entry_appended"]
                        .contains(&event.as_str()),
                    "{}: {event}",
                    fixture.name
                ),
                _ => {}
            }
        }
    }
}

#[test]
fn an_aborted_turn_settles_as_aborted_in_every_version() {
    let aborted = |name: &str| {
        let fixture = fixtures().into_iter().find(|fixture| fixture.name == name).expect("a fixture");
        decode(&fixture.lines).into_iter().find_map(|output| match output {
            PiOutput::Event(AgentEvent::TurnSettled { aborted }) => Some(aborted),
            _ => None,
        })
    };
    for version in ["0.87.1", "1.5.0"] {
        for name in ["abort_stream", "abort_tool", "abort_hang_headers"] {
            assert_eq!(aborted(&format!("{version}/{name}")), Some(true), "{version}/{name}");
        }
        assert_eq!(aborted(&format!("{version}/simple")), Some(false));
    }
}

/// Decodes records that need nothing before them.
fn events(records: &[Value]) -> Vec<AgentEvent> {
    let lines: Vec<Vec<u8>> = records.iter().map(|record| record.to_string().into_bytes()).collect();
    let into_event = |output| match output {
        PiOutput::Event(event) => event,
        other => panic!("not an event: {other:?}"),
    };
    decode(&lines).into_iter().map(into_event).collect()
}

#[test]
fn both_spellings_of_compaction() {
    let named = |start: &str, end: &str| {
        events(&[
            json!({ "type": start, "reason": "threshold" }),
            json!({ "type": end, "aborted": false, "willRetry": true,
                    "result": { "summary": "short", "tokensBefore": 1000 } }),
        ])
    };
    let expected = [
        AgentEvent::CompactionStarted { reason: "threshold".to_owned() },
        AgentEvent::CompactionEnded {
            success: true,
            will_retry: true,
            error: None,
            summary_failed: false,
            summary: Some("short".to_owned()),
            tokens_before: Some(1000),
        },
    ];
    assert_eq!(named("compaction_start", "compaction_end"), expected);
    assert_eq!(named("auto_compaction_start", "auto_compaction_end"), expected);
}

#[test]
fn a_compaction_tells_whether_its_summary_failed() {
    let cases = [
        ("Compaction failed: Summarization failed: overloaded", true),
        ("Auto-compaction failed: Turn prefix summarization failed: 500 oh no", true),
        ("Compaction failed: Nothing to compact (session too small)", false),
        ("Already compacted", false),
    ];
    for (error, expected) in cases {
        let ended = events(&[json!({ "type": "compaction_end", "aborted": false, "errorMessage": error })]);
        let [AgentEvent::CompactionEnded { success: false, summary_failed, .. }] = ended.as_slice() else {
            panic!("{ended:?}");
        };
        assert_eq!(*summary_failed, expected, "{error}");
    }
}

#[test]
fn deltas_of_every_age() {
    let call = json!({ "type": "toolCall", "id": "call_1", "name": "bash", "arguments": {} });
    let message = json!({ "role": "assistant", "content": [{ "type": "text", "text": "a" }, call] });
    let old = |event: Value| {
        let mut event = event;
        event["partial"] = message.clone();
        json!({ "type": "message_update", "message": message, "assistantMessageEvent": event })
    };
    let new = |event: Value| json!({ "type": "message_update", "usage": {}, "assistantMessageEvent": event });
    let expected = [
        AgentEvent::TextDelta { index: 0, delta: "é\n\u{2028}".to_owned() },
        AgentEvent::ToolCallStarted { index: 1, tool_call_id: "call_1".to_owned(), name: "bash".to_owned() },
    ];
    let text = json!({ "type": "text_delta", "contentIndex": 0, "delta": "é\n\u{2028}" });
    let old_start = json!({ "type": "toolcall_start", "contentIndex": 1 });
    let new_start =
        json!({ "type": "toolcall_start", "contentIndex": 1, "id": "call_1", "toolName": "bash" });
    assert_eq!(events(&[old(text.clone()), old(old_start)]), expected);
    assert_eq!(events(&[new(text), new(new_start)]), expected);
}

/// `usage` is jumped over by searching for the next key; these lines would fool a careless search.
#[test]
fn deltas_are_found_wherever_the_key_is() {
    let key = r#","assistantMessageEvent":"#;
    let event = r#"{"type":"text_delta","contentIndex":2,"delta":"x"}"#;
    let decoy = r#"{"type":"text_delta","contentIndex":9,"delta":"decoy"}"#;
    let text = r#"{"type":"text_delta","contentIndex":2,"delta":",\"assistantMessageEvent\":{}}"}"#;
    let lines = [
        format!(r#"{{"type":"message_update","usage":{{"input":1}}{key}{event}}}"#),
        format!(r#"{{"type":"message_update","usage":{{"a":1{key}{decoy}}}{key}{event}}}"#),
        format!(r#"{{"type":"message_update","usage":{{"input":1}}{key}{event},"more":{{}}}}"#),
        format!(r#"{{"type":"message_update","usage":{{"input":1}}{key}{text}}}"#),
        format!(r#"{{"assistantMessageEvent":{event},"type":"message_update"}}"#),
    ];
    for line in lines {
        let mut out = Vec::new();
        PiCodec::new().line(line.as_bytes(), NOW_MS, &mut out);
        let found = out
            .iter()
            .map(|output| matches!(output, PiOutput::Event(AgentEvent::TextDelta { index: 2, .. })));
        assert_eq!(found.collect::<Vec<_>>(), [true], "{line}: {out:?}");
    }
}

#[test]
fn a_stream_that_says_done_is_done_once() {
    let message = json!({ "role": "assistant", "content": [], "stopReason": "stop", "timestamp": 7 });
    let done = json!({ "type": "done", "reason": "stop", "message": message });
    let reasons: Vec<_> = events(&[
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "message_update", "assistantMessageEvent": done }),
        json!({ "type": "message_end", "message": message }),
    ])
    .into_iter()
    .filter(|event| matches!(event, AgentEvent::StreamDone { .. }))
    .collect();
    assert_eq!(reasons, [AgentEvent::StreamDone { reason: StopReason::Stop }]);
}

#[test]
fn a_stream_that_breaks() {
    let failed = |reason: &str| {
        events(&[json!({ "type": "message_update", "assistantMessageEvent":
            { "type": "error", "reason": reason, "error": { "role": "assistant", "errorMessage": "529" } } })])
    };
    assert_eq!(failed("error"), [AgentEvent::StreamFailed { error: "529".to_owned(), recoverable: true }]);
    assert_eq!(failed("aborted"), []);
}

#[test]
fn an_event_nobody_knows_is_passed_on() {
    let unknown = |record: Value| match events(&[record]).as_slice() {
        [AgentEvent::Unknown { event, fields }] => (event.clone(), Value::Object(fields.clone())),
        other => panic!("{other:?}"),
    };
    let record = json!({ "type": "summarization_retry_scheduled", "attempt": 2 });
    assert_eq!(unknown(record), ("x-pi.summarization_retry_scheduled".to_owned(), json!({ "attempt": 2 })));
    let record =
        json!({ "type": "extension_ui_request", "id": "1", "method": "setWidget", "widgetKey": "w" });
    assert_eq!(unknown(record), ("x-pi.set_widget".to_owned(), json!({ "widgetKey": "w" })));
    let record = json!({ "type": "extension_ui_request", "id": "1", "method": "pickColour" });
    assert_eq!(unknown(record), ("x-pi.pick_colour".to_owned(), json!({ "id": "1" })));
    let record = json!({ "type": "message_update", "assistantMessageEvent": { "type": "audio_delta" } });
    assert_eq!(unknown(record).0, "x-pi.message_update");
    let (event, fields) = unknown(json!({ "type": "huge", "text": "x".repeat(UNKNOWN_FIELDS_BYTES_MAX) }));
    assert_eq!(event, "x-pi.huge");
    assert!(fields["omitted_bytes"].as_u64() > Some(UNKNOWN_FIELDS_BYTES_MAX as u64), "{fields}");
}

#[test]
fn the_bridge_speaks_through_status_lines() {
    let status = |key: &str, text: Option<&str>| {
        let mut record =
            json!({ "type": "extension_ui_request", "id": "1", "method": "setStatus", "statusKey": key });
        if let Some(text) = text {
            record["statusText"] = Value::from(text);
        }
        events(&[record]).remove(0)
    };
    let hint =
        |phase, detail: Option<&str>| AgentEvent::PhaseHint { phase, detail: detail.map(str::to_owned) };
    for key in ["qd_phase", "octo_phase", "oqto_phase"] {
        let running = hint(Some(AgentPhase::ToolRunning), Some("bash"));
        assert_eq!(status(key, Some("tool_running:bash")), running);
        assert_eq!(status(key, Some("generating")), hint(Some(AgentPhase::Generating), None));
        assert_eq!(status(key, None), hint(None, None));
    }
    let model = AgentEvent::ModelChanged { provider: "fake".to_owned(), model_id: "fake-1".to_owned() };
    assert_eq!(status("qd_model", Some(r#"{"provider":"fake","model_id":"fake-1"}"#)), model);
    let plain = AgentEvent::Status { key: "k".to_owned(), text: Some("busy".to_owned()) };
    assert_eq!(status("k", Some("busy")), plain);
}

#[test]
fn a_hook_that_throws_all_the_time_is_told_of_twice() {
    let thrown = json!({ "type": "extension_error", "extensionPath": "a.ts", "event": "message_update", "error": "boom" });
    let mut records = vec![json!({ "type": "agent_start" })];
    records.extend(std::iter::repeat_n(thrown.clone(), 50));
    records.push(json!({ "type": "agent_settled", "aborted": false }));
    records.push(thrown);
    let told: Vec<_> = events(&records)
        .into_iter()
        .filter_map(|event| match event {
            AgentEvent::Notify { level: NotifyLevel::Error, message } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(
        told,
        [
            "extension a.ts failed in message_update: boom",
            "extension a.ts failed in message_update 49 more times: boom",
            "extension a.ts failed in message_update: boom",
        ]
    );
}

#[test]
fn roles_and_blocks_beyond_the_specification() {
    let end = |message: Value| {
        let ended = events(&[json!({ "type": "message_end", "message": message })]);
        match ended.get(1) {
            Some(AgentEvent::MessageEnded(message)) => message.clone(),
            other => panic!("{other:?}"),
        }
    };
    let bash = end(
        json!({ "role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0, "timestamp": 5 }),
    );
    assert_eq!((bash.head.role, bash.head.created_at), (Role::User, 5));
    assert_eq!(
        bash.metadata.map(Value::Object),
        Some(json!({ "native_role": "bashExecution", "exit_code": 0 }))
    );
    let summary = end(json!({ "role": "compactionSummary", "summary": "s", "tokensBefore": 1 }));
    assert_eq!((summary.head.role, summary.head.created_at), (Role::System, NOW_MS));
    assert!(matches!(summary.parts.as_slice(), [Part::Known(KnownPart::Text { text, .. })] if text == "s"));
    let deferred = end(
        json!({ "role": "assistant", "content": [{ "type": "video", "n": 1 }], "stopReason": "deferred" }),
    );
    assert_eq!(deferred.stop_reason, Some(StopReason::Stop));
    assert_eq!(deferred.metadata.map(Value::Object), Some(json!({ "native_stop_reason": "deferred" })));
    let part = serde_json::to_value(&deferred.parts[0]).expect("a part");
    assert_eq!(part, json!({ "type": "x-pi.video", "id": "p0", "payload": { "type": "video", "n": 1 } }));
}

#[test]
fn an_end_without_a_start_gets_one_and_a_late_time_does_not_change_the_head() {
    let message = |time: i64| json!({ "role": "user", "content": "hi", "timestamp": time });
    let heads: Vec<_> = events(&[
        json!({ "type": "message_end", "message": message(1) }),
        json!({ "type": "message_start", "message": message(2) }),
        json!({ "type": "message_end", "message": message(3) }),
    ])
    .into_iter()
    .map(|event| match event {
        AgentEvent::MessageStarted(head) => ("start", head.created_at),
        AgentEvent::MessageEnded(message) => ("end", message.head.created_at),
        other => panic!("{other:?}"),
    })
    .collect();
    assert_eq!(heads, [("start", 1), ("end", 1), ("start", 2), ("end", 2)]);
}

#[test]
fn what_is_not_a_record_is_malformed_and_the_next_line_is_read() {
    let mut codec = PiCodec::new();
    let mut out = Vec::new();
    let broken: [&[u8]; 7] = [
        b"null",
        b"42",
        b"[]",
        b"{}",
        b"{\"type\":\"message_update\",\"assistantMes",
        b"{\"type\":\"tool_execution_start\",\"toolCallId\":5}",
        b"{\"type\":\"message_update\",\"assistantMessageEvent\":{\"type\":\"text_delta\",\"contentIndex\":0,\"delta\":\"\xff\"}}",
    ];
    for line in broken {
        codec.line(line, NOW_MS, &mut out);
    }
    assert_eq!(out.len(), broken.len());
    assert!(out.iter().all(|output| matches!(output, PiOutput::Malformed { .. })), "{out:?}");
    out.clear();
    codec.line(b"", NOW_MS, &mut out);
    codec.line(b" {\"aborted\":true,\"type\":\"agent_settled\"}\r", NOW_MS, &mut out);
    assert_eq!(out, [PiOutput::Event(AgentEvent::TurnSettled { aborted: true })]);
}

fn requests() -> Vec<(AgentRequest, Value)> {
    let image = Image { data: "AAAA".to_owned(), media_type: "image/png".to_owned() };
    let text = |text: &str| text.to_owned();
    let answer = |answer| AgentRequest::Answer { request_id: text("u1"), answer };
    let prompt =
        |images, when_busy| AgentRequest::Prompt { message: text("a\n\u{2028}b"), images, when_busy };
    let mut cases = vec![
        (prompt(vec![], None), json!({ "id": "q", "type": "prompt", "message": "a\n\u{2028}b" })),
        (
            prompt(vec![image], Some(WhenBusy::FollowUp)),
            json!({ "id": "q", "type": "prompt", "message": "a\n\u{2028}b", "streamingBehavior": "followUp",
                    "images": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
        ),
        (
            prompt(vec![], Some(WhenBusy::Steer)),
            json!({ "id": "q", "type": "prompt", "message": "a\n\u{2028}b", "streamingBehavior": "steer" }),
        ),
        (AgentRequest::Abort, json!({ "id": "q", "type": "abort" })),
        (
            answer(QuestionAnswer::Value(text("x"))),
            json!({ "type": "extension_ui_response", "id": "u1", "value": "x" }),
        ),
        (
            answer(QuestionAnswer::Confirmed(false)),
            json!({ "type": "extension_ui_response", "id": "u1", "confirmed": false }),
        ),
        (
            answer(QuestionAnswer::Cancelled),
            json!({ "type": "extension_ui_response", "id": "u1", "cancelled": true }),
        ),
    ];
    cases.extend(configuration());
    cases
}

fn configuration() -> Vec<(AgentRequest, Value)> {
    let text = |text: &str| text.to_owned();
    vec![
        (AgentRequest::GetEntries { since: None }, json!({ "id": "q", "type": "get_entries" })),
        (
            AgentRequest::GetEntries { since: Some(text("e1")) },
            json!({ "id": "q", "type": "get_entries", "since": "e1" }),
        ),
        (AgentRequest::GetState, json!({ "id": "q", "type": "get_state" })),
        (AgentRequest::GetCommands, json!({ "id": "q", "type": "get_commands" })),
        (AgentRequest::GetThinkingLevels, json!({ "id": "q", "type": "get_available_thinking_levels" })),
        (AgentRequest::CycleModel, json!({ "id": "q", "type": "cycle_model" })),
        (AgentRequest::CycleThinkingLevel, json!({ "id": "q", "type": "cycle_thinking_level" })),
        (AgentRequest::AbortRetry, json!({ "id": "q", "type": "abort_retry" })),
        (
            AgentRequest::SetThinkingLevel { level: text("high") },
            json!({ "id": "q", "type": "set_thinking_level", "level": "high" }),
        ),
        (
            AgentRequest::SetAutoCompaction { enabled: true },
            json!({ "id": "q", "type": "set_auto_compaction", "enabled": true }),
        ),
        (
            AgentRequest::SetAutoRetry { enabled: false },
            json!({ "id": "q", "type": "set_auto_retry", "enabled": false }),
        ),
        (
            AgentRequest::SetSessionName { name: text("n") },
            json!({ "id": "q", "type": "set_session_name", "name": "n" }),
        ),
        (AgentRequest::NewSession { parent_session: None }, json!({ "id": "q", "type": "new_session" })),
        (AgentRequest::Compact { instructions: None }, json!({ "id": "q", "type": "compact" })),
        (AgentRequest::GetStats, json!({ "id": "q", "type": "get_session_stats" })),
        (AgentRequest::GetModels, json!({ "id": "q", "type": "get_available_models" })),
        (AgentRequest::GetForkPoints, json!({ "id": "q", "type": "get_fork_messages" })),
        (
            AgentRequest::SetModel { provider: text("p"), model_id: text("m") },
            json!({ "id": "q", "type": "set_model", "provider": "p", "modelId": "m" }),
        ),
        (
            AgentRequest::Compact { instructions: Some(text("short")) },
            json!({ "id": "q", "type": "compact", "customInstructions": "short" }),
        ),
        (AgentRequest::Fork { entry_id: text("e") }, json!({ "id": "q", "type": "fork", "entryId": "e" })),
        (
            AgentRequest::SwitchSession { session_path: text("/s") },
            json!({ "id": "q", "type": "switch_session", "sessionPath": "/s" }),
        ),
    ]
}

#[test]
fn requests_become_lines() {
    for (request, expected) in requests() {
        let line = encode("q", &request);
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1, "{request:?}");
        assert_eq!(line.last(), Some(&b'\n'));
        assert_eq!(serde_json::from_slice::<Value>(&line).expect("JSON"), expected);
    }
}
