//! A create that only asks whether it would be one.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod runner_support;

use runner_support::RunnerFixture;
use serde_json::{Value, json};

fn check(session_id: &str, config: Value) -> Value {
    json!({"cmd": "session.create", "session_id": session_id, "check_only": true, "config": config})
}

#[tokio::test]
async fn what_could_be_created_is_told_and_nothing_is() {
    let mut bench = RunnerFixture::start(|config| config.max_sessions = 1).await;
    bench.ok(check("s", json!({"harness": "demo"}))).await;
    bench.ok(check("s", json!({"harness": "pi", "cwd": "/"}))).await;
    assert!(bench.lines.iter().all(|line| line["event"] != "session.created"), "{:?}", bench.lines);
    for (config, error) in [
        (json!({"harness": "moon"}), "Unknown harness 'moon'"),
        (json!({"harness": "demo", "cwd": "/no/such/place"}), "CWD must point to an existing directory"),
        (json!({"harness": "pi", "continue_session": "/etc/passwd.jsonl"}), "sessionPath must be under"),
        (json!({"harness": 7}), "Invalid 'session.create'"),
    ] {
        let refused = bench.call(check("s", config)).await;
        assert_eq!(refused["success"], false);
        assert!(refused["error"].as_str().unwrap().starts_with(error), "{refused}");
    }
    // A closed session keeps its name and its history; one that runs takes the only place.
    bench.create("demo").await;
    let refused = bench.call(check("t", json!({"harness": "demo"}))).await;
    assert!(
        refused["error"].as_str().unwrap().starts_with("Session limit reached (1 sessions)"),
        "{refused}"
    );
    bench.ok(json!({"cmd": "session.close", "session_id": "s"})).await;
    bench.ok(check("s", json!({"harness": "demo"}))).await;
    assert_eq!(bench.state().await["status"], "closed");
}
