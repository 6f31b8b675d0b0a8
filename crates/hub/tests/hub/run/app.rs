//! `/ws/app`: what an app hears.

use qd_hub::Limits;
use serde_json::{Value, json};

use crate::run::support::{gate, output, place};
use crate::support::{UPGRADE, World, assert_fields, created, message_end, record};

#[tokio::test]
async fn an_app_hears_everything_of_all_runs_from_the_moment_it_connects() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    runner.output("run-1", 3, "hello\n").await;
    assert_eq!(
        app.heard().await,
        json!({"type":"run.output","ts":"1970-01-01T00:00:00.001Z","host_id":"r1","run_id":"run-1","seq":3,
            "data":{"stream":"stdout","text":"hello\n"}})
    );
    // A run that starts now appears by itself.
    runner.start_run("run-2").await;
    assert_eq!(place(&app.heard().await), ("run.started".to_owned(), "run-2".to_owned(), 2));
    assert_eq!(place(&app.heard().await).0, "run.ready");
    runner.say(&gate("run-2", 3, "q-1")).await;
    let asked = app.heard().await;
    assert_eq!(place(&asked), ("run.permission_requested".to_owned(), "run-2".to_owned(), 3));
    assert_eq!((&asked["data"]["op_tool"], &asked["data"]["op_args"]["cmd"]), (&json!("bash"), &json!("ls")));
    runner
        .record(
            "run-2",
            4,
            "agent.input_resolved",
            r#","request_id":"q-1","outcome":"answered","decision":"approve""#,
        )
        .await;
    assert_eq!(app.heard().await["data"]["decision"], "approve");
    runner.record("run-2", 5, "run.exited", r#","exit_code":0"#).await;
    assert_eq!(place(&app.heard().await).0, "run.exited");
    world.stop().await;
}

#[tokio::test]
async fn sessions_of_other_agents_are_runs_too() {
    let (world, runner) = World::start().await;
    let mut app = world.app().await;
    runner.say(&created("s")).await;
    let started = app.heard().await;
    assert_eq!((&started["type"], &started["data"]["tool"]), (&json!("run.started"), &json!("demo")));
    assert_eq!(app.heard().await["type"], "run.ready");
    runner.say(&message_end("s", 2, 0)).await;
    assert_eq!(app.heard().await["data"]["text_redacted"], "word0 hello\n");
    runner.record("s", 3, "agent.idle", "").await;
    assert_eq!(app.heard().await["data"], json!({"reason":"prompt"}));
    runner.record("s", 4, "session.closed", "").await;
    assert_eq!(app.heard().await["type"], "run.exited");
    world.stop().await;
}

#[tokio::test]
async fn apps_share_what_they_hear() {
    let (world, runner) = World::with_run(Limits::default()).await;
    let (mut one, mut two) = (world.app().await, world.app().await);
    for seq in 3..200 {
        runner.output("run-1", seq, &format!("line {seq}\n")).await;
    }
    for seq in 3..200 {
        let (left, right) = (one.heard().await, two.heard().await);
        assert_eq!(left, right);
        assert_eq!(left["seq"], seq);
    }
    drop(one);
    runner.output("run-1", 200, "more").await;
    assert_eq!(two.heard().await["seq"], 200);
    world.stop().await;
}

/// Heartbeats, live events and news of runners are not in the document, and nobody's phone rings for them.
#[tokio::test]
async fn hole_23_heartbeats_and_live_events_are_not_passed_on() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    runner.say(r#"{"type":"runner.heartbeat","runner_id":"r1","uptime_s":1,"sessions":[]}"#).await;
    runner
        .say(r#"{"type":"event","session_id":"run-1","runner_id":"r1","ts":1,"event":"session.heartbeat","process":{"alive":true}}"#)
        .await;
    app.say("host.heartbeat", None, json!({})).await;
    runner.output("run-1", 3, "x").await;
    runner.stored("run-1", 3).await;
    let heard = app.heard_until_now().await;
    assert_eq!(
        heard.iter().map(place).collect::<Vec<_>>(),
        [("run.output".to_owned(), "run-1".to_owned(), 3)]
    );
    // A client of the canonical protocol hears it, so it was there.
    world.stop().await;
}

#[tokio::test]
async fn a_subscription_narrows_output_and_tools_and_the_past_comes_when_asked_for() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    runner.start_run("run-2").await;
    for seq in 3..6 {
        runner.output("run-1", seq, &seq.to_string()).await;
    }
    runner.stored("run-1", 5).await;
    let mut app = world.app().await;
    assert_eq!(place(&app.say_and_hear("run.subscribe", Some("run-1"), json!({"since_seq":3})).await).2, 4);
    assert_eq!(place(&app.heard().await).2, 5);
    let call = r#","request_id":"c","tool":"rpc.fs.read","actor":"web","args":{}"#;
    runner.output("run-2", 3, "not for it").await;
    runner.record("run-2", 4, "tool.call", call).await;
    runner.record("run-2", 5, "run.awaiting_input", r#","reason":"prompt""#).await;
    runner.record("run-1", 6, "tool.call", call).await;
    assert_eq!(place(&app.heard().await), ("run.awaiting_input".to_owned(), "run-2".to_owned(), 5));
    assert_eq!(place(&app.heard().await), ("tool.call".to_owned(), "run-1".to_owned(), 6));
    // Only the other one from now on, without its output.
    app.say("run.subscribe", None, json!({"run_id":"run-2","replace":true,"include_output":false})).await;
    assert!(app.heard_until_now().await.is_empty());
    runner.output("run-1", 7, "not for it").await;
    runner.output("run-2", 6, "not for it").await;
    runner.record("run-2", 7, "tool.call", call).await;
    assert_eq!(place(&app.heard().await), ("tool.call".to_owned(), "run-2".to_owned(), 7));
    app.say("run.unsubscribe", None, json!({})).await;
    assert!(app.heard_until_now().await.is_empty());
    runner.record("run-2", 8, "tool.call", call).await;
    runner.record("run-2", 9, "run.exited", r#","exit_code":0"#).await;
    assert_eq!(place(&app.heard().await), ("run.exited".to_owned(), "run-2".to_owned(), 9));
    world.stop().await;
}

#[tokio::test]
async fn the_past_and_the_present_join_without_a_seam() {
    let (world, runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    let script = tokio::spawn(async move {
        for seq in 3..2000 {
            runner.output("run-1", seq, &"x".repeat(200)).await;
        }
        runner
    });
    let mut last = 0;
    while last < 500 {
        last = place(&app.heard().await).2;
    }
    app.say("run.subscribe", Some("run-1"), json!({"since_seq":0})).await;
    // What was on its way comes first, then all of it from the beginning.
    let mut expected = last + 1;
    let mut has_started = false;
    while !has_started || expected < 2000 {
        let message = app.heard().await;
        match message["type"].as_str().unwrap() {
            "run.started" => (has_started, expected) = (true, 3),
            "run.output" => {
                assert_eq!(message["seq"], expected, "after the start: {has_started}");
                expected += 1;
            }
            _ => {}
        }
    }
    let runner = script.await.unwrap();
    drop(runner);
    world.stop().await;
}

/// The document fixes these words; the code is ours.
#[track_caller]
fn assert_refused(heard: &Value, error: &str, code: &str) {
    assert_eq!((&heard["data"]["error"], &heard["data"]["code"]), (&json!(error), &json!(code)), "{heard}");
}

#[tokio::test]
async fn hole_22_an_unknown_run_a_host_that_is_away_and_a_malformed_message_are_told() {
    let (world, runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    app.send_text("{").await;
    let error = app.heard().await;
    assert_fields(&error, json!({"type": "error", "data.code": "invalid_request"}));
    let error = app.say_and_hear("run.send_input", Some("nobody"), json!({"input_id":"i","text":"x"})).await;
    assert_fields(
        &error,
        json!({"type": "error", "run_id": "nobody",
        "data": {"error":"unknown run_id","code":"session_not_found","about":"run.send_input","input_id":"i"}}),
    );
    app.say("run.subscribe", Some("nobody"), json!({})).await;
    assert_refused(&app.heard().await, "unknown run_id", "session_not_found");
    assert_fields(
        &app.say_and_hear("rpc.fs.read", Some("nobody"), json!({"request_id":"q","path":"a"})).await,
        json!({"type": "rpc.response",
        "data": {"request_id":"q","ok":false,"rpc_type":"rpc.fs.read","error":"unknown run_id","code":"session_not_found"}}),
    );
    // A host without a run has a name of its own; the system's is no run's.
    app.say("rpc.bash", Some("_system"), json!({"request_id":"q","cmd":"ls"})).await;
    assert_refused(&app.heard().await, "unknown run_id", "session_not_found");
    app.say("rpc.host.info", None, json!({"request_id":"q","host_id":"nobody"})).await;
    assert_refused(&app.heard().await, "unknown host_id", "runner_not_found");
    drop(runner);
    loop {
        let error = app.say_and_hear("run.stop", Some("run-1"), json!({})).await;
        assert_eq!(error["type"], "error", "{error}");
        if error["data"]["code"] == "runner_offline" {
            break;
        }
    }
    app.say("rpc.bash", Some("run-1"), json!({"request_id":"q","cmd":"ls"})).await;
    assert_refused(&app.heard().await, "host offline", "runner_offline");
    app.say("rpc.host.info", None, json!({"request_id":"q","host_id":"r1"})).await;
    assert_refused(&app.heard().await, "host offline", "runner_offline");
    // The connection is as good as before.
    assert!(app.heard_until_now().await.is_empty());
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_run_is_gone_and_its_name_may_be_another_ones() {
    let (world, mut runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    let mut client = world.client().await;
    client.command("d", "run-1", "session.delete", json!({})).await;
    runner.answer_next("{}").await;
    assert_eq!(client.next().await["id"], "d");
    app.say("run.stop", Some("run-1"), json!({})).await;
    assert_refused(&app.heard().await, "unknown run_id", "session_not_found");
    runner.start_run("run-1").await;
    runner.say(&format!("{}\n{}", output("run-1", 3, "a"), output("run-1", 4, "b"))).await;
    let heard: Vec<(String, String, u64)> =
        [app.heard().await, app.heard().await, app.heard().await, app.heard().await]
            .iter()
            .map(place)
            .collect();
    assert_eq!(heard.iter().map(|place| place.2).collect::<Vec<_>>(), [2, 0, 3, 4]);
    world.stop().await;
}

#[tokio::test]
async fn only_who_may_see_is_let_in_and_who_is_revoked_is_closed() {
    let (world, _runner) = World::with_run(Limits::default()).await;
    let (status, _, body) = world.http("/ws/app", &UPGRADE).await;
    assert_eq!((status, body.as_str()), (401, "missing token"));
    let (status, _, body) = world.http("/ws/app?token=wrong", &UPGRADE).await;
    assert_eq!((status, body.as_str()), (401, "invalid token"));
    let mut app = world.app_as(&world.token_of("phone").await).await;
    assert!(app.heard_until_now().await.is_empty());
    assert_eq!(world.api("DELETE", "/api/tokens/phone").await.0, 200);
    assert_eq!(app.closed().await, 1008);
    world.stop().await;
}

#[tokio::test]
async fn the_end_of_the_hub_closes_apps() {
    let (world, runner) = World::with_run(Limits::default()).await;
    let mut app = world.app().await;
    runner.say(&record("run-1", 3, "run.exited", r#","exit_code":0"#)).await;
    assert_eq!(app.heard().await["type"], "run.exited");
    let closed = tokio::spawn(async move { app.closed().await });
    world.stop().await;
    assert_eq!(closed.await.unwrap(), 1001);
}
