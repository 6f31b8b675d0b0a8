//! A create that only asks whether it would be one.

use crate::support::runner_fixture::RunnerFixture;
use serde_json::{Value, json};

fn check(session_id: &str, config: Value) -> Value {
    json!({"cmd": "session.create", "session_id": session_id, "check_only": true, "config": config})
}

#[tokio::test]
async fn what_could_be_created_is_told_and_nothing_is() {
    let mut runner = RunnerFixture::start(|config| config.max_sessions = 1).await;
    runner.ok(check("s", json!({"harness": "demo"}))).await;
    runner.ok(check("s", json!({"harness": "pi", "cwd": "/"}))).await;
    assert!(runner.lines.iter().all(|line| line["event"] != "session.created"), "{:?}", runner.lines);
    for (config, code) in [
        (json!({"harness": "moon"}), "harness_not_found"),
        (json!({"harness": "demo", "cwd": "/no/such/place"}), "not_found"),
        (json!({"harness": "pi", "continue_session": "/etc/passwd.jsonl"}), "invalid_request"),
        (json!({"harness": 7}), "invalid_request"),
    ] {
        let refused = runner.call(check("s", config)).await;
        assert_eq!((&refused["success"], &refused["code"]), (&json!(false), &json!(code)), "{refused}");
    }
    // A closed session keeps its name and its history; one that runs takes the only place.
    runner.create("demo").await;
    let refused = runner.call(check("t", json!({"harness": "demo"}))).await;
    assert_eq!(refused["code"], "limit_reached", "{refused}");
    runner.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    runner.ok(check("s", json!({"harness": "demo"}))).await;
    assert_eq!(runner.state().await["status"], "closed");
}
