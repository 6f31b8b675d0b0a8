//! What apps send, as canonical commands or as errors, and what they get back.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use qd_core::view::run::answer::{RunAnswer, refused, response};
use qd_core::view::run::request::{AppRequest, RunCommand, RunSubscription, read, read_input};
use qd_wire::command_table;
use qd_wire::run_protocol::{MessageDirection, TYPES};
use serde_json::{Value, json};

/// 2027-01-15T08:00:00.123Z
const NOW: i64 = 1_800_000_000_123;
const ID: &str = "0b6a0f3e-5f7e-4a6e-9a59-0d5d8d1c8a11";

fn frame(kind: &str, data: &Value) -> String {
    json!({"type":kind,"ts":"2025-01-01T00:00:00Z","run_id":"run-1","data":data}).to_string()
}

fn command(kind: &str, data: &Value) -> RunCommand {
    match read(&frame(kind, data)) {
        Ok(AppRequest::Command(command)) => *command,
        other => panic!("{kind}: {other:?}"),
    }
}

fn canonical(kind: &str, data: &Value) -> Value {
    let text = command(kind, data).text("host-1");
    assert!(!text.contains('\n'));
    let value: Value = serde_json::from_str(&text).unwrap();
    // The runner can read it.
    command_table::Command::parse(value["cmd"].as_str().unwrap(), &text).unwrap();
    value
}

fn error(kind: &str, data: &Value) -> String {
    read(&frame(kind, data)).unwrap_err().error.message
}

/// One message of each kind that an app may send to a host.
fn examples() -> Vec<(&'static str, Value)> {
    vec![
        ("run.send_input", json!({"input_id":ID,"text":"y\n"})),
        ("run.send_input", json!({"input_id":ID,"text":"","actor":"cli"})),
        ("run.send_stdin", json!({"text":"\u{1b}[A"})),
        ("run.resize", json!({"cols":100,"rows":30})),
        ("run.resize", json!({})),
        ("run.stop", json!({})),
        ("run.stop", json!({"signal":"kill","actor":"cli"})),
        ("run.stop", json!({"signal":"int"})),
        ("run.permission.approve", json!({"request_id":ID})),
        (
            "run.permission.approve",
            json!({"request_id":ID,"decision":"approve_for_session","allow_tools":["bash"]}),
        ),
        ("run.permission.approve", json!({"request_id":ID,"answers":"b","actor":"cli"})),
        ("run.permission.approve", json!({"request_id":ID,"answers":{"name":"x"}})),
        ("run.permission.deny", json!({"request_id":ID,"reason":"too dangerous"})),
        ("run.permission.deny", json!({"request_id":ID,"decision":"abort"})),
        ("rpc.fs.read", json!({"request_id":ID,"path":"README.md"})),
        ("rpc.fs.search", json!({"request_id":ID,"q":"--file=/etc/passwd"})),
        ("rpc.fs.list", json!({"request_id":ID})),
        ("rpc.fs.list", json!({"request_id":ID,"path":"src"})),
        ("rpc.fs.write", json!({"request_id":ID,"path":"a","content":"x"})),
        ("rpc.bash", json!({"request_id":ID,"cmd":"ls"})),
        ("rpc.git.status", json!({"request_id":ID})),
        ("rpc.git.diff", json!({"request_id":ID,"path":"a"})),
        (
            "rpc.run.start",
            json!({"request_id":ID,"host_id":"host-1","tool":"codex","cmd":"codex --full","cwd":"/w"}),
        ),
        ("rpc.run.start", json!({"request_id":"1","host_id":"host-1","tool":"pi","cmd":"","cwd":null})),
        ("rpc.host.info", json!({"request_id":ID,"host_id":"host-1"})),
        ("rpc.host.doctor", json!({"request_id":ID,"host_id":"host-1"})),
        ("rpc.host.capabilities", json!({"request_id":ID,"host_id":"host-1"})),
        ("rpc.host.logs.tail", json!({"request_id":ID,"host_id":"host-1","lines":10,"max_bytes":100})),
        ("rpc.runs.list", json!({"request_id":ID})),
        ("rpc.run.stop", json!({"request_id":ID,"signal":"term","actor":"web"})),
    ]
}

#[test]
fn commands_of_the_document_become_ours() {
    let examples = examples();
    let missing: Vec<&str> = TYPES
        .iter()
        .filter(|row| matches!(row.way, MessageDirection::Command | MessageDirection::Rpc))
        .map(|row| row.name)
        .filter(|name| !examples.iter().any(|(kind, _)| kind == name))
        .collect();
    assert!(missing.is_empty(), "{missing:?} have no example");
    let shown: Vec<Value> = examples
        .iter()
        .map(|(kind, data)| json!({ "sent": kind, "data": data, "command": canonical(kind, data) }))
        .collect();
    insta::assert_json_snapshot!(shown);
}

#[test]
fn what_is_gated_is_always_asked_for() {
    for (kind, data) in examples() {
        let gated = TYPES.iter().any(|row| row.name == kind && row.gated);
        let request = canonical(kind, &data);
        for name in ["ask", "ask_unless_allowed"] {
            assert_eq!(request.get(name), gated.then_some(&json!(true)), "{kind}");
        }
        let mut forged = data.clone();
        forged["ask"] = json!(false);
        forged["root"] = json!("/");
        forged["cmd_"] = json!("x");
        forged["session_id"] = json!("run-2");
        forged["user_role"] = json!("owner");
        assert_eq!(
            canonical(kind, &forged),
            canonical(kind, &data),
            "{kind}: a field of ours was let through"
        );
    }
}

/// A denial that approves, with a made-up name and tools of its own, was a way around the gate.
#[test]
fn hole_2_a_decision_never_says_the_opposite_of_its_type() {
    for (kind, decision) in [
        ("run.permission.deny", "approve_for_session"),
        ("run.permission.deny", "approve"),
        ("run.permission.approve", "deny"),
        ("run.permission.approve", "abort"),
    ] {
        let data = json!({"request_id":ID,"decision":decision,"allow_tools":["bash"]});
        assert!(error(kind, &data).contains("opposite"), "{kind} {decision}");
    }
    assert!(
        error("run.permission.approve", &json!({"request_id":ID,"decision":"yes"})).contains("decision must")
    );
    let allowed = canonical(
        "run.permission.approve",
        &json!({"request_id":ID,"decision":"approve_for_session","allow_tools":["bash","rpc.fs.write"]}),
    );
    assert!(allowed.get("allow_tools").is_none(), "the tool is that of the question: {allowed}");
}

#[test]
fn hole_22_what_cannot_be_understood_is_an_error() {
    for (text, expected) in [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("5", "not a JSON object"),
        ("{}", "missing type"),
        (r#"{"type":5}"#, "missing type"),
        (r#"{"type":"run.fly","data":{}}"#, "unknown type 'run.fly'"),
        (r#"{"type":"rpc.fly","data":{"request_id":"q"}}"#, "unknown rpc type"),
        (r#"{"type":"run.send_input","data":[]}"#, "data must be an object"),
        (r#"{"type":"run.send_input","data":{"input_id":"i","text":"x"}}"#, "missing run_id"),
        (r#"{"type":"run.send_input","run_id":"r","data":{"text":"x"}}"#, "missing input_id"),
        (r#"{"type":"run.send_input","run_id":"r","data":{"input_id":"","text":"x"}}"#, "missing input_id"),
        (
            r#"{"type":"run.send_input","run_id":"r","data":{"input_id":5,"text":"x"}}"#,
            "input_id must be a string",
        ),
        (r#"{"type":"run.send_input","run_id":"r","data":{"input_id":"i"}}"#, "missing text"),
        (r#"{"type":"run.send_input","run_id":"r"}"#, "missing input_id"),
        (r#"{"type":"run.stop","run_id":"r","data":{"signal":"hup"}}"#, "signal must be"),
        (r#"{"type":"run.resize","run_id":"r","data":{"cols":1}}"#, "cols must be"),
        (r#"{"type":"run.resize","run_id":"r","data":{"rows":201}}"#, "rows must be"),
        (r#"{"type":"run.permission.approve","run_id":"r","data":{}}"#, "missing request_id"),
        (r#"{"type":"rpc.fs.read","run_id":"r","data":{"path":"a"}}"#, "missing request_id"),
        (r#"{"type":"rpc.fs.read","run_id":"r","data":{"request_id":"q"}}"#, "missing path"),
        (r#"{"type":"rpc.fs.search","run_id":"r","data":{"request_id":"q"}}"#, "missing q"),
        (r#"{"type":"rpc.fs.write","run_id":"r","data":{"request_id":"q","path":"a"}}"#, "missing content"),
        (r#"{"type":"rpc.bash","run_id":"r","data":{"request_id":"q"}}"#, "missing cmd"),
        (r#"{"type":"rpc.host.info","data":{"request_id":"q"}}"#, "missing host_id"),
        (r#"{"type":"rpc.run.start","data":{"request_id":"q","host_id":"h"}}"#, "missing tool"),
        (r#"{"type":"run.subscribe","data":{}}"#, "missing run_id"),
        (r#"{"type":"run.subscribe","run_id":"r","data":{"since_seq":-1}}"#, "invalid data"),
        (r#"{"type":"run.output","run_id":"r","data":{}}"#, "not for apps"),
        (r#"{"type":"rpc.response","run_id":"r","data":{}}"#, "not for apps"),
    ] {
        let refusal = read(text).unwrap_err();
        assert!(refusal.error.message.contains(expected), "{text}: {}", refusal.error);
        let said: Value = serde_json::from_str(&refused(NOW, &refusal)).unwrap();
        let is_rpc = text.contains("\"rpc.") && text.contains("request_id\":\"q");
        assert_eq!(said["type"], if is_rpc { "rpc.response" } else { "error" }, "{text}");
        assert_eq!(said["data"]["error"], refusal.error.message);
        assert_eq!(said["data"]["code"], refusal.error.code.as_str());
    }
}

#[test]
fn errors_name_what_they_are_about() {
    let refusal = command("run.send_input", &json!({"input_id":ID,"text":"x"}))
        .refusal(qd_wire::ErrorCode::SessionNotFound.with("unknown run_id"));
    let said: Value = serde_json::from_str(&refused(NOW, &refusal)).unwrap();
    assert_eq!(
        said,
        json!({"type":"error","ts":"2027-01-15T08:00:00.123Z","run_id":"run-1",
            "data":{"error":"unknown run_id","code":"session_not_found","about":"run.send_input","input_id":ID}})
    );
    let refusal = command("rpc.bash", &json!({"request_id":ID,"cmd":"ls"}))
        .refusal(qd_wire::ErrorCode::RunnerOffline.with("host offline"));
    let said: Value = serde_json::from_str(&refused(NOW, &refusal)).unwrap();
    assert_eq!(
        said,
        json!({"type":"rpc.response","ts":"2027-01-15T08:00:00.123Z","run_id":"run-1",
            "data":{"request_id":ID,"ok":false,"rpc_type":"rpc.bash","error":"host offline","code":"runner_offline"}})
    );
}

#[test]
fn subscriptions_name_their_run_in_either_place() {
    let expected =
        RunSubscription { run_id: "a".to_owned(), replace: true, include_output: false, since_seq: Some(5) };
    let data = r#""replace":true,"include_output":false,"since_seq":5"#;
    let by_envelope = format!(r#"{{"type":"run.subscribe","run_id":"a","data":{{{data}}}}}"#);
    assert_eq!(read(&by_envelope), Ok(AppRequest::Subscribe(expected.clone())));
    let by_data = format!(r#"{{"type":"run.subscribe","data":{{"run_id":"a",{data}}}}}"#);
    assert_eq!(read(&by_data), Ok(AppRequest::Subscribe(expected)));
    let plain =
        RunSubscription { run_id: "a".to_owned(), replace: false, include_output: true, since_seq: None };
    assert_eq!(read(r#"{"type":"run.subscribe","run_id":"a"}"#), Ok(AppRequest::Subscribe(plain)));
    assert_eq!(read(r#"{"type":"run.unsubscribe"}"#), Ok(AppRequest::Unsubscribe(None)));
    assert_eq!(read(r#"{"type":"run.ack","data":{"run_id":"a","last_seq":1}}"#), Ok(AppRequest::Ignored));
    assert_eq!(read(r#"{"type":"host.heartbeat"}"#), Ok(AppRequest::Ignored));
}

#[test]
fn the_body_of_an_input_is_a_command() {
    let command = read_input("run-1", br#"{"input_id":"i","text":"y\n"}"#).unwrap();
    let text: Value = serde_json::from_str(&command.text("host-1")).unwrap();
    assert_eq!(
        text,
        json!({"cmd":"run.input","session_id":"run-1","input_id":"i","text":"y\n","actor":"web"})
    );
    assert_eq!(read_input("run-1", br#"{"text":"y"}"#).unwrap_err().message, "missing input_id");
    assert!(read_input("run-1", b"nonsense").is_err());
}

fn answered(kind: &str, data: &Value, answer: &Value) -> Value {
    let text = answer.to_string();
    let answer = RunAnswer {
        success: true,
        data: Some(&text),
        session_id: Some("run-9"),
        runner_id: Some("host-1"),
        ..RunAnswer::default()
    };
    serde_json::from_str(&response(NOW, &command(kind, data), &answer)).unwrap()
}

#[test]
fn answers_have_the_shape_of_the_document() {
    let id = json!({ "request_id": ID });
    let with = |more: Value| {
        let mut data = id.clone();
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        data
    };
    let host = with(json!({"host_id":"host-1"}));
    let bash = |exit_code: Value, stderr: &str| {
        json!({"stdout":"out","stderr":stderr,"exit_code":exit_code,"timed_out":false,"cancelled":false,
            "truncated":false,"stdout_bytes":3,"stderr_bytes":stderr.len(),"duration_ms":5})
    };
    let info = json!({"host_id":"host-1","pid":1,"os":"linux","arch":"x86_64","version":"1","hostname":"h",
        "tools":[{"tool":"codex","bin":"/usr/bin/codex","ok":true},{"tool":"pi","ok":false,"error":"not found"}]});
    let state = |id: &str, status: &str, more: Value| {
        let mut state = json!({"session_id":id,"runner_id":"host-1","harness":"pty","status":status,"cwd":"/w",
            "session_version":1,"seq":4,"message_count":0,"queue":{"steering":[],"follow_up":[]},"pending_input":[]});
        state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        state
    };
    let run = json!({"run":{"tool":"codex","command":"codex","pid":42,"cols":80,"rows":24,
        "awaiting":{"reason":"prompt","request_id":"q-1"}}});
    let sessions = json!({"sessions":[
        state("run-1", "working", run), state("run-2", "closed", json!({})), state("s-3", "idle", json!({"harness":"pi"})),
    ]});
    let read = json!({"path":"a","content":"x","encoding":"text","size":1,"offset":0,"truncated":false,"hash":"h","modified_at":1});
    let search =
        json!({"matches":[{"path":"a","line":1,"column":2,"text":"x"}],"truncated":false,"files_searched":1});
    let list = json!({"path":".","entries":[{"name":"src","is_dir":true,"is_symlink":false},
        {"name":"a","is_dir":false,"is_symlink":false,"size_bytes":3}],"total":2,"truncated":false});
    let answers = [
        answered("rpc.fs.read", &with(json!({"path":"a"})), &read),
        answered("rpc.fs.search", &with(json!({"q":"x"})), &search),
        answered("rpc.fs.list", &id, &list),
        answered(
            "rpc.fs.write",
            &with(json!({"path":"a","content":"x"})),
            &json!({"path":"a","bytes_written":1,"hash":"h","truncated":false}),
        ),
        answered("rpc.bash", &with(json!({"cmd":"ls"})), &bash(json!(0), "")),
        answered("rpc.bash", &with(json!({"cmd":"ls"})), &bash(json!(2), "no such file\n")),
        answered("rpc.bash", &with(json!({"cmd":"ls"})), &bash(json!(3), "")),
        answered("rpc.bash", &with(json!({"cmd":"ls"})), &bash(Value::Null, "")),
        answered("rpc.git.status", &id, &json!({"files":[],"stdout":"## main","truncated":false})),
        answered("rpc.git.diff", &id, &json!({"stdout":"","truncated":false,"total_bytes":0,"files":[]})),
        answered(
            "rpc.run.start",
            &with(json!({"host_id":"host-1","tool":"codex"})),
            &json!({"session_id":"run-9"}),
        ),
        answered("rpc.host.info", &host, &info),
        answered("rpc.host.logs.tail", &host, &json!({"path":"/l","text":"x\n","truncated":false})),
        answered("rpc.runs.list", &id, &sessions),
        answered("rpc.run.stop", &id, &json!({"signal":"term"})),
    ];
    for answer in &answers {
        assert_eq!((&answer["type"], &answer["data"]["request_id"]), (&json!("rpc.response"), &json!(ID)));
        assert!(answer.get("seq").is_none() && answer["data"]["ok"].is_boolean());
        assert!(answer["data"]["result"].is_object(), "{answer}");
    }
    insta::assert_json_snapshot!(answers);
    let failed = RunAnswer { error: Some("path escapes run cwd"), ..RunAnswer::default() };
    let command = command("rpc.fs.read", &with(json!({"path":"../a"})));
    let failed: Value = serde_json::from_str(&response(NOW, &command, &failed)).unwrap();
    assert_eq!(
        (&failed["data"]["ok"], &failed["data"]["error"]),
        (&json!(false), &json!("path escapes run cwd"))
    );
    assert!(failed["data"].get("result").is_none());
}

#[test]
fn a_field_of_the_wrong_kind_is_told_before_it_goes_to_a_runner() {
    for (name, data, error) in [
        ("rpc.fs.list", json!({ "request_id": "r", "path": 5 }), "path: invalid type: integer `5`"),
        ("rpc.fs.list", json!({ "request_id": "r", "limit": -1 }), "limit: invalid value"),
        (
            "rpc.bash",
            json!({ "request_id": "r", "cmd": "ls", "timeout_ms": "soon" }),
            "timeout_ms: invalid type",
        ),
    ] {
        let refusal = read(&frame(name, &data)).unwrap_err();
        assert!(refusal.error.message.starts_with(&format!("invalid data: {error}")), "{}", refusal.error);
        assert!(!refusal.error.message.contains("line"), "{}", refusal.error);
        assert_eq!(refusal.rpc(), Some((name, "r")));
    }
}

proptest! {
    /// Whatever comes is a command that the runner can read, or an error that its sender can.
    #[test]
    fn any_message_is_a_command_or_an_error(
        row in 0..TYPES.len(),
        names in proptest::collection::vec(0..12_usize, 0..8),
        value in prop_oneof![
            Just(json!("x")), Just(json!("")), Just(json!(5)), Just(Value::Null), Just(json!({})), Just(json!([1])),
            Just(json!("\u{0}\n\"")), Just(json!(true)), Just(json!(-1)),
        ],
    ) {
        const NAMES: [&str; 12] = ["request_id", "input_id", "text", "path", "q", "cmd", "host_id", "tool", "content",
            "signal", "decision", "cols"];
        let mut data = json!({});
        for (place, name) in names.iter().enumerate() {
            data[NAMES[*name]] = if place % 2 == 0 { value.clone() } else { json!("y") };
        }
        match read(&frame(TYPES[row].name, &data)) {
            Ok(AppRequest::Command(command)) => {
                let text = command.text("h");
                prop_assert!(!text.contains('\n'));
                let parsed = command_table::Command::parse(command.canonical(), &text);
                prop_assert!(parsed.is_ok(), "{text}: {parsed:?}");
            }
            Ok(_) => {}
            Err(refusal) => {
                let said: Value = serde_json::from_str(&refused(NOW, &refusal)).unwrap();
                prop_assert!(said["data"]["error"].as_str().is_some_and(|error| !error.is_empty()));
            }
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = read(&text);
    }
}
