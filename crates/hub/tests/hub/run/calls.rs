//! `/ws/app`: what an app asks for, and who hears the answer.

use qd_hub::Limits;
use serde_json::json;

use crate::access::people::call;
use crate::run::support::place;
use crate::support::{Client, Runner, TOKEN, World, assert_fields};

async fn world_with_run() -> (World, Runner, Client) {
    let (world, runner) = World::with_run(Limits::default()).await;
    let app = world.app().await;
    (world, runner, app)
}

#[tokio::test]
async fn commands_reach_the_runner_in_our_words_and_are_silent_when_they_succeed() {
    let (world, mut runner, mut app) = world_with_run().await;
    for (kind, data, cmd, expected) in [
        (
            "run.send_input",
            json!({"input_id":"i-1","text":"y\n"}),
            "run.input",
            json!({"input_id":"i-1","text":"y\n","actor":"web"}),
        ),
        ("run.send_stdin", json!({"text":"y","actor":"cli"}), "run.stdin", json!({"text":"y","actor":"cli"})),
        ("run.resize", json!({"cols":100,"rows":40}), "run.resize", json!({"cols":100,"rows":40})),
        ("run.stop", json!({"signal":"kill"}), "run.stop", json!({"signal":"kill","actor":"web"})),
        (
            "run.permission.approve",
            json!({"request_id":"q-1"}),
            "input_response",
            json!({"request_id":"q-1","decision":"approve","confirmed":true,"actor":"web"}),
        ),
    ] {
        app.say(kind, Some("run-1"), data).await;
        let command = runner.command().await;
        assert_fields(
            &command,
            json!({"cmd": cmd, "session_id": "run-1", "user_id": "owner",
            "user_role": "owner"}),
        );
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&command[name], value, "{kind} {name}");
        }
        runner.answer(&command, "{}").await;
    }
    assert!(app.heard_until_now().await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_command_that_fails_is_told_to_its_sender_alone() {
    let (world, mut runner, mut app) = world_with_run().await;
    let mut other = world.app().await;
    app.say("run.send_input", Some("run-1"), json!({"input_id":"i-1","text":"y\n"})).await;
    runner.refuse_next("The run has exited").await;
    let error = app.heard().await;
    assert_fields(
        &error,
        json!({"type": "error", "run_id": "run-1",
        "data": {"error":"The run has exited","code":"failed","about":"run.send_input","input_id":"i-1"}}),
    );
    // A question that is no yes or no is left unanswered when it is denied.
    app.say("run.permission.deny", Some("run-1"), json!({"request_id":"q-1"})).await;
    let command = runner.command().await;
    assert_eq!((&command["decision"], command.get("cancelled")), (&json!("deny"), None));
    runner.refuse(&command, "This question needs 'value'").await;
    assert_eq!(runner.answer_next("{}").await["cancelled"], true);
    app.say("run.permission.deny", Some("run-1"), json!({"request_id":"made-up"})).await;
    for _ in 0..2 {
        runner.refuse_next("No pending input request with id 'made-up'").await;
    }
    let error = app.heard().await;
    assert_fields(
        &error,
        json!({
        "data": {"error":"No pending input request with id 'made-up'","code":"question_not_found","about":"run.permission.deny","request_id":"made-up"}}),
    );
    assert!(other.heard_until_now().await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn hole_9_an_answer_goes_to_its_asker_only() {
    let (world, mut runner, mut app) = world_with_run().await;
    let mut other = world.app().await;
    app.say("rpc.fs.read", Some("run-1"), json!({"request_id":"q-1","path":"secret.txt"})).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["path"]), (&json!("fs.read"), &json!("secret.txt")));
    runner.answer(&command, r#"{"path":"secret.txt","content":"very secret","truncated":false}"#).await;
    let answer = app.heard().await;
    assert_eq!(
        (&answer["type"], &answer["host_id"], &answer["run_id"], answer.get("seq")),
        (&json!("rpc.response"), &json!("r1"), &json!("run-1"), None)
    );
    assert_fields(
        &answer,
        json!({"data": {"request_id":"q-1","ok":true,"rpc_type":"rpc.fs.read",
            "result":{"path":"secret.txt","content":"very secret","truncated":false}}}),
    );
    assert!(other.heard_until_now().await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn calls_are_answered_in_the_shape_of_the_document() {
    let (world, mut runner, mut app) = world_with_run().await;
    // A gated call: the asker's role does not matter, somebody is asked.
    app.say("rpc.bash", Some("run-1"), json!({"request_id":"q-1","cmd":"ls x"})).await;
    let bash = runner.command().await;
    assert_fields(&bash, json!({"cmd": "host.bash", "command": "ls x", "ask": true}));
    // While it waits, others are served.
    app.say("rpc.runs.list", Some("run-1"), json!({"request_id":"q-2"})).await;
    let list = runner.answer_next(r#"{"sessions":[]}"#).await;
    assert_eq!((&list["cmd"], &list["session_id"]), (&json!("runner.sessions"), &json!("_system")));
    assert_eq!(app.heard().await["data"]["result"], json!({"runs":[]}));
    runner
        .answer(
            &bash,
            r#"{"stdout":"out","stderr":"no such file\n","exit_code":2,"timed_out":false,"cancelled":false,"truncated":false,"stdout_bytes":3,"stderr_bytes":13,"duration_ms":4}"#,
        )
        .await;
    let answer = app.heard().await;
    assert_fields(
        &answer,
        json!({"data.ok": false, "data.error": "bash exited with code 2: no such file",
        "data.result.stdout": "out"}),
    );
    app.say("rpc.fs.write", Some("run-1"), json!({"request_id":"q-3","path":"a","content":"x"})).await;
    let write = runner.command().await;
    assert_eq!(write["ask"], true);
    runner.refuse(&write, "denied").await;
    assert_eq!(
        app.heard().await["data"],
        json!({"request_id":"q-3","ok":false,"rpc_type":"rpc.fs.write","error":"denied","code":"denied"})
    );
    app.say("rpc.host.info", None, json!({"request_id":"q-4","host_id":"r1"})).await;
    let info = runner.answer_next(r#"{"host_id":"r1","tools":[]}"#).await;
    assert_eq!((&info["cmd"], &info["session_id"]), (&json!("host.info"), &json!("_system")));
    assert_eq!(app.heard().await["data"]["result"]["host_id"], "r1");
    world.stop().await;
}

#[tokio::test]
async fn a_run_is_started_on_the_named_host_and_heard_of() {
    let (world, mut runner, mut app) = world_with_run().await;
    let data = json!({"request_id":"q-1","host_id":"r1","tool":"codex","cmd":"codex --full","cwd":"/w"});
    app.say("rpc.run.start", None, data).await;
    let command = runner.command().await;
    assert_fields(
        &command,
        json!({"cmd": "session.create",
        "config": {"harness":"pty","cwd":"/w","run":{"tool":"codex","cmd":"codex --full"}}}),
    );
    runner.start_run("run-2").await;
    let attach = r#""resume":"gap","seq":2,"state":{"status":"working"},"pending_input":[]"#;
    runner
        .say(&format!(
            r#"{{"type":"response","id":{},"session_id":"run-2","runner_id":"r1","ts":2,"cmd":"session.create","success":true,"data":{{"session_id":"run-2",{attach}}}}}"#,
            command["id"]
        ))
        .await;
    assert_eq!(place(&app.heard().await), ("run.started".to_owned(), "run-2".to_owned(), 2));
    let answer = app.heard_of("rpc.response").await;
    assert_eq!((&answer["run_id"], &answer["data"]["result"]), (&json!("run-2"), &json!({"run_id":"run-2"})));
    world.stop().await;
}

#[tokio::test]
async fn a_service_is_taken_back_when_its_asker_goes_and_a_gated_one_is_not() {
    let (world, mut runner, mut app) = world_with_run().await;
    app.say("rpc.fs.write", Some("run-1"), json!({"request_id":"q-1","path":"a","content":"x"})).await;
    let write = runner.command().await;
    app.say("rpc.fs.search", Some("run-1"), json!({"request_id":"q-2","q":"x"})).await;
    let search = runner.command().await;
    drop(app);
    assert_fields(&runner.command().await, json!({"cmd": "_cancel", "target": search["id"]}));
    runner.answer(&search, "{}").await;
    // Nothing else is taken back: what comes next is what another app asks.
    let mut other = world.app().await;
    other.say("run.stop", Some("run-1"), json!({})).await;
    assert_eq!(runner.command().await["cmd"], "run.stop");
    runner.answer(&write, "{}").await;
    world.stop().await;
}

#[tokio::test]
async fn who_may_only_see_may_not_type_approve_or_start() {
    let (world, mut runner, _app) = world_with_run().await;
    let token = &*world.new_token(TOKEN, json!({"name":"viewer","scopes":["view"]})).await;
    let mut viewer = world.app_as(token).await;
    for (kind, data) in [
        ("run.send_input", json!({"input_id":"i","text":"x"})),
        ("run.stop", json!({})),
        ("run.permission.approve", json!({"request_id":"q"})),
        ("rpc.bash", json!({"request_id":"q","cmd":"ls"})),
        ("rpc.fs.write", json!({"request_id":"q","path":"a","content":"x"})),
        ("rpc.run.start", json!({"request_id":"q","host_id":"r1","tool":"codex"})),
        ("rpc.host.logs.tail", json!({"request_id":"q","host_id":"r1"})),
    ] {
        let refused = viewer.say_and_hear(kind, Some("run-1"), data).await;
        assert_eq!(refused["data"]["code"], "permission_denied", "{kind}: {refused}");
    }
    viewer.say("rpc.fs.list", Some("run-1"), json!({"request_id":"q"})).await;
    assert_eq!(runner.command().await["cmd"], "fs.list");
    let input = r#"{"input_id":"i","text":"x"}"#;
    assert_eq!(call(&world, Some(token), "POST", "/runs/run-1/input", input).await.0, 403);
    world.stop().await;
}

#[tokio::test]
async fn a_connection_has_a_bound_of_calls_and_goes_on_after_it() {
    let (world, mut runner) = World::with_run(Limits { in_flight_max: 4, ..Limits::default() }).await;
    let mut app = world.app().await;
    let mut commands = Vec::new();
    for number in 0..5 {
        app.say("rpc.git.status", Some("run-1"), json!({"request_id":format!("q-{number}")})).await;
        if number < 4 {
            commands.push(runner.command().await);
        }
    }
    assert_fields(&app.heard().await, json!({"data.request_id": "q-4", "data.code": "too_many_in_flight"}));
    for command in &commands {
        runner.answer(command, r#"{"stdout":"","truncated":false,"files":[]}"#).await;
        assert_eq!(app.heard().await["data"]["ok"], true);
    }
    app.say("rpc.git.status", Some("run-1"), json!({"request_id":"q-5"})).await;
    runner.command().await;
    world.stop().await;
}
