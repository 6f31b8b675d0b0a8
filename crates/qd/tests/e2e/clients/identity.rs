//! Exactly once: idempotency keys, dependencies, session versions.

use qd_wire::ErrorCode;
use serde_json::{Value, json};

use crate::{
    assert_fields, demo, demo_session, demo_with_session, pi, prompt, restarted, said_by, session_rows, with,
};

fn keyed(session: &str, key: &str, message: &str) -> Value {
    with(prompt(session, message), json!({"idempotency_key": key}))
}

#[tokio::test]
async fn the_same_key_runs_once_and_answers_the_same_again() {
    let (qd, mut mux, session) = demo_with_session().await;
    let from = mux.frames().len();
    let first = mux.call(keyed(&session, "k1", "/text")).await;
    assert_eq!((&first["success"], first.get("replayed")), (&json!(true), None));
    mux.until_idle(&session, from).await;
    let mut other = qd.connect().await;
    let again = other.call(keyed(&session, "k1", "/text")).await;
    assert_eq!((&again["success"], &again["replayed"]), (&json!(true), &json!(true)));
    assert_eq!(again["session_version"], first["session_version"]);
    let conflict = other.refused(keyed(&session, "k1", "/thinking")).await;
    assert!(conflict.contains("Conflicting idempotency_key 'k1'"), "{conflict}");
    assert_eq!(said_by(&mut mux, "user", &session).await, ["/text"]);
    // The key belongs to the session: another one may use it too.
    let second = demo_session(&mut mux).await;
    assert!(mux.call(keyed(&second, "k1", "/text")).await.get("replayed").is_none());
}

#[tokio::test]
async fn an_outcome_survives_the_death_of_the_server() {
    let (qd, mut mux) = demo().await;
    let created = json!({"cmd": "session.create", "config": {"harness": "demo"}, "idempotency_key": "c1"});
    let session = mux.ok(created.clone()).await["session_id"].as_str().unwrap().to_owned();
    let from = mux.frames().len();
    let first = mux.call(keyed(&session, "k1", "/text")).await;
    let failed =
        json!({"cmd": "set_session_name", "session_id": session, "name": " ", "idempotency_key": "k2"});
    let error = mux.refused(failed.clone()).await;
    mux.until_idle(&session, from).await;
    let (_qd, mut mux) = restarted(qd).await;
    let again = mux.call(keyed(&session, "k1", "/text")).await;
    assert_eq!((&again["success"], &again["replayed"]), (&json!(true), &json!(true)));
    assert_eq!(again["session_version"], first["session_version"]);
    assert_eq!(mux.refused(failed).await, error);
    let again = mux.call(created).await;
    assert_fields(&again, json!({"replayed": true, "data/session_id": session}));
    assert!(mux.refused(keyed(&session, "k1", "/error")).await.contains("Conflicting"));
    assert_eq!(said_by(&mut mux, "user", &session).await, ["/text"]);
    assert_eq!(session_rows(&mut mux).await.len(), 1);
}

#[tokio::test]
async fn a_repeated_command_joins_the_one_that_runs() {
    let (qd, mut mux, _llm) = pi().await;
    let create = json!({"cmd": "session.create", "idempotency_key": "one",
        "config": {"harness": "pi", "cwd": qd.sandbox().work()}});
    let mut other = qd.connect().await;
    let (first, second) = tokio::join!(mux.call(create.clone()), other.call(create));
    assert_eq!((&first["success"], &second["success"]), (&json!(true), &json!(true)), "{first} {second}");
    assert_eq!(first["data"]["session_id"], second["data"]["session_id"]);
    let replayed = [&first, &second].iter().filter(|answer| answer["replayed"] == true).count();
    assert_eq!(replayed, 1);
    assert_eq!(session_rows(&mut mux).await.len(), 1);
    // Both are attached: each sees the events of a prompt.
    let session = first["data"]["session_id"].as_str().unwrap().to_owned();
    other.skip();
    mux.prompt(&session, "@@text").await;
    other.wait_event("agent.idle").await;
}

#[tokio::test]
async fn a_command_waits_for_those_it_depends_on() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let name = |id: &str, name: &str| json!({"id": id, "cmd": "set_session_name", "session_id": session, "name": name});
    let depending =
        |id: &str, on: &str| json!({"id": id, "cmd": "get_state", "session_id": session, "depends_on": [on]});
    let from = mux.frames().len();
    mux.send(name("a", "first")).await;
    mux.send(depending("b", "a")).await;
    let answer = mux.response(from, &json!("b")).await;
    assert_eq!(answer["data"]["title"], "first", "{answer}");
    mux.ok(with(name("b2", "second"), json!({"depends_on": ["a", "b"]}))).await;

    mux.refused(name("bad", " ")).await;
    for (id, on) in [("c", "bad"), ("d", "nobody")] {
        mux.refused_as(ErrorCode::DependencyFailed, depending(id, on)).await;
    }
    mux.refused_as(ErrorCode::InvalidRequest, depending("e", "e")).await;
    // Reads of the hub wait too.
    let list = |on: &str| json!({"id": "l", "cmd": "list_sessions", "depends_on": [on]});
    mux.refused_as(ErrorCode::DependencyFailed, list("bad")).await;
    assert_eq!(mux.ok(list("a")).await["sessions"][0]["title"], "second");
}

#[tokio::test]
async fn a_dependency_is_known_after_a_restart_and_across_sessions() {
    let (qd, mut mux, session) = demo_with_session().await;
    mux.ok(json!({"id": "a", "cmd": "set_session_name", "session_id": session, "name": "x"})).await;
    mux.refused(json!({"id": "bad", "cmd": "set_session_name", "session_id": session, "name": ""})).await;
    let (_qd, mut mux) = restarted(qd).await;
    let other = demo_session(&mut mux).await;
    let state = |on: &str| json!({"id": "s", "cmd": "get_state", "session_id": other, "depends_on": [on]});
    mux.ok(state("a")).await;
    mux.refused_as(ErrorCode::DependencyFailed, state("bad")).await;
}

#[tokio::test]
async fn a_version_guards_against_what_others_did() {
    let (qd, mut mux, session) = demo_with_session().await;
    let rename = |version: u64| json!({"cmd": "set_session_name", "session_id": session, "name": format!("v{version}"), "if_session_version": version});
    assert_eq!(mux.state(&session).await["session_version"], 0);
    let answer = mux.call(rename(0)).await;
    assert_eq!((&answer["success"], &answer["session_version"]), (&json!(true), &json!(1)));
    let error = mux.refused_as(ErrorCode::VersionMismatch, rename(0)).await;
    assert!(error.contains("expected 0, got 1"), "{error}");
    mux.ok(json!({"cmd": "get_stats", "session_id": session})).await;
    mux.refused(json!({"cmd": "set_session_name", "session_id": session, "name": ""})).await;
    assert_eq!(mux.state(&session).await["session_version"], 1, "neither reads nor failures count");
    mux.prompt(&session, "/text").await;
    assert_eq!(mux.state(&session).await["session_version"], 2);
    let (_qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.state(&session).await["session_version"], 2);
    assert_eq!(mux.call(rename(2)).await["session_version"], 3);
    let missing = json!({"cmd": "get_state", "session_id": "nobody", "if_session_version": 0});
    mux.refused_as(ErrorCode::SessionNotFound, missing).await;
}
