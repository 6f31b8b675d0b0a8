//! Frames of the pi-server face: what is refused and in which words, what becomes of what is not, and that the one
//! table is complete.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking"
)]

#[path = "pi_server_support/canonical.rs"]
mod canonical;
#[allow(dead_code, reason = "this test needs a part of it")]
mod pi_server_support;

use canonical::canonical;
use pi_server_support::{corpus, frame};
use qd_core::view::pi_server::answer;
use qd_core::view::pi_server::request::read;
use qd_wire::command_table::{self, Lane};
use qd_wire::pi_server::{COMMANDS, Command, Target};
use serde_json::{Value, json};

/// The names in the tables of sections 17 and 18 of the document, as they are written there.
const DOCUMENTED: &[&str] = &[
    // 17.1
    "list_sessions",
    "create_session",
    "delete_session",
    "switch_session",
    "get_metrics",
    "health_check",
    "list_stored_sessions",
    "load_session",
    // 17.2
    "get_available_models",
    "get_commands",
    "get_skills",
    "get_tools",
    "list_session_files",
    "prompt",
    "steer",
    "follow_up",
    "abort",
    "get_state",
    "get_messages",
    "set_model",
    "cycle_model",
    "set_thinking_level",
    "cycle_thinking_level",
    "set_session_name",
    "compact",
    "abort_compaction",
    "set_auto_compaction",
    "set_auto_retry",
    "abort_retry",
    "bash",
    "abort_bash",
    "get_session_stats",
    "export_html",
    "new_session",
    "switch_session_file",
    "fork",
    "get_fork_messages",
    "get_last_assistant_text",
    "get_context_usage",
    // 18.2
    "extension_ui_response",
];

/// Commands the original got after the document was written.
const ADDED: &[&str] = &["get_startup_recovery", "get_command_history", "get_tree", "navigate_tree"];

/// Commands the hub answers without a runner.
const OF_THE_HUB: &[&str] = &["get_startup_recovery", "get_command_history"];

fn error_of(frame: &str) -> String {
    read(frame).expect_err(frame).error
}

#[test]
fn the_table_has_every_command_and_no_other() {
    let mut named: Vec<&str> = COMMANDS.iter().map(|row| row.name).collect();
    let mut expected: Vec<&str> = DOCUMENTED.iter().chain(ADDED).copied().collect();
    named.sort_unstable();
    expected.sort_unstable();
    assert_eq!(named, expected);
}

#[test]
fn every_row_is_read_translated_and_answered() {
    for row in COMMANDS {
        let request =
            read(&frame(row.name)).unwrap_or_else(|invalid| panic!("{}: {}", row.name, invalid.error));
        assert_eq!((request.spec.name, request.command.name()), (row.name, row.name));
        let text = canonical(&request, Some("s"), None);
        assert_eq!(text.is_empty(), OF_THE_HUB.contains(&row.name), "{}", row.name);
        assert_eq!(row.canonical.is_empty(), text.is_empty(), "{}", row.name);
        if !text.is_empty() {
            qd_wire::Command::parse(row.canonical, &text)
                .unwrap_or_else(|error| panic!("{}: {error}", row.name));
        }
        let data = answer::data(&request, None);
        let has_no_data = matches!(data, Ok(None));
        let is_silent = matches!(
            request.command,
            Command::Prompt(_)
                | Command::Steer(_)
                | Command::FollowUp(_)
                | Command::Abort(_)
                | Command::SetThinkingLevel(_)
                | Command::SetSessionName(_)
                | Command::AbortCompaction(_)
                | Command::SetAutoCompaction(_)
                | Command::SetAutoRetry(_)
                | Command::AbortRetry(_)
                | Command::AbortBash(_)
                | Command::ExtensionUiResponse(_)
        );
        assert_eq!(has_no_data, is_silent, "{}", row.name);
    }
}

#[test]
fn rows_agree_with_the_canonical_commands_that_do_their_work() {
    for row in COMMANDS.iter().filter(|row| !row.canonical.is_empty()) {
        let canonical = command_table::spec(row.canonical).unwrap_or_else(|| panic!("{}", row.canonical));
        assert_eq!(row.mutating, canonical.mutating, "{}", row.name);
        assert_eq!(row.permission, canonical.permission, "{}", row.name);
        // On this face a shell command and the prompt after it keep their order; others let them run side by side.
        let lane = if canonical.lane == Lane::Shell { Lane::Session } else { canonical.lane };
        assert_eq!(row.lane, lane, "{}", row.name);
        if row.target == Target::Session {
            assert!(canonical.needs_session, "{}", row.name);
        }
        // Work that cannot be taken back has no limit here either, where there is no way to stop it.
        if canonical.timeout_ms.is_some() {
            assert!(row.timeout_ms.is_some(), "{}", row.name);
        }
    }
}

#[test]
fn rows_agree_with_themselves() {
    for row in COMMANDS {
        let is_read = row.lane == Lane::Read;
        assert!(!(is_read && row.mutating), "{}: reads change nothing", row.name);
        assert!(!is_read || row.timeout_ms == Some(30_000), "{}: reads have 30 s", row.name);
        assert!(is_read || row.mutating || row.name == "extension_ui_response", "{}", row.name);
        let can_be_stopped = ["bash", "compact"].contains(&row.name);
        assert_eq!(
            row.timeout_ms == Some(300_000),
            can_be_stopped,
            "{}: what runs on has no limit",
            row.name
        );
        let is_abort = row.name.starts_with("abort");
        assert_eq!(row.is_journaled(), row.mutating && !is_abort, "{}", row.name);
        let is_view = row.permission == command_table::Permission::View;
        assert_eq!(is_view, is_read, "{}: who may only look changes nothing", row.name);
    }
}

#[test]
fn the_corpus_as_it_is_read() {
    let mut shown = String::new();
    for (name, text) in corpus() {
        let line = match read(&text) {
            Ok(request) => format!("{name}: {}\n", canonical(&request, None, None)),
            Err(invalid) => format!("{name}: {} {:?} ! {}\n", invalid.command, invalid.id, invalid.error),
        };
        shown.push_str(&line);
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn frames_that_are_no_objects_are_answered_clearly() {
    for text in ["[1,2]", "\"str\"", "null", "42", " true "] {
        let invalid = read(text).unwrap_err();
        assert_eq!(invalid.error, "Validation failed: root: Command must be an object", "{text}");
        assert_eq!((invalid.id, invalid.command.as_str()), (None, "unknown"));
    }
    for text in ["", "{", "{\"type\":\"abort\"} x", "{'type':1}", "\u{feff}{}", "NaN"] {
        assert_eq!(error_of(text), "Invalid JSON", "{text}");
    }
}

#[test]
fn ids_are_echoed_as_sent() {
    for id in [json!(7), json!(null), json!(["a"]), json!({"a": 1}), json!(""), json!(1.5)] {
        let invalid = read(&json!({ "type": "get_state", "id": id }).to_string()).unwrap_err();
        assert_eq!(invalid.id, Some(id));
        assert_eq!(invalid.command, "get_state");
    }
    assert_eq!(read(r#"{"type":"nope"}"#).unwrap_err().id, None);
}

#[test]
fn errors_are_collected_in_order() {
    let frame = json!({ "type": "set_model", "id": 7, "dependsOn": ["", "x"], "ifSessionVersion": 1.5 });
    assert_eq!(
        error_of(&frame.to_string()),
        "Validation failed: id: Must be a non-empty string if provided; \
         dependsOn[0]: Must be a non-empty command ID string; id: Required when dependsOn is provided; \
         ifSessionVersion: Must be a non-negative integer; \
         sessionId: Session commands must have a non-empty string 'sessionId'; provider: Required string; \
         modelId: Required string"
    );
}

#[test]
fn lengths_are_counted_as_the_original_counts() {
    let prompt =
        |message: String| json!({ "type": "prompt", "sessionId": "s", "message": message }).to_string();
    assert!(read(&prompt("ü".repeat(200_000))).is_ok());
    let too_long = "Validation failed: message: Too long (max 200000 chars)";
    assert_eq!(error_of(&prompt("x".repeat(200_001))), too_long);
    // A character outside the basic plane is two units.
    assert!(read(&prompt("👋".repeat(100_000))).is_ok());
    assert_eq!(error_of(&prompt("👋".repeat(100_001))), too_long);
    let bash = json!({ "type": "bash", "sessionId": "s", "command": "x".repeat(20_001) }).to_string();
    assert_eq!(error_of(&bash), "Validation failed: command: Too long (max 20000 chars)");
    let path = json!({ "type": "load_session", "sessionPath": "/x".repeat(2049) }).to_string();
    assert_eq!(error_of(&path), "Validation failed: sessionPath: sessionPath too long (max 4096 chars)");
}

#[test]
fn a_stray_session_on_a_server_command_is_ignored() {
    let request = read(r#"{"type":"list_sessions","sessionId":"s","id":"a"}"#).unwrap();
    assert_eq!(request.session_id, None);
    let sent: Value = serde_json::from_str(&canonical(&request, None, None)).unwrap();
    assert_eq!(sent, json!({ "cmd": "list_sessions" }));
    // It is a field of the frame all the same, so it is part of what was meant.
    assert_ne!(request.fingerprint, read(r#"{"type":"list_sessions","id":"a"}"#).unwrap().fingerprint);
}

#[test]
fn half_a_character_does_not_cost_the_frame() {
    let frame = r#"{"type":"prompt","id":"h","sessionId":"s","message":"cut \ud83d"}"#;
    let command: Value = serde_json::from_str(&canonical(&read(frame).unwrap(), None, None)).unwrap();
    assert_eq!(command["message"], "cut \u{fffd}");
}

#[test]
fn whole_numbers_may_be_written_with_a_point() {
    let request = read(r#"{"type":"abort","sessionId":"s","ifSessionVersion":2.0}"#).unwrap();
    assert_eq!(request.envelope.if_session_version, Some(2));
    let deleted = read(r#"{"type":"delete_session","sessionId":"s","ifSessionVersion":2}"#).unwrap();
    assert_eq!(deleted.envelope.if_session_version, Some(2));
}

#[test]
fn every_level_of_thinking_is_known() {
    for (sent, meant) in [("off", "off"), ("none", "off"), ("minimal", "minimal"), ("xhigh", "xhigh")] {
        let frame = json!({ "type": "set_thinking_level", "sessionId": "s", "level": sent }).to_string();
        let command: Value = serde_json::from_str(&canonical(&read(&frame).unwrap(), None, None)).unwrap();
        assert_eq!(command["level"], meant);
    }
}

#[test]
fn a_long_unknown_type_is_not_sent_back_whole() {
    let invalid = read(&json!({ "type": "x".repeat(100_000) }).to_string()).unwrap_err();
    assert_eq!(invalid.command.len(), 256);
    assert!(invalid.error.len() < 400, "{}", invalid.error.len());
}

#[test]
fn a_path_of_a_session_is_never_taken_for_a_name() {
    let path = |command: &Value, sent: &str| -> Value {
        let mut command = command.clone();
        command["sessionPath"] = json!(sent);
        let canonical = canonical(&read(&command.to_string()).unwrap(), None, None);
        let canonical: Value = serde_json::from_str(&canonical).unwrap();
        let of_create = canonical["config"]["continue_session"].clone();
        if of_create.is_null() { canonical["session_path"].clone() } else { of_create }
    };
    for command in
        [json!({ "type": "load_session" }), json!({ "type": "switch_session_file", "sessionId": "s" })]
    {
        assert_eq!(path(&command, "0197-abc"), "./0197-abc");
        for whole in ["/x/a.jsonl", "x/a.jsonl"] {
            assert_eq!(path(&command, whole), whole);
        }
    }
}

#[test]
fn what_would_cut_off_a_turn_waits_for_its_end() {
    let waits = |name: &str| {
        let text = canonical(&read(&frame(name)).unwrap(), Some("s"), None);
        let command: Value = serde_json::from_str(&text).unwrap();
        command.get("when_idle") == Some(&json!(true))
    };
    for name in ["new_session", "fork", "switch_session_file", "navigate_tree", "compact"] {
        assert!(waits(name), "{name}");
    }
    for name in ["prompt", "abort", "set_model", "get_messages"] {
        assert!(!waits(name), "{name}");
    }
}
