//! Who did what, as the store and REST tell it.

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::access::people::{add_person, call, log_in};
use crate::support::{TOKEN, World, assert_fields, record, world_with_session};

async fn audit(world: &World, token: &str, query: &str) -> (Vec<Value>, Value) {
    let (status, _, answer) = call(world, Some(token), "GET", &format!("/api/audit?{query}"), "").await;
    assert_eq!(status, 200, "{answer}");
    (answer["entries"].as_array().unwrap().clone(), answer["next"].clone())
}

fn deeds() -> [String; 5] {
    [
        record(
            "s",
            2,
            "tool.call",
            r#","request_id":"r1","tool":"rpc.bash","actor":"web","args":{"cmd":"ls"},"user_id":"alice""#,
        ),
        record(
            "s",
            3,
            "agent.input_resolved",
            r#","request_id":"q1","outcome":"answered","user_id":"bob","decision":"approve","actor":"cli""#,
        ),
        record(
            "s",
            4,
            "tool.result",
            r#","request_id":"r1","tool":"rpc.bash","actor":"web","ok":true,"duration_ms":12,"result":{"exit_code":0},"user_id":"alice""#,
        ),
        record(
            "s",
            5,
            "run.input",
            r#","actor":"web","input_id":"i1","text_redacted":"y\n","text_sha256":"00","user_id":"alice""#,
        ),
        record("s", 6, "notify", ""),
    ]
}

#[tokio::test]
async fn what_is_done_in_sessions_is_in_the_audit_once() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    runner.say(&deeds().join("\n")).await;
    runner.stored("s", 6).await;
    // The link was cut before the ack came: all of it once more.
    runner.say(&deeds().join("\n")).await;
    runner.say(&record("s", 7, "notify", "")).await;
    runner.stored("s", 7).await;

    let (entries, next) = audit(&world, TOKEN, "session=s").await;
    let shown: Vec<(u64, &str)> = entries
        .iter()
        .map(|entry| (entry["seq"].as_u64().unwrap(), entry["kind"].as_str().unwrap()))
        .collect();
    assert_eq!(
        shown,
        [(5, "run.input"), (4, "tool.result"), (3, "permission"), (2, "tool.call")],
        "newest first"
    );
    assert_eq!(next, Value::Null);
    assert_fields(
        &entries[1],
        json!({"principal": "alice", "tool": "rpc.bash", "ok": true,
        "duration_ms": 12}),
    );
    assert_eq!((&entries[2]["ok"], &entries[2]["summary"]), (&json!(true), &json!("approve")));
    assert_eq!((&entries[0]["runner_id"], &entries[0]["request_id"]), (&json!("r1"), &json!("i1")));

    assert_eq!(audit(&world, TOKEN, "session=s&principal=bob").await.0.len(), 1);
    assert_eq!(audit(&world, TOKEN, "tool=rpc.bash&kind=tool.call").await.0.len(), 1);
    let (first, next) = audit(&world, TOKEN, "session=s&limit=3").await;
    let (rest, _) = audit(&world, TOKEN, &format!("session=s&limit=3&before={next}")).await;
    assert_eq!((first.len(), rest.len(), &rest[0]["seq"]), (3, 1, &json!(2)));
    assert_eq!(call(&world, Some(TOKEN), "GET", "/api/audit?before=x", "").await.0, 400);
    assert_eq!(world.http("/api/audit", &[]).await.0, 401);
    world.stop().await;
}

#[tokio::test]
async fn logins_and_changes_are_in_the_audit_for_those_who_manage() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    add_person(&world, "alice", "viewer").await;
    add_person(&world, "bob", "viewer").await;
    let alice = log_in(&world, "alice").await;
    log_in(&world, "bob").await;
    let wrong = json!({"username":"alice","password":"wrong password"}).to_string();
    assert_eq!(call(&world, None, "POST", "/auth/login", &wrong).await.0, 401);
    let typed_wrong = json!({"username":"hunter2 is my password!","password":"alice"}).to_string();
    assert_eq!(call(&world, None, "POST", "/auth/login", &typed_wrong).await.0, 401);
    assert_eq!(call(&world, Some(&alice), "POST", "/api/tokens", r#"{"name":"ci"}"#).await.0, 200);
    assert_eq!(call(&world, Some(TOKEN), "POST", "/api/hosts", r#"{"host_id":"h"}"#).await.0, 200);
    runner.say(&deeds().join("\n")).await;
    runner.stored("s", 6).await;

    let (all, _) = audit(&world, TOKEN, "").await;
    let count = |kind: &str| all.iter().filter(|entry| entry["kind"] == kind).count();
    assert_eq!((count("login"), count("person"), count("token"), count("host")), (4, 2, 1, 1), "{all:#?}");
    let (failed, _) = audit(&world, TOKEN, "kind=login&principal=alice").await;
    assert_eq!((&failed[0]["ok"], &failed[1]["ok"]), (&json!(false), &json!(true)));
    assert!(!format!("{all:?}").contains("hunter2"), "what is no name is not written down");
    // Others see what was done in sessions, and their own.
    let (seen, _) = audit(&world, &alice, "").await;
    assert!(seen.iter().all(|entry| entry["session_id"] == "s" || entry["principal"] == "alice"), "{seen:?}");
    assert_eq!(seen.iter().filter(|entry| entry["session_id"] == "s").count(), 4);
    world.stop().await;
}
