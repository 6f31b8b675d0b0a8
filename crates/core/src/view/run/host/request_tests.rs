use serde_json::json;

use super::super::event::record;
use super::*;

fn book() -> ForeignRun {
    let mut book = ForeignRun::default();
    let events = [
        ("run.started", json!({"tool": "bash", "cwd": "/w", "command": "bash"})),
        ("run.permission_requested", json!({"request_id": "q", "op_tool": "bash", "prompt": "?"})),
        ("run.input", json!({"input_id": "i1"})),
    ];
    for (number, (kind, data)) in events.into_iter().enumerate() {
        book.read(0, number as u64 + 1, &record(kind, data).0);
    }
    book
}

fn planned(cmd: &str, params: Value, book: Option<&ForeignRun>) -> Result<HostPlan, CodedError> {
    let text = params.to_string();
    plan(&HostCommand { host_id: "h", run_id: None, cmd, text: &text, fresh_id: "new", book })
}

#[test]
fn commands_become_messages_of_the_document() {
    let book = book();
    let input = planned("run.input", json!({"input_id": "i2", "text": "y\n", "actor": "cli"}), Some(&book));
    let data = json!({"input_id": "i2", "text": "y\n", "actor": "cli"});
    assert_eq!(input, Ok(HostPlan::Input { input_id: "i2".to_owned(), data }));
    let prompt = planned("prompt", json!({"message": "go on"}), Some(&book));
    let data = json!({"input_id": "new", "text": "go on\n", "actor": "web"});
    assert_eq!(prompt, Ok(HostPlan::Input { input_id: "new".to_owned(), data }));
    let Ok(HostPlan::Call { kind, request_id, data }) =
        planned("fs.read", json!({"path": "a", "request_id": "mine", "actor": "web"}), Some(&book))
    else {
        panic!("no call");
    };
    assert_eq!((kind, &*request_id), ("rpc.fs.read", "mine"));
    assert_eq!(data, json!({"path": "a", "request_id": "mine", "actor": "web"}));
    let create = json!({"config": {"harness": "pty", "cwd": "/w", "run": {"argv": ["echo", "it's", "a b"]}}});
    let Ok(HostPlan::Call { kind, data, .. }) = planned("session.create", create, None) else {
        panic!("no call")
    };
    assert_eq!(kind, "rpc.run.start");
    let cmd = r"echo 'it'\''s' 'a b'";
    assert_eq!(data, json!({"request_id": "new", "host_id": "h", "tool": "echo", "cmd": cmd, "cwd": "/w"}));
}

#[test]
fn what_a_host_cannot_do_is_said() {
    for (cmd, params) in [
        ("fs.tree", json!({})),
        ("session.restart", json!({})),
        ("set_model", json!({"provider": "a", "model_id": "b"})),
        ("fs.read", json!({"path": "a", "encoding": "base64"})),
        ("session.create", json!({"config": {"harness": "pi"}})),
        ("run.input", json!({"text": "x"})),
        ("nonsense", json!({})),
    ] {
        assert!(planned(cmd, params, None).is_err(), "{cmd}");
    }
    let mut ended = book();
    ended.read(0, 9, &record("run.exited", json!({"exit_code": 0})).0);
    assert!(planned("run.input", json!({"input_id": "x", "text": "y"}), Some(&ended)).is_err());
    assert_eq!(planned("session.close", json!({}), Some(&ended)), Ok(HostPlan::Answer(None)));
}

#[test]
fn an_input_that_was_written_is_not_sent_again() {
    let answer = json!({"input_id": "i1", "duplicate": true});
    let again = planned("run.input", json!({"input_id": "i1", "text": "y\n"}), Some(&book()));
    assert_eq!(again, Ok(HostPlan::Answer(Some(answer))));
}

#[test]
fn hole_02_a_made_up_request_decides_nothing_and_a_real_one_its_own_tool() {
    let book = book();
    let made_up =
        json!({"request_id": "made-up", "decision": "approve_for_session", "allow_tools": ["bash"]});
    assert_eq!(
        planned("input_response", made_up, Some(&book)),
        Err(ErrorCode::QuestionNotFound.with("No pending input request with id 'made-up'"))
    );
    let real = json!({"request_id": "q", "decision": "approve_for_session", "allow_tools": ["rpc.fs.write"]});
    let Ok(HostPlan::Tell { kind, data, then, .. }) = planned("input_response", real, Some(&book)) else {
        panic!("no decision");
    };
    assert_eq!((kind, &data["allow_tools"]), ("run.permission.approve", &json!(["bash"])));
    assert!(matches!(then, SentNote::Decided { decision: Decision::ApproveForSession, .. }));
    let Ok(HostPlan::Tell { kind, .. }) =
        planned("input_response", json!({"request_id": "q", "confirmed": false}), Some(&book))
    else {
        panic!("no decision");
    };
    assert_eq!(kind, "run.permission.deny");
}
