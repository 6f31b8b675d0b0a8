//! What the pi-server face answers: the data of every command out of pi's own recorded replies and out of canonical
//! data, and the texts of errors.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, reason = "this test needs a part of it")]
mod pi_server_support;
#[allow(dead_code, reason = "this test needs a part of it")]
mod pi_support;

use pi_server_support::frame;
use qd_core::view::pi_server::answer;
use qd_core::view::pi_server::request::{PiServerRequest, read};
use qd_wire::data::{Partial, SessionState, StoredSession};
use qd_wire::{ErrorCode, InputRequest};
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn request(name: &str) -> Box<PiServerRequest> {
    read(&frame(name)).expect(name)
}

fn data(name: &str, canonical: &Value) -> Option<Value> {
    let raw = RawValue::from_string(canonical.to_string()).expect("JSON");
    let text = answer::data(&request(name), Some(&raw)).unwrap_or_else(|error| panic!("{name}: {error}"));
    text.map(|text| serde_json::from_str(&text).expect("JSON"))
}

/// The data of pi's successful replies to `command` in the recorded traffic of one version.
fn recorded(fixture: &str, command: &str) -> Vec<Value> {
    let fixtures = pi_support::fixtures();
    let fixture = fixtures.iter().find(|known| known.name == fixture).expect(fixture);
    let replies = fixture.lines.iter().filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let replies = replies.filter(|reply| {
        reply["type"] == "response" && reply["command"] == command && reply["success"] == true
    });
    replies.map(|reply| reply["data"].clone()).collect()
}

fn native(name: &str, fixture: &str, command: &str) -> Vec<Value> {
    let replies = recorded(fixture, command);
    assert!(!replies.is_empty(), "{fixture} has no reply to {command}");
    replies.iter().map(|reply| data(name, &json!({ "native": reply })).expect("data")).collect()
}

fn state() -> Value {
    json!({
        "session_id": "session-123", "runner_id": "laptop", "harness": "pi", "status": "working",
        "phase": "generating", "cwd": "/w", "title": "My Session", "thinking_level": "high",
        "model": { "provider": "fake", "model_id": "fake-1" }, "session_version": 4, "seq": 9, "message_count": 42,
        "queue": { "steering": [], "follow_up": [] }, "pending_input": [],
        "native_session_file": "/h/x.jsonl", "created_at": 1_772_272_800_000_i64,
    })
}

#[test]
fn replies_of_pi_become_data() {
    let models = native("get_available_models", "0.87.1/models", "get_available_models");
    assert_eq!(models[0]["models"][0]["id"], "fake-1");
    assert_eq!(models[0]["models"][0]["cost"]["cacheRead"], 0.1);

    let set = native("set_model", "0.87.1/models", "set_model");
    assert_eq!(set[0]["model"]["id"], "fake-think");
    assert_eq!(set[0].as_object().unwrap().len(), 1);

    let cycled = native("cycle_model", "0.87.1/models", "cycle_model");
    assert_eq!((&cycled[0]["model"]["id"], &cycled[0]["isScoped"]), (&json!("fake-ant"), &json!(false)));

    let levels = native("cycle_thinking_level", "0.87.1/models", "cycle_thinking_level");
    assert_eq!(levels, [json!({ "level": "medium" }), json!({ "level": "high" }), Value::Null]);

    let texts = native("get_last_assistant_text", "0.87.1/session_cmds", "get_last_assistant_text");
    assert_eq!(texts[0], json!({ "text": null }));
    assert_eq!(texts[1], json!({ "text": "All three steps are done. loop.txt has one line." }));

    let stats = native("get_session_stats", "0.87.1/session_cmds", "get_session_stats");
    assert_eq!(stats[1]["sessionId"], "session-123", "the session's name, not pi's");
    assert_eq!((&stats[1]["toolCalls"], &stats[1]["tokens"]["total"]), (&json!(3), &json!(6205)));

    let usage = native("get_context_usage", "0.87.1/session_cmds", "get_session_stats");
    assert_eq!(usage[1], json!({ "tokens": 1652, "contextWindow": 128_000, "percent": 1.290_625 }));
    let compacted = native("get_context_usage", "0.87.1/compact_manual", "get_session_stats");
    assert_eq!(compacted[0], json!({ "tokens": null, "contextWindow": 128_000, "percent": null }));

    let commands = native("get_commands", "0.87.1/session_cmds", "get_commands");
    let llama = json!({
        "name": "llama", "description": "Manage llama.cpp router models", "source": "extension",
        "path": "<inline:llama.cpp>",
    });
    assert_eq!(commands[0], json!({ "commands": [llama] }));

    let exported = native("export_html", "0.87.1/session_cmds", "export_html");
    assert_eq!(exported[1], json!({ "path": "/home/dev/other" }));
    let compacted = native("compact", "0.87.1/compact_manual", "compact");
    assert_eq!(
        (&compacted[0]["firstKeptEntryId"], &compacted[0]["tokensBefore"]),
        (&json!("80af6544"), &json!(2029))
    );
}

#[test]
fn bash_forks_and_messages_of_pi() {
    for result in native("bash", "0.87.1/bash_cmd", "bash") {
        assert!(result["output"].is_string() && result["cancelled"].is_boolean(), "{result}");
        assert!(result["exitCode"].is_i64() || result["cancelled"] == true, "{result}");
    }
    for forked in native("fork", "0.87.1/fork", "fork") {
        assert!(forked["text"].is_string() && forked["cancelled"].is_boolean(), "{forked}");
    }
    let beside = json!({ "native": { "text": "x", "cancelled": false }, "native_session_id": "01a1" });
    assert_eq!(
        data("fork", &beside).unwrap(),
        json!({ "text": "x", "cancelled": false, "sessionId": "01a1" })
    );
    for points in native("get_fork_messages", "0.87.1/fork", "get_fork_messages") {
        assert!(points["messages"][0]["entryId"].is_string(), "{points}");
    }
    for moved in native("new_session", "0.87.1/new_session", "new_session") {
        assert_eq!(moved, json!({ "cancelled": false }));
    }
    let messages = native("get_messages", "0.87.1/simple", "get_messages");
    assert_eq!(messages, recorded("0.87.1/simple", "get_messages"), "as pi said it");
    let entries = native("get_tree", "0.87.1/session_cmds", "get_entries");
    let nodes = entries[0]["nodes"].as_array().unwrap();
    assert_eq!(entries[0]["currentLeafId"], nodes.last().unwrap()["entryId"]);
    let user = nodes.iter().find(|node| node["role"] == "user").unwrap();
    assert_eq!((&user["text"], &user["entryType"]), (&json!("@@loop x"), &json!("message")));
}

#[test]
fn skills_are_found_among_commands() {
    let commands = json!({ "native": { "commands": [
        { "name": "skill:review", "description": "d", "source": "skill",
          "sourceInfo": { "path": "/s/SKILL.md", "source": "local", "scope": "user" } },
        { "name": "x", "source": "prompt" },
    ] } });
    let skill = json!({ "name": "review", "description": "d", "filePath": "/s/SKILL.md", "source": "local" });
    assert_eq!(data("get_skills", &commands).unwrap(), json!({ "skills": [skill] }));
    let listed = json!({ "native": { "skills": [skill] } });
    assert_eq!(data("get_skills", &listed).unwrap(), json!({ "skills": [skill] }));
    let tools = json!({ "native": { "tools": [{ "name": "read", "description": "d", "parameters": {} }] } });
    assert_eq!(
        data("get_tools", &tools).unwrap(),
        json!({ "tools": [{ "name": "read", "description": "d" }] })
    );
    let files = json!({ "native": { "files": [{ "path": "/a/b.jsonl", "modified_at": 0 }] } });
    let file = json!({ "path": "/a/b.jsonl", "name": "b.jsonl", "modifiedAt": "1970-01-01T00:00:00.000Z" });
    assert_eq!(data("list_session_files", &files).unwrap(), json!({ "files": [file] }));
}

#[test]
fn canonical_data_becomes_data() {
    let info = json!({
        "sessionId": "session-123", "sessionName": "My Session", "sessionFile": "/h/x.jsonl",
        "model": { "id": "fake-1", "provider": "fake" }, "thinkingLevel": "high", "isStreaming": true,
        "messageCount": 42, "createdAt": "2026-02-28T10:00:00.000Z", "runnerId": "laptop", "harness": "pi",
        "status": "working", "cwd": "/w",
    });
    assert_eq!(data("get_state", &state()).unwrap(), info);
    assert_eq!(data("switch_session", &state()).unwrap(), json!({ "sessionInfo": info }));
    let created = json!({ "session_id": "session-123", "resume": "ok", "seq": 1, "state": state(), "pending_input": [] });
    let expected = json!({ "sessionId": "session-123", "sessionInfo": info });
    assert_eq!(data("create_session", &created).unwrap(), expected);
    assert_eq!(data("load_session", &created).unwrap(), expected);
    assert_eq!(
        data("list_sessions", &json!({ "sessions": [state()] })).unwrap(),
        json!({ "sessions": [info] })
    );
    assert_eq!(data("delete_session", &Value::Null).unwrap(), json!({ "deleted": true }));

    let models = json!({ "models": [{ "provider": "demo", "model_id": "demo-1" }] });
    assert_eq!(
        data("get_available_models", &models).unwrap(),
        json!({ "models": [{ "id": "demo-1", "provider": "demo" }] })
    );
    let model = json!({ "provider": "demo", "model_id": "demo-1" });
    assert_eq!(
        data("set_model", &model).unwrap(),
        json!({ "model": { "id": "demo-1", "provider": "demo" } })
    );
    assert_eq!(data("cycle_model", &Value::Null).unwrap(), Value::Null);
    assert_eq!(data("cycle_model", &model).unwrap()["model"]["id"], "demo-1");
    let commands = json!({ "commands": [{ "name": "text", "source": "demo" }] });
    assert_eq!(
        data("get_commands", &commands).unwrap(),
        json!({ "commands": [{ "name": "text", "source": "extension" }] })
    );
    let points = json!({ "fork_points": [{ "entry_id": "e", "role": "user", "preview": "p" }] });
    assert_eq!(
        data("get_fork_messages", &points).unwrap(),
        json!({ "messages": [{ "entryId": "e", "text": "p" }] })
    );
    let bash = json!({ "exit_code": 3, "output": "o", "cancelled": false, "truncated": false });
    assert_eq!(data("bash", &bash).unwrap()["exitCode"], 3);
    assert_eq!(data("get_context_usage", &Value::Null).unwrap(), Value::Null);
    assert_eq!(data("get_context_usage", &json!({ "native": null })).unwrap(), Value::Null);
    assert_eq!(
        data("navigate_tree", &json!({ "cancelled": false, "editor_text": "e" })).unwrap(),
        json!({ "cancelled": false, "editorText": "e" })
    );
    assert_eq!(data("prompt", &json!({ "anything": 1 })), None);
}

#[test]
fn answers_that_cannot_be_read_are_errors() {
    let raw = RawValue::from_string("{\"x\":1}".to_owned()).unwrap();
    let error = answer::data(&request("get_state"), Some(&raw)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Internal);
    assert!(error.to_string().starts_with("The answer to 'get_state' cannot be read: "), "{error}");
}

#[test]
fn messages_of_other_agents_in_the_form_of_pi() {
    let canonical = json!({ "messages": [
        { "id": "u1", "idx": 0, "role": "user", "created_at": 5, "parts": [
            { "type": "text", "id": "p0", "text": "hi" },
            { "type": "image", "id": "p1", "source": { "source": "base64", "data": "QUJD", "mime_type": "image/png" } } ] },
        { "id": "a1", "idx": 1, "role": "assistant", "created_at": 6, "stop_reason": "tool_use", "model": "m", "provider": "p",
          "usage": { "input_tokens": 3, "output_tokens": 4, "cost_usd": 0.5 }, "metadata": { "error": "no" }, "parts": [
            { "type": "thinking", "id": "p0", "text": "hm" },
            { "type": "tool_call", "id": "p1", "tool_call_id": "c", "name": "bash", "input": { "command": "ls" }, "status": "pending" } ] },
        { "id": "t1", "idx": 2, "role": "tool", "created_at": 7, "tool_call_id": "c", "tool_name": "bash", "is_error": false, "parts": [
            { "type": "tool_result", "id": "p0", "tool_call_id": "c", "output": "a\nb", "is_error": false } ] },
    ] });
    insta::assert_json_snapshot!(data("get_messages", &canonical).unwrap());
}

#[test]
fn an_answer_so_far_in_the_form_of_pi() {
    let partial: Partial = serde_json::from_value(json!({ "message": { "message_id": "a1", "role": "assistant", "blocks": [
        { "content_index": 0, "kind": "text", "text": "so ", "offset": 3 },
        { "content_index": 1, "kind": "tool_call", "text": "{\"a\":", "offset": 5, "tool_call_id": "c", "name": "read" },
    ] } })).unwrap();
    let message = answer::partial_message(&partial);
    assert_eq!(message["stopReason"], "pending");
    assert_eq!(message["content"][0], json!({ "type": "text", "text": "so " }));
    let call =
        json!({ "type": "toolCall", "id": "c", "name": "read", "arguments": {}, "partialJson": "{\"a\":" });
    assert_eq!(message["content"][1], call);
    assert_eq!(answer::partial_message(&Partial { message: None, tools: Vec::new() }), Value::Null);
}

#[test]
fn stored_sessions_tell_true_counts() {
    let stored = StoredSession {
        session_id: "abc123".to_owned(),
        path: "/path/to/.pi/sessions/abc123.json".to_owned(),
        cwd: "/home/user/project".to_owned(),
        title: Some("My Session".to_owned()),
        created_at: 1_772_272_800_000,
        message_count: 42,
        provider: Some("p".to_owned()),
        model: Some("m".to_owned()),
        exists: true,
        ..StoredSession::default()
    };
    let expected = json!({
        "sessionId": "abc123", "sessionName": "My Session", "sessionFile": "/path/to/.pi/sessions/abc123.json",
        "sessionPath": "/path/to/.pi/sessions/abc123.json", "cwd": "/home/user/project",
        "createdAt": "2026-02-28T10:00:00.000Z", "fileExists": true, "messageCount": 42, "isStreaming": false,
        "thinkingLevel": "off", "model": { "id": "m", "provider": "p" },
    });
    assert_eq!(serde_json::to_value(answer::stored_info(&stored)).unwrap(), expected);
    let listed = data("list_stored_sessions", &json!({ "sessions": [stored] })).unwrap();
    assert_eq!(listed, json!({ "sessions": [expected] }));
}

#[test]
fn the_agents_own_description_of_its_model_is_kept() {
    let mut state: SessionState = serde_json::from_value(state()).unwrap();
    state.native_model = Some(json!({ "id": "fake-1", "provider": "fake", "contextWindow": 128_000 }));
    let info = answer::session_info(&state);
    assert_eq!(info.model.unwrap()["contextWindow"], 128_000);
}

#[test]
fn health_tells_of_open_breakers() {
    let machine = json!({
        "breakers": [{ "provider": "fake", "state": "open", "failures": 5, "last_failure_at": 9, "changed_at": 9,
            "accessed_at": 9, "total_calls": 5, "total_rejected": 1, "total_successes": 0, "total_failures": 5,
            "average_latency_ms": 1.5, "half_open_calls": 0 }],
        "bash": { "state": "closed", "failures": 0, "sessions": 1, "open_sessions": 1, "total_calls": 9,
            "total_timeouts": 3, "total_rejected": 0 },
        "max_sessions": 10, "agents": 1,
    });
    let expected = json!({
        "healthy": true, "hasOpenCircuit": true, "hasOpenBashCircuit": true,
        "issues": ["One or more LLM provider circuits are open", "Bash command circuit breaker is open"],
    });
    assert_eq!(data("health_check", &machine).unwrap(), expected);
    let metrics = data("get_metrics", &machine).unwrap();
    assert_eq!(metrics["circuitBreakers"][0]["providerName"], "fake");
    assert_eq!(metrics["bashCircuitBreaker"]["totalTimeouts"], 3);
}

#[test]
fn errors_in_the_words_of_the_document() {
    let plain = request("get_state");
    let versioned = request("get_state.full");
    let response = request("extension_ui_response");
    let cases = [
        (&plain, ErrorCode::SessionNotFound, "Session x not found", "Session x not found"),
        (
            &versioned,
            ErrorCode::SessionNotFound,
            "Session x not found for if_session_version=3",
            "Session x not found for ifSessionVersion=3",
        ),
        (&versioned, ErrorCode::SessionNotFound, "gone", "Session x not found for ifSessionVersion=3"),
        (
            &versioned,
            ErrorCode::VersionMismatch,
            "Session version mismatch: expected 3, got 4",
            "Session version mismatch: expected 3, got 4",
        ),
        (
            &plain,
            ErrorCode::SessionExists,
            "Session x already exists; session.attach joins it",
            "Session x already exists",
        ),
        (
            &plain,
            ErrorCode::SessionExists,
            "Session x lives on runner a and cannot be created on b; delete it first, or take another name",
            "Session x already exists",
        ),
        (
            &plain,
            ErrorCode::LimitReached,
            "Session limit reached (100 sessions); close one or raise max_sessions",
            "Session limit reached (100 sessions)",
        ),
        (&response, ErrorCode::QuestionNotFound, "No such question", "No pending UI request with id req-456"),
        (&response, ErrorCode::QuestionAnswered, "Too late", "Request req-456 already settled"),
        (&response, ErrorCode::QuestionTimedOut, "Too late", "Request req-456 already settled"),
        (&plain, ErrorCode::AgentFailed, "Model not found: fake/nope", "Model not found: fake/nope"),
        (
            &plain,
            ErrorCode::ProviderPaused,
            "Circuit breaker open for fake (recovery in 3s)",
            "Circuit breaker open for fake (recovery in 3s)",
        ),
        (&plain, ErrorCode::InvalidRequest, "session_id: Required", "sessionId: Required"),
    ];
    for (request, code, canonical, expected) in cases {
        assert_eq!(answer::error(request, Some("x"), code.with(canonical)), code.with(expected));
    }
}

#[test]
fn questions_of_every_kind() {
    let requests = json!([
        { "type": "select", "request_id": "r", "title": "t", "options": ["a", "b"], "timeout": 5 },
        { "type": "confirm", "request_id": "r", "title": "t", "message": "m" },
        { "type": "input", "request_id": "r", "title": "t", "placeholder": "p" },
        { "type": "editor", "request_id": "r", "title": "t", "prefill": "x\ny" },
        { "type": "interview", "request_id": "r", "title": "t", "questions": [{ "id": "q", "type": "text", "question": "?" }] },
        { "type": "permission", "request_id": "r", "title": "t", "description": "d" },
    ]);
    let requests: Vec<InputRequest> = serde_json::from_value(requests).unwrap();
    let events: Vec<_> = requests.iter().map(answer::ui_request).collect();
    insta::assert_json_snapshot!(events);
}
