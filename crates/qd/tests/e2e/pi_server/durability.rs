//! What survives: outcomes, keys, versions, history.

use serde_json::{Value, json};

use super::{bash, demo_with_session, on, pi, pi_with_session, prompt, rename, restarted};
use crate::{assert_fields, with};

#[tokio::test]
async fn outcomes_keys_and_versions_survive_a_kill() {
    let (qd, mut client, session) = demo_with_session().await;
    let named = |id: &str| with(rename(&session, "kept"), json!({"id": id, "idempotencyKey": "nk"}));
    let first = client.ok(named("n1")).await;
    let failed = with(rename("nobody", "x"), json!({"id": "f1"}));
    let failure = client.refused(failed.clone()).await;
    let (_qd, mut client) = restarted(qd).await;
    let again = client.call(named("n1")).await;
    assert_eq!((&again["replayed"], &again["success"]), (&json!(true), &json!(true)), "{again}");
    assert_eq!(again["sessionVersion"], first["sessionVersion"]);
    let by_key = client.call(named("n2")).await;
    assert_eq!(by_key["replayed"], true, "{by_key}");
    let refused = client.call(failed).await;
    assert_eq!((&refused["replayed"], &refused["error"]), (&json!(true), &json!(failure)));
    let state = client.ok(on(&session, "get_state")).await;
    assert_fields(&state, json!({"sessionVersion": first["sessionVersion"], "data/sessionName": "kept"}));
    let dependent = json!({"type": "get_state", "sessionId": session, "id": "d", "dependsOn": ["n1"]});
    client.ok(dependent).await;
    let other = with(rename(&session, "other"), json!({"id": "n1"}));
    assert!(client.refused(other).await.starts_with("Conflicting id 'n1'"));
    let history = client.ok(json!({"type": "get_command_history", "commandId": "n1"})).await["data"].clone();
    assert_fields(&history, json!({"entries/0/commandType": "set_session_name", "entries/0/success": true}));
    assert!(!history.to_string().contains("kept"), "history must not tell what was said: {history}");
}

#[tokio::test]
async fn a_prompt_repeated_after_a_kill_does_not_run_twice() {
    let (qd, mut client, llm, session) = pi_with_session().await;
    let command = with(prompt(&session, "@@text text=\"only once\""), json!({"id": "p1"}));
    let from = client.count();
    client.ok(command.clone()).await;
    client.settled(from, &session).await;
    let (_qd, mut client) = restarted(qd).await;
    let again = client.call(command).await;
    assert_eq!((&again["success"], &again["replayed"]), (&json!(true), &json!(true)), "{again}");
    let messages = client.ok(on(&session, "get_messages")).await["data"]["messages"].clone();
    let asked = messages.as_array().unwrap().iter().filter(|message| message["role"] == "user").count();
    assert_eq!(asked, 1);
    drop(llm);
}

#[tokio::test]
async fn a_command_cut_off_by_a_kill_is_reported_indeterminate() {
    let (qd, mut client, _llm, session) = pi_with_session().await;
    let bash = with(bash(&session, "touch begun && sleep 30"), json!({"id": "cut"}));
    client.send(bash.clone()).await;
    let begun = qd.sandbox().work().join("begun");
    qd_testkit::process::eventually("the shell has begun", || begun.exists()).await;
    let (_qd, mut client) = restarted(qd).await;
    let history = client.ok(json!({"type": "get_command_history", "commandId": "cut"})).await["data"].clone();
    assert_eq!(history["entries"][0]["state"], "indeterminate", "{history}");
    std::fs::remove_file(&begun).unwrap();
    let again = client.call(bash).await;
    assert_eq!((&again["success"], &again["indeterminate"]), (&json!(false), &json!(true)), "{again}");
    assert!(!begun.exists(), "it ran a second time");
    let recovery = client.ok(json!({"type": "get_startup_recovery"})).await["data"].clone();
    assert_fields(&recovery, json!({"enabled": true, "indeterminateCommands": 1}));
}

#[tokio::test]
async fn a_nameless_create_repeated_after_a_kill_makes_no_second_session() {
    let (qd, mut client, _llm) = pi().await;
    let create = |id: &str| json!({"type": "create_session", "cwd": qd.sandbox().work(), "id": id});
    let (done, cut) = (create("done"), create("cut"));
    let made = client.ok(done.clone()).await["data"]["sessionId"].clone();
    // The second one is killed while the agent starts.
    client.send(cut.clone()).await;
    let is_start = |frame: &Value| frame["type"] == "command_started" && frame["data"]["commandId"] == "cut";
    client.wait_for("the start", is_start).await;
    let (_qd, mut client) = restarted(qd).await;
    let again = client.ok(done).await;
    assert_eq!((&again["data"]["sessionId"], &again["replayed"]), (&made, &json!(true)), "{again}");
    // Whether the runner can say how the second one ended or not, it is not done again.
    let mut answers = Vec::new();
    for _ in 0..3 {
        let from = client.count();
        client.send(cut.clone()).await;
        let mut answer = client.response(from, &json!("cut")).await;
        assert!(answer["success"] == true || answer["indeterminate"] == true, "{answer}");
        answer.as_object_mut().unwrap().remove("replayed");
        answers.push(answer);
    }
    assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
    let list = client.ok(json!({"type": "list_sessions"})).await["data"]["sessions"].clone();
    let mut others: Vec<&Value> = list.as_array().unwrap().iter().map(|info| &info["sessionId"]).collect();
    assert!(others.contains(&&made), "{list}");
    others.retain(|session_id| **session_id != made);
    match answers[0]["success"] == true {
        true => assert_eq!(others, [&answers[0]["data"]["sessionId"]]),
        false => assert!(others.len() <= 1, "{list}"),
    }
}
