//! Who did what, as the store and REST tell it.

use std::time::Duration;

use qd_hub::Limits;
use qd_wire::command_table::{COMMANDS, CommandClass, CommandSpec, Service};
use serde_json::{Value, json};

use crate::access::people::{add_person, call, log_in};
use crate::support::{TOKEN, World, assert_fields, record, soon, world_with_session};

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

/// Whether the audit has a row of this command from the hub. Of the other changes in a session a record tells.
fn is_noted(spec: &CommandSpec, in_session: bool) -> bool {
    match spec.class {
        CommandClass::Stop => true,
        CommandClass::Change | CommandClass::Execute => !in_session,
        _ => spec.mutating,
    }
}

/// Every command of the table: one row of those that change something, under the name of who asked, whatever is said in
/// the frame; of the others none.
#[tokio::test]
async fn each_command_that_changes_something_is_in_the_audit_once() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    add_person(&world, "olga", "owner").await;
    let olga = log_in(&world, "olga").await;
    tokio::spawn(async move {
        loop {
            runner.refuse_next("scripted").await;
        }
    });
    let mut client = world.client_as(&olga).await;
    let mut expected = Vec::new();
    for (spec, in_session) in COMMANDS.iter().flat_map(|spec| [(spec, true), (spec, false)]) {
        let is_service = spec.service.is_some_and(|service| service != Service::Host);
        if !in_session && !is_service {
            continue;
        }
        let mut frame = json!({"channel":"agent","id":"c","runner_id":"r1","cmd":spec.name,"user_id":"owner",
            "config":{"harness":"demo"},"query":"x"});
        if in_session {
            frame["session_id"] = json!("s");
        }
        client.send(&frame).await;
        client.until(|answer| answer["id"] == "c").await;
        if is_noted(spec, in_session) {
            expected.push(spec.name);
        }
    }
    assert!(expected.len() > 30, "{expected:?}");
    // It only asks.
    let check = json!({"config":{"harness":"demo"},"check_only":true});
    client.call("check", "new", "session.create", check).await;
    expected.sort_unstable();
    let rows = async || audit(&world, TOKEN, "kind=command&limit=500").await.0;
    soon("a row of each", async {
        while rows().await.len() < expected.len() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let rows = rows().await;
    let mut noted: Vec<&str> = rows.iter().map(|row| row["tool"].as_str().unwrap()).collect();
    noted.sort_unstable();
    assert_eq!(noted, expected);
    for row in &rows {
        assert_fields(row, json!({"principal": "olga", "runner_id": "r1", "ok": false}));
    }
    let (all, _) = audit(&world, TOKEN, "limit=500").await;
    let others: Vec<&Value> = all.iter().filter(|row| row["kind"] != "command").collect();
    assert!(others.iter().all(|row| row["kind"] == "person" || row["kind"] == "login"), "{others:?}");
    world.stop().await;
}

/// What is done to machines and to one's own login.
#[tokio::test]
async fn machines_and_sign_outs_are_in_the_audit() {
    let (world, _runner) = World::start().await;
    add_person(&world, "olga", "owner").await;
    let olga = &*log_in(&world, "olga").await;
    let (status, _, invite) = call(&world, Some(olga), "POST", "/api/runners/invites", "").await;
    assert_eq!(status, 200, "{invite}");
    let join = json!({"runner_id":"desk","code":invite["code"],"key_hash":"ab".repeat(32),"hostname":"h","os":"linux",
        "version":"1"});
    let (status, _, joined) = call(&world, None, "POST", "/api/runners/join", &join.to_string()).await;
    assert_eq!(status, 200, "{joined}");
    assert_eq!(call(&world, Some(olga), "DELETE", "/api/runners/desk", "").await.0, 200);
    let (rows, _) = audit(&world, TOKEN, "kind=runner").await;
    let told: Vec<(&Value, &str)> =
        rows.iter().map(|row| (&row["principal"], row["summary"].as_str().unwrap())).collect();
    let by = json!("olga");
    assert_eq!(told, [(&by, "revoked desk"), (&Value::Null, "desk joined"), (&by, "made an invite code")]);
    call(&world, Some(olga), "POST", "/logout", "").await;
    let (rows, _) = audit(&world, TOKEN, "kind=login&principal=olga").await;
    assert_eq!(rows[0]["summary"], "signed out", "{rows:?}");
    world.stop().await;
}
