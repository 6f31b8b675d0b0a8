use serde_json::{Value, json};

use super::*;
use crate::command::ask::tests::{Runner, World};

fn record(seq: u64, rest: &str) -> String {
    format!(r#"{{"type":"event","session_id":"t","runner_id":"r","ts":1,"seq":{seq},{rest}}}"#)
}

/// A hub with a terminal that has ended.
async fn ended() -> (World, Runner) {
    let world = World::start(None);
    let runner = world.runner("r").await;
    let created = record(1, r#""event":"session.created","resumed":false,"harness":"terminal""#);
    let exited = record(2, r#""event":"run.exited","exit_code":0"#);
    runner.say(&format!("{created}\n{exited}")).await;
    while !world.hub.store.session("t").await.unwrap().is_some_and(|row| row.closed) {
        tokio::task::yield_now().await;
    }
    (world, runner)
}

async fn answer_state(runner: &mut Runner, rest: &str) {
    let asked = runner.next().await;
    assert_eq!(asked["cmd"], "get_state", "its runner is asked before anything is deleted");
    runner.say(&runner.answer(&asked, rest)).await;
}

/// Something of the hub's own that comes after all it had to say.
async fn next_after(world: &World, runner: &mut Runner) -> Value {
    let barrier = Command::new(CommandName::RunnerHealth).at("r");
    ask(&world.hub, &CommandSender::hub(), barrier, |_, _| {});
    runner.next().await
}

#[tokio::test]
async fn a_terminal_that_is_over_is_deleted_as_its_runner_has_it() {
    let (world, mut runner) = ended().await;
    forget(&world.hub, "t").await;
    answer_state(&mut runner, r#""success":true,"data":{"status":"closed","session_version":7}"#).await;
    let delete = runner.next().await;
    assert_eq!((&delete["cmd"], &delete["if_session_version"]), (&json!("session.delete"), &json!(7)));
    runner.say(&runner.answer(&delete, r#""success":true"#)).await;
    while world.hub.store.session("t").await.unwrap().is_some() {
        tokio::task::yield_now().await;
    }
    world.hub.store.close().await;
}

#[tokio::test]
async fn a_terminal_that_was_started_again_is_not_deleted() {
    let (world, mut runner) = ended().await;
    forget(&world.hub, "t").await;
    // The hub has not read yet that it lives again.
    answer_state(&mut runner, r#""success":true,"data":{"status":"starting","session_version":8}"#).await;
    // One more round trip, after which the answer has been read.
    forget(&world.hub, "t").await;
    answer_state(&mut runner, r#""success":false,"error":"scripted""#).await;
    forget(&world.hub, "t").await;
    assert_eq!(next_after(&world, &mut runner).await["cmd"], "get_state");
    assert_eq!(runner.next().await["cmd"], "runner.health");
    assert!(world.hub.store.session("t").await.unwrap().is_some());
    world.hub.store.close().await;
}

#[tokio::test]
async fn what_the_runner_does_not_have_is_deleted_here() {
    let (world, mut runner) = ended().await;
    forget(&world.hub, "t").await;
    answer_state(&mut runner, r#""success":false,"error":"Session 't' not found""#).await;
    assert_eq!(runner.next().await["cmd"], "session.delete");
    world.hub.store.close().await;
}
