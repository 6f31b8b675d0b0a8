use qd_wire::link::HelloSession;
use serde_json::json;

use super::*;

fn hello() -> RunnerHello {
    RunnerHello {
        runner_id: "h".to_owned(),
        sessions: vec![HelloSession { session_id: "old".to_owned(), last_seq: 5, state: None }],
        ..RunnerHello::default()
    }
}

fn outgoing() -> ServerConnection {
    ServerConnection::welcome(&hello(), &HashMap::from([("old".to_owned(), 3)])).0
}

fn record(run_id: &str, seq: u64, event: &str, rest: &str) -> String {
    format!(
        r#"{{"type":"event","session_id":"{run_id}","runner_id":"h","ts":1735689600000,"seq":{seq},"event":"{event}"{rest}}}"#
    )
}

fn ack(run_id: &str, seq: u64) -> String {
    json!({"type": "run.ack", "ts": "2025-01-01T00:00:00Z", "data": {"run_id": run_id, "last_seq": seq}})
        .to_string()
}

#[test]
fn every_record_becomes_exactly_one_numbered_event() {
    let mut outgoing = outgoing();
    let lines = [
        record("r", 1, "session.created", r#","resumed":false,"harness":"pty""#),
        record("r", 2, "run.started", r#","tool":"t","cwd":"/w","command":"c","cols":80,"rows":24"#),
        record("r", 3, "run.output", r#","stream":"stdout","text":"a""#),
        record("r", 4, "notify", r#","level":"info","message":"m""#),
        record(
            "r",
            5,
            "agent.input_needed",
            r#","request":{"type":"input","request_id":"q","title":"Password:"}"#,
        ),
        record("r", 6, "run.exited", r#","exit_code":0"#),
    ];
    for (place, line) in lines.iter().enumerate() {
        let sent: Vec<Value> =
            outgoing.line(0, line).to_server.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let numbers: Vec<u64> = sent.iter().filter_map(|message| message["seq"].as_u64()).collect();
        assert_eq!(numbers, [place as u64 + 1], "{sent:?}");
        assert!(sent.iter().all(|message| message["run_id"] == "r" && message["host_id"] == "h"));
    }
    let live = r#"{"type":"event","session_id":"r","runner_id":"h","ts":1,"event":"agent.working","phase":"thinking"}"#;
    assert_eq!(outgoing.line(0, live), TranslatedLines::default());
    let beat = outgoing.line(0, r#"{"type":"runner.heartbeat","runner_id":"h","uptime_s":1,"sessions":[]}"#);
    assert!(beat.to_server[0].contains("host.heartbeat"));
}

#[test]
fn hole_12_an_ack_counts_as_far_as_events_were_sent() {
    let (mut outgoing, welcome) =
        ServerConnection::welcome(&hello(), &HashMap::from([("old".to_owned(), 9)]));
    assert_eq!(welcome.sessions[0].last_seq, 5, "no more than there is");
    let mut outcome = |text: &str| outgoing.message(0, text).acked;
    assert_eq!(outcome(&ack("r", 5)), None, "nothing of it was sent");
    outgoing.line(0, &record("r", 1, "run.output", r#","stream":"stdout","text":"a""#));
    outgoing.line(0, &record("r", 2, "run.output", r#","stream":"stdout","text":"b""#));
    let mut outcome = |text: &str| outgoing.message(0, text).acked;
    assert_eq!(outcome(&ack("r", 1000)), Some(("r".to_owned(), 2)));
    assert_eq!(outcome(&ack("r", 1)), None, "acks in the wrong order take nothing back");
    assert_eq!(outcome(r#"{"type":"run.ack","data":{"run_id":5}}"#), None);
}

#[test]
fn commands_become_lines_and_answers_responses() {
    let mut outgoing = outgoing();
    let call = json!({"type": "rpc.fs.write", "ts": "x", "run_id": "r", "data": {"request_id": "q", "path": "a", "content": "b"}});
    let line: Value =
        serde_json::from_str(outgoing.message(0, &call.to_string()).to_runner.trim_end()).unwrap();
    assert_eq!(
        (&line["type"], &line["cmd"], &line["session_id"]),
        (&json!("command"), &json!("fs.write"), &json!("r"))
    );
    assert_eq!(
        (&line["ask"], &line["user_role"], &line["path"]),
        (&json!(true), &json!("operator"), &json!("a"))
    );
    let answer = json!({"type": "response", "id": line["id"], "session_id": "r", "cmd": "fs.write", "success": false, "error": "denied"});
    let sent: Value = serde_json::from_str(&outgoing.line(0, &answer.to_string()).to_server[0]).unwrap();
    assert_eq!((&sent["type"], &sent["data"]["request_id"]), (&json!("rpc.response"), &json!("q")));
    assert_eq!((&sent["data"]["ok"], &sent["data"]["error"]), (&json!(false), &json!("denied")));
    assert_eq!(outgoing.line(0, &answer.to_string()), TranslatedLines::default(), "an answer counts once");
    let input = json!({"type": "run.send_input", "run_id": "gone", "data": {"input_id": "i", "text": "x\n"}});
    let line: Value =
        serde_json::from_str(outgoing.message(0, &input.to_string()).to_runner.trim_end()).unwrap();
    let answer = json!({"type": "response", "id": line["id"], "cmd": "run.input", "success": false, "error": "Session gone not found", "code": "session_not_found"});
    let sent: Value = serde_json::from_str(&outgoing.line(0, &answer.to_string()).to_server[0]).unwrap();
    assert_eq!((&sent["type"], &sent["data"]["error"]), (&json!("error"), &json!("unknown run_id")));
}

#[test]
fn hole_22_what_cannot_be_read_is_answered_and_errors_are_not() {
    let mut outgoing = outgoing();
    for text in [
        "",
        "[]",
        r#"{"type":"nonsense"}"#,
        r#"{"type":"rpc.fs.read","data":{}}"#,
        r#"{"type":"run.subscribe","run_id":"r"}"#,
    ] {
        assert_eq!(outgoing.message(0, text).to_server.len(), 1, "{text}");
    }
    let other = json!({"type": "rpc.host.info", "data": {"request_id": "q", "host_id": "other"}}).to_string();
    assert!(outgoing.message(0, &other).to_server[0].contains("unknown host_id"));
    assert_eq!(outgoing.message(0, r#"{"type":"error","data":{"error":"x"}}"#), TranslatedLines::default());
}
