//! Answers: to what a screen still asks, as one line of text, and by people who may give them.

use crate::support::merged;
use crate::support::runner_fixture::{RunnerFixture, on};
use crate::support::runs::{exited, kill_and_stop, output, records, running_script, until_output};
use serde_json::{Value, json};

/// Asks; when there is a file `go`, forgets its question and is never quiet again.
const MOVES_ON: &str = "stty -echo; printf 'Do you want to continue? [y/N] '; until [ -e go ]; do sleep 0.02; done; \
                        printf '\\nmoved on'; while :; do printf .; sleep 0.05; done";

async fn asked(runner: &mut RunnerFixture) -> Value {
    runner.event(0, "agent.input_needed").await["request"]["request_id"].clone()
}

fn answer(request_id: &Value, fields: Value) -> Value {
    on("input_response", merged(json!({ "request_id": request_id }), fields))
}

fn go(runner: &RunnerFixture) {
    std::fs::write(runner.config.default_cwd.clone().unwrap().join("go"), "").unwrap();
}

async fn ended(runner: &mut RunnerFixture, request_id: &Value) -> Value {
    let is_end = |line: &Value| line["event"] == "agent.input_resolved" && line["request_id"] == *request_id;
    runner.find(0, "the end of the question", is_end).await
}

#[tokio::test]
async fn an_answer_is_not_typed_when_the_screen_has_moved_on() {
    let mut runner = running_script(MOVES_ON).await;
    let request_id = asked(&mut runner).await;
    go(&runner);
    until_output(&mut runner, "moved on").await;
    let refused = runner.call(answer(&request_id, json!({ "confirmed": true }))).await;
    assert_eq!(refused["code"], "question_not_found", "{refused}");
    assert_eq!(ended(&mut runner, &request_id).await["outcome"], "withdrawn");
    assert!(records(&runner, "s").values().all(|record| record["event"] != "run.input"));
    kill_and_stop(&mut runner).await;
}

#[tokio::test]
async fn a_question_goes_away_also_while_the_program_is_never_quiet() {
    let mut runner = running_script(MOVES_ON).await;
    let request_id = asked(&mut runner).await;
    go(&runner);
    assert_eq!(ended(&mut runner, &request_id).await["outcome"], "withdrawn");
    kill_and_stop(&mut runner).await;
}

#[tokio::test]
async fn an_answer_is_typed_when_the_same_question_was_drawn_again() {
    let mut runner = running_script(
        "printf 'Do you want to continue? [y/N] '; until [ -e go ]; do sleep 0.02; done; \
                printf '\\rDo you want to continue? [y/N] '; read x; echo \"said $x\"",
    )
    .await;
    let request_id = asked(&mut runner).await;
    go(&runner);
    until_output(&mut runner, "\r").await;
    runner.ok(answer(&request_id, json!({ "confirmed": true }))).await;
    exited(&mut runner, "s").await;
    assert!(output(&runner, "s").contains("said y"), "{}", output(&runner, "s"));
    runner.stop().await;
}

#[tokio::test]
async fn an_answer_to_a_screen_has_no_keys_in_it() {
    let mut runner = running_script("stty -echo; printf 'Password: '; read x; echo \"got $x\"; read y").await;
    let request_id = asked(&mut runner).await;
    for value in ["one\rtwo", "one\n", "\u{1b}[A", "a\u{7f}", "\u{3}", "\u{9b}A"] {
        let refused = runner.call(answer(&request_id, json!({ "value": value }))).await;
        let error = refused["error"].as_str().unwrap_or_default();
        assert!(error.contains("control characters"), "{value:?}: {refused}");
    }
    runner.ok(answer(&request_id, json!({ "value": "only this" }))).await;
    until_output(&mut runner, "got ").await;
    let resolved = ended(&mut runner, &request_id).await;
    assert_eq!(resolved.get("answer"), None, "a password is in no record: {resolved}");
    kill_and_stop(&mut runner).await;
}

/// Sends a command of somebody else than the fixture's own person.
async fn call_as(runner: &mut RunnerFixture, user_id: &str, role: &str, command: Value) -> Value {
    let id = format!("{user_id}-{}", runner.lines.len());
    let more = json!({ "type": "command", "id": id, "user_id": user_id, "user_role": role });
    runner.say(merged(command, more)).await;
    runner.response(&id).await
}

#[tokio::test]
async fn who_asked_at_the_gate_does_not_approve_it() {
    let mut runner = RunnerFixture::with_session("demo").await;
    let write = |name: &str, role: &str, ask: bool| {
        json!({ "cmd": "fs.write", "session_id": "s", "path": name, "content": "1", "request_id": name,
                "user_role": role, "ask": ask })
    };
    for name in ["other", "own", "denied"] {
        runner.send(write(name, "operator", false)).await;
        runner.find(0, "the question", |line| line["request"]["request_id"] == name).await;
    }
    let decide = |name: &str, decision: &str| answer(&json!(name), json!({ "decision": decision }));
    for decision in ["approve", "approve_for_session"] {
        let refused = call_as(&mut runner, "anna", "operator", decide("own", decision)).await;
        let words = "you requested this yourself, so another person has to approve it";
        assert_eq!(refused["error"], words, "{refused}");
        let refused = call_as(&mut runner, "bert", "viewer", decide("own", decision)).await;
        assert_eq!(refused["code"], "permission_denied", "{refused}");
    }
    let confirmed = answer(&json!("own"), json!({ "confirmed": true }));
    assert_eq!(runner.call(confirmed).await["success"], false, "nor by another word, nor without a role");
    // A foreign server speaks for many people; a person of its name does not.
    let id = "from-the-server";
    let from_server =
        json!({ "type": "command", "id": id, "user_id": "run-server", "user_role": "operator" });
    runner.say(merged(write(id, "operator", false), from_server)).await;
    runner.find(0, "the question", |line| line["request"]["request_id"] == id).await;
    let refused = call_as(&mut runner, "run-server", "operator", decide(id, "approve")).await;
    assert_eq!(refused["success"], false, "{refused}");
    let approval = merged(decide(id, "approve"), json!({ "connection_id": "run-server" }));
    let approved = call_as(&mut runner, "run-server", "operator", approval).await;
    assert_eq!(approved["success"], true, "{approved}");
    let denied = call_as(&mut runner, "anna", "operator", decide("denied", "deny")).await;
    assert_eq!(denied["success"], true, "{denied}");
    let approved = call_as(&mut runner, "bert", "operator", decide("other", "approve")).await;
    assert_eq!(approved["success"], true, "{approved}");
    // Who may skip the gate may also approve what is asked in their own name.
    let approved = call_as(&mut runner, "anna", "owner", decide("own", "approve")).await;
    assert_eq!(approved["success"], true, "{approved}");
    runner.stop().await;
}
