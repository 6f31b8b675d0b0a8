//! Records as the run document's events: each event of the document with each of its fields.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use qd_core::view::run::SessionKind;
use qd_core::view::run::event::{EventClass, show};
use qd_core::view::run::history::messages;
use qd_core::view::run::record::Record;
use serde_json::{Value, json};

/// 2027-01-15T08:00:00.123Z
const TS: i64 = 1_800_000_000_123;

fn line(seq: u64, event: &str, fields: &Value) -> String {
    let fields = fields.to_string();
    let fields = fields.strip_prefix('{').unwrap();
    let comma = if fields == "}" { "" } else { "," };
    format!(
        r#"{{"channel":"agent","session_id":"run-1","runner_id":"host-1","ts":{TS},"seq":{seq},"event":"{event}"{comma}{fields}"#
    )
}

fn shown(kind: SessionKind, event: &str, fields: &Value) -> Vec<Value> {
    let line = line(7, event, fields);
    let mut found = Vec::new();
    show(kind, &Record::parse(&line).unwrap(), &mut |shown| {
        let envelope: Value = serde_json::from_str(&shown.pieces.concat()).unwrap();
        assert_eq!(envelope["type"], shown.name);
        found.push(envelope);
    });
    found
}

/// What a screen and a gate ask, as their records have it.
fn permission(metadata: Value) -> Value {
    json!({"request":{"type":"permission","request_id":"q-1","title":"Run it?","metadata":metadata}})
}

fn gate() -> Value {
    let command = "cat /home/someuser/projects/webapp/config/settings-of-the-production-environment";
    permission(json!({
        "source":"gate","reason":"permission","op_tool":"bash",
        "op_args":{"cmd":command,"token":"sk-abcdefghijklmnopqrstuvwxyz0123456789"},
        "op_args_summary":"cat /home/…","approve_text":"","deny_text":"","command":"{}","principal":"ann","actor":"web",
    }))
}

fn screen() -> Value {
    permission(json!({"source":"screen","reason":"prompt","approve_text":"y\r","deny_text":"n\r"}))
}

#[test]
fn a_program_in_a_terminal() {
    let records = [
        ("session.created", json!({"resumed":false,"harness":"pty","cwd":"/w"})),
        (
            "run.started",
            json!({"tool":"codex","cwd":"/w","command":"codex --full","pid":42,"cols":80,"rows":24}),
        ),
        ("run.output", json!({"stream":"stdout","text":"Grüße \u{1b}[1m你好\u{1b}[0m\r\n"})),
        ("run.awaiting_input", json!({"reason":"permission","prompt":"Proceed?","request_id":"q-1"})),
        ("run.input", json!({"actor":"web","input_id":"i-1","text_redacted":"y\n","text_sha256":"ab"})),
        ("run.resized", json!({"cols":100,"rows":30})),
        ("agent.input_needed", screen()),
        ("agent.input_needed", gate()),
        (
            "agent.input_needed",
            json!({"request":{"type":"select","request_id":"q-2","title":"Which?","options":["a","b"]}}),
        ),
        ("agent.input_needed", json!({"request":{"type":"input","request_id":"q-3","title":"Password:"}})),
        (
            "agent.input_resolved",
            json!({"request_id":"q-1","outcome":"answered","user_id":"ann","decision":"approve_for_session","actor":"web"}),
        ),
        ("agent.input_resolved", json!({"request_id":"q-2","outcome":"withdrawn"})),
        (
            "tool.call",
            json!({"request_id":"c-1","tool":"rpc.fs.read","actor":"web","args":{"path":"README.md"},"user_id":"ann"}),
        ),
        (
            "tool.result",
            json!({"request_id":"c-1","tool":"rpc.fs.read","actor":"web","ok":true,"duration_ms":3,"result":{"path":"README.md","truncated":false}}),
        ),
        (
            "tool.result",
            json!({"request_id":"c-2","tool":"rpc.bash","actor":"cli","ok":false,"duration_ms":4,"error":"denied"}),
        ),
        ("session.title_changed", json!({"title":"A title"})),
        ("run.exited", json!({"exit_code":0})),
        ("run.exited", json!({"exit_code":-1,"signal":9,"error":"The runner stopped"})),
        ("agent.idle", json!({})),
        ("session.closed", json!({"reason":"closed"})),
        ("queue.changed", json!({"queue":{}})),
    ];
    let shown: Vec<Value> = records
        .iter()
        .map(|(event, fields)| json!({ *event: shown(SessionKind::Terminal, event, fields) }))
        .collect();
    insta::assert_json_snapshot!(shown);
}

#[test]
fn another_agent() {
    let text = |role: &str, more: Value| {
        let mut message = json!({
            "id":"m-1","idx":0,"role":role,"created_at":1,
            "parts":[{"type":"thinking","id":"p0","text":"hm"},{"type":"text","id":"p1","text":"Hello"}],
        });
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "message": message })
    };
    let records = [
        ("session.created", json!({"resumed":false,"harness":"pi","cwd":"/w"})),
        ("stream.message_end", text("user", json!({"client_id":"i-1"}))),
        ("stream.message_end", text("assistant", json!({}))),
        ("stream.message_end", text("tool", json!({}))),
        ("tool.start", json!({"tool_call_id":"t-1","name":"bash","input":{"command":"ls"}})),
        (
            "tool.end",
            json!({"tool_call_id":"t-1","name":"bash","output":{"text":"a"},"is_error":false,"duration_ms":5}),
        ),
        ("tool.end", json!({"tool_call_id":"t-2","name":"bash","output":"no such file","is_error":true})),
        ("agent.input_needed", permission(json!({"tool_name":"bash","input":{"command":"rm -rf /"}}))),
        ("agent.input_needed", gate()),
        (
            "agent.input_needed",
            json!({"request":{"type":"confirm","request_id":"q-4","title":"Sure?","message":"It is gone then."}}),
        ),
        ("agent.input_needed", json!({"request":{"type":"input","request_id":"q-5","title":"Your name?"}})),
        ("agent.error", json!({"error":"The agent has died","recoverable":false})),
        ("agent.idle", json!({"reason":"stop"})),
        ("session.native_changed", json!({"native_session_id":"n-1"})),
        ("session.closed", json!({})),
    ];
    let shown: Vec<Value> = records
        .iter()
        .map(|(event, fields)| json!({ *event: shown(SessionKind::Agent, event, fields) }))
        .collect();
    insta::assert_json_snapshot!(shown);
}

/// Every event of the document's text, with every field that it names.
#[test]
fn each_field_of_the_document_is_there() {
    let document: &[(&str, &str, Value, &[&str])] = &[
        (
            "run.started",
            "run.started",
            json!({"tool":"t","cwd":"/","command":"c"}),
            &["tool", "cwd", "command"],
        ),
        ("run.output", "run.output", json!({"stream":"stdout","text":"x"}), &["stream", "text"]),
        (
            "run.awaiting_input",
            "run.awaiting_input",
            json!({"reason":"prompt","prompt":"p","request_id":"q"}),
            &["reason", "prompt", "request_id"],
        ),
        ("run.exited", "run.exited", json!({"exit_code":3}), &["exit_code"]),
        (
            "run.input",
            "run.input",
            json!({"actor":"web","input_id":"i","text_redacted":"t","text_sha256":"h"}),
            &["actor", "input_id", "text_redacted", "text_sha256"],
        ),
        (
            "agent.input_needed",
            "run.permission_requested",
            gate(),
            &[
                "request_id",
                "reason",
                "prompt",
                "op_tool",
                "op_args",
                "op_args_summary",
                "approve_text",
                "deny_text",
            ],
        ),
        (
            "tool.call",
            "tool.call",
            json!({"request_id":"c","tool":"t","actor":"web","args":{}}),
            &["request_id", "tool", "actor", "args"],
        ),
        (
            "tool.result",
            "tool.result",
            json!({"request_id":"c","tool":"t","actor":"web","ok":true,"duration_ms":1,"result":{}}),
            &["request_id", "tool", "actor", "ok", "duration_ms", "result"],
        ),
    ];
    for (record, event, fields, names) in document {
        let shown = shown(SessionKind::Terminal, record, fields);
        let first = &shown[0];
        assert_eq!(first["type"], *event);
        assert_eq!(
            (&first["ts"], &first["host_id"], &first["run_id"], &first["seq"]),
            (&json!("2027-01-15T08:00:00.123Z"), &json!("host-1"), &json!("run-1"), &json!(7))
        );
        for name in *names {
            assert!(first["data"].get(*name).is_some(), "{event} has no {name}: {first}");
        }
    }
}

/// The person who decides sees everything, whatever it looks like.
#[test]
fn hole_6_the_approver_sees_all_arguments() {
    let shown = shown(SessionKind::Terminal, "agent.input_needed", &gate());
    let text = shown[0].to_string();
    assert!(text.contains("settings-of-the-production-environment"), "{text}");
    assert!(text.contains("sk-abcdefghijklmnopqrstuvwxyz0123456789"), "{text}");
}

#[test]
fn output_is_passed_on_byte_by_byte() {
    let text = r#""stream":"stdout","text":"\u001b[31m a\\\"b \ud83d\ude00 é""#;
    let line = format!(
        r#"{{"channel":"agent","session_id":"run-1","runner_id":"host-1","ts":{TS},"seq":7,"event":"run.output",{text}}}"#
    );
    let mut found = String::new();
    show(SessionKind::Terminal, &Record::parse(&line).unwrap(), &mut |shown| {
        assert_eq!(shown.class(), EventClass::Output);
        found = shown.pieces.concat();
    });
    assert_eq!(
        found,
        format!(
            r#"{{"type":"run.output","ts":"2027-01-15T08:00:00.123Z","host_id":"host-1","run_id":"run-1","seq":7,"data":{{{text}}}}}"#
        )
    );
}

#[test]
fn the_past_is_a_list_of_messages() {
    let records = [
        line(1, "session.created", &json!({"resumed":false,"harness":"pty","cwd":"/w"})),
        line(2, "run.started", &json!({"tool":"codex","cwd":"/w","command":"codex"})),
        line(3, "run.output", &json!({"stream":"stdout","text":"hi"})),
        line(4, "run.input", &json!({"actor":"cli","input_id":"i","text_redacted":"yes","text_sha256":"h"})),
        line(5, "agent.input_needed", &gate()),
        line(6, "agent.input_resolved", &json!({"request_id":"q-1","outcome":"answered","decision":"deny"})),
        line(7, "tool.call", &json!({"request_id":"c","tool":"rpc.bash","actor":"web","args":{"cmd":"ls"}})),
        line(8, "run.exited", &json!({"exit_code":2})),
    ];
    let list = |include_output: bool| -> Vec<Value> {
        let of =
            |text: &String| messages(SessionKind::Terminal, &Record::parse(text).unwrap(), include_output);
        records.iter().flat_map(of).map(|message| json!(message)).collect()
    };
    insta::assert_json_snapshot!(list(true));
    assert_eq!(list(false).len(), list(true).len() - 1);
}
