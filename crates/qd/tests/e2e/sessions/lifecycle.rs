//! A session's life: created, listed, searched, closed, restarted, deleted, and there again after `kill -9`.

use qd_testkit::mux::text_of;
use serde_json::{Value, json};

use crate::{
    answer, assert_fields, begin_endless, demo, demo_asks, demo_session, demo_with_session, on, prompt,
    restarted, session_rows,
};

#[tokio::test]
async fn everything_is_there_after_kill_9() {
    let (qd, mut mux, session) = demo_with_session().await;
    for prompt in ["/text", "/tools", "/error"] {
        mux.prompt(&session, prompt).await;
    }
    mux.ok(json!({"cmd": "set_session_name", "session_id": session, "name": "Ship"})).await;
    let before = (mux.messages(&session).await, mux.state(&session).await);
    let (_qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.messages(&session).await, before.0);
    let state = mux.state(&session).await;
    for field in ["seq", "session_version", "message_count", "title", "harness", "cwd", "model"] {
        assert_eq!(state[field], before.1[field], "{field}");
    }
    assert_eq!(state["status"], "dormant");
    assert_fields(
        &session_rows(&mut mux).await[0],
        json!({"state": "dormant", "title": "Ship", "message_count": 9}),
    );
    // The next prompt starts the agent again and the numbers go on.
    let events = mux.attach_and_prompt(&session, "/text").await;
    let first = events.iter().find_map(|event| event["seq"].as_u64()).unwrap();
    assert_eq!(Some(first), before.1["seq"].as_u64().map(|seq| seq + 1));
    let messages = mux.messages(&session).await;
    assert_eq!(messages.len(), before.0.len() + 2);
    assert_eq!(messages[..before.0.len()], before.0);
    let ids: std::collections::HashSet<String> =
        messages.iter().map(|message| message["id"].to_string()).collect();
    assert_eq!(ids.len(), messages.len());
}

#[tokio::test]
async fn a_turn_cut_off_by_kill_9_is_told_and_the_session_goes_on() {
    let (qd, mut mux, session) = demo_with_session().await;
    let asked = demo_asks(&mut mux, &session).await;
    let cursor = asked["seq"].as_u64().unwrap();
    let (_qd, mut mux) = restarted(qd).await;
    let data = mux.ok(json!({"cmd": "session.attach", "session_id": session, "after": cursor})).await;
    assert_eq!((&data["resume"], &data["pending_input"]), (&json!("ok"), &json!([])));
    let resolved = mux.wait_event("agent.input_resolved").await;
    assert_fields(&resolved, json!({"request_id": asked["request"]["request_id"], "outcome": "withdrawn"}));
    assert!(mux.wait_event("agent.error").await["error"].as_str().unwrap().contains("stopped while"));
    assert_eq!(mux.wait_event("agent.idle").await["reason"], "aborted");
    mux.refused(answer(&session, &resolved["request_id"], json!({"value": "red"}))).await;
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
}

#[tokio::test]
async fn a_session_is_closed_restarted_and_deleted() {
    let (qd, mut mux, session) = demo_with_session().await;
    mux.prompt(&session, "/text").await;
    let command = |cmd: &str| on(&session, cmd);
    mux.ok(command("session.close")).await;
    mux.wait_event("session.closed").await;
    assert_eq!(mux.state(&session).await["status"], "closed");
    let error = mux.refused(prompt(&session, "hi")).await;
    assert!(error.contains("session.restart"), "{error}");
    mux.ok(command("session.close")).await;
    assert_eq!(mux.messages(&session).await.len(), 2, "the conversation stays");
    let (qd, mut mux) = restarted(qd).await;
    assert_eq!(mux.state(&session).await["status"], "closed", "closed is closed, also after a restart");
    mux.ok(json!({"cmd": "session.attach", "session_id": session})).await;
    mux.ok(command("session.restart")).await;
    let created = mux.wait_event("session.created").await;
    assert_eq!(created["resumed"], true);
    assert_eq!(mux.prompt(&session, "/text").await.last().unwrap()["reason"], "stop");
    assert_eq!(mux.messages(&session).await.len(), 4);
    mux.ok(command("session.delete")).await;
    for cmd in ["get_state", "get_messages", "session.attach", "session.delete"] {
        assert!(mux.refused(command(cmd)).await.contains("not found"));
    }
    assert!(session_rows(&mut mux).await.is_empty());
    assert_eq!(mux.ok(json!({"cmd": "search", "query": "short"})).await["hits"], json!([]));
    let (_qd, mut mux) = restarted(qd).await;
    assert!(session_rows(&mut mux).await.is_empty());
    // The name is free again.
    let data =
        mux.ok(json!({"cmd": "session.create", "session_id": session, "config": {"harness": "demo"}})).await;
    assert_eq!((&data["session_id"], &data["messages"]), (&json!(session), &json!([])));
}

#[tokio::test]
async fn closing_and_deleting_a_working_session_ends_its_turn() {
    let (_qd, mut mux) = demo().await;
    for cmd in ["session.close", "session.restart", "session.delete"] {
        let session = demo_session(&mut mux).await;
        begin_endless(&mut mux, &session).await;
        mux.ok(on(&session, cmd)).await;
        let is_answer =
            |frame: &Value| frame["event"] == "stream.message_end" && frame["message"]["role"] == "assistant";
        let ended = mux.wait_for("the aborted answer", is_answer).await;
        assert_eq!(ended["message"]["stop_reason"], "aborted");
        assert_eq!(mux.wait_event("agent.idle").await["reason"], "aborted");
    }
}

#[tokio::test]
async fn sessions_and_runners_are_listed() {
    let (qd, mut mux) = demo().await;
    let data = mux.ok(json!({"cmd": "get_runners"})).await;
    let runner = &data["runners"][0];
    assert_eq!((&runner["runner_id"], &runner["status"]), (&json!("local"), &json!("online")));
    assert_eq!(runner["harnesses"], json!(["demo", "pty", "terminal"]), "pi is not installed here");
    let mut watcher = qd.connect().await;
    // News of the list comes to who has asked for the list.
    watcher.ok(json!({"cmd": "list_sessions"})).await;
    let cwd = qd.sandbox().work();
    let first = mux.create(json!({"harness": "demo", "cwd": cwd, "title": "One"})).await;
    let second =
        mux.ok(json!({"cmd": "session.create", "session_id": "mine", "config": {"harness": "demo"}})).await;
    assert_eq!(second["session_id"], "mine");
    let changed = |id: &str, change: &str, frame: &Value| {
        frame["type"] == "session.changed" && frame["session_id"] == id && frame["change"] == change
    };
    watcher.wait_for("the news of a session", |frame| changed(&first, "created", frame)).await;
    mux.prompt(&first, "/text").await;
    let rows = session_rows(&mut mux).await;
    assert_eq!(rows.len(), 2);
    let row = rows.iter().find(|row| row["session_id"] == first.as_str()).unwrap();
    assert_eq!((&row["title"], &row["cwd"], &row["state"]), (&json!("One"), &json!(cwd), &json!("idle")));
    assert_eq!((&row["model"], &row["message_count"]), (&json!("demo-1"), &json!(2)));
    assert_eq!(row["subscriber_count"], 1);
    assert_eq!(mux.ok(json!({"cmd": "get_runners"})).await["runners"][0]["session_count"], 2);
    mux.ok(json!({"cmd": "session.delete", "session_id": first})).await;
    watcher.wait_for("the end of a session", |frame| changed(&first, "deleted", frame)).await;
}

#[tokio::test]
async fn what_cannot_be_created_says_why_and_leaves_nothing() {
    let (_qd, mut mux, session) = demo_with_session().await;
    let create = |id: Option<&str>, config: Value| json!({"cmd": "session.create", "session_id": id, "config": config});
    let cases = [
        (create(None, json!({"harness": "opencode"})), "Unknown harness 'opencode'"),
        (create(None, json!({"harness": "demo", "cwd": "/no/such/place"})), "no directory /no/such/place"),
        (create(None, json!({"harness": "demo", "cwd": "relative"})), "absolute"),
        (create(None, json!({})), "harness"),
        (create(Some("../../etc"), json!({"harness": "demo"})), "Session ID must contain only"),
        (create(Some(&session), json!({"harness": "demo"})), "already exists"),
    ];
    for (command, expected) in cases {
        let error = mux.refused(command).await;
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(session_rows(&mut mux).await.len(), 1);
}

#[tokio::test]
async fn messages_come_in_pages_and_are_found_by_words() {
    let (_qd, mut mux, session) = demo_with_session().await;
    for word in ["anchor", "bollard", "capstan", "davit"] {
        mux.prompt(&session, &format!("/long 3 {word}")).await;
    }
    let all = mux.messages(&session).await;
    assert_eq!(all.len(), 8);
    let mut collected = Vec::new();
    let mut before = Value::Null;
    loop {
        let page = json!({"cmd": "get_messages", "session_id": session, "limit": 3, "before": before});
        let page = mux.ok(page).await;
        assert_eq!(page["total"], 8);
        let mut messages = page["messages"].as_array().unwrap().clone();
        assert!(messages.len() <= 3 && !messages.is_empty());
        messages.extend(collected);
        collected = messages;
        before = page["before"].clone();
        if before.is_null() {
            break;
        }
    }
    assert_eq!(collected, all);
    let hits = mux.ok(json!({"cmd": "search", "query": "capstan"})).await;
    let hit = &hits["hits"][0];
    assert_eq!(hits["hits"].as_array().unwrap().len(), 1);
    assert_eq!((&hit["session_id"], &hit["message_id"]), (&json!(session), &all[4]["id"]));
    assert!(hit["snippet"].as_str().unwrap().contains("[capstan]"));
    let by_role = |role: &str| json!({"cmd": "search", "query": "word2", "role": role, "limit": 2});
    assert_eq!(mux.ok(by_role("user")).await["hits"], json!([]));
    assert_eq!(mux.ok(by_role("assistant")).await["hits"].as_array().unwrap().len(), 2);
    // Words that mean something to the index must not break it.
    for query in ["\"", "AND", "a* NEAR(", "capstan OR", "-x", "(", "'; DROP TABLE messages; --"] {
        mux.ok(json!({"cmd": "search", "query": query})).await;
    }
    assert!(text_of(&all[7]).starts_with("word0"));
}
