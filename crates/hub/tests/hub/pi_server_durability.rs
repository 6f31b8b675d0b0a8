//! The pi-server face: what outlives the process.

use serde_json::json;

use crate::pi_server_support::{answer_version, pi_world, relaxed, restart, start, state};
use crate::support::{World, created, soon};

#[tokio::test]
async fn outcomes_are_replayed_after_a_restart_and_what_was_cut_off_is_taken_up_again() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let done = json!({"type":"set_session_name","id":"done","sessionId":"s","name":"n","idempotencyKey":"k"});
    let cut = json!({"type":"prompt","id":"cut","sessionId":"s","message":"m"});
    let read = json!({"type":"get_state","id":"read","sessionId":"s"});
    client.send(done.clone()).await;
    let command = runner.command().await;
    answer_version(&runner, &command, "null", 1).await;
    client.response().await;
    client.send(read.clone()).await;
    let command = runner.command().await;
    answer_version(&runner, &command, &state("s", 1).to_string(), 1).await;
    client.response().await;
    client.send(cut.clone()).await;
    let command = runner.command().await;
    let uid = command["idempotency_key"].clone();
    // The process dies in the middle of it: nothing that happens later is stored.
    let World { store, directory, server, .. } = world;
    store.close().await;
    server.abort();
    drop((runner, client));
    let (world, mut runner) = start(directory, relaxed()).await;

    let mut client = world.pi_client().await;
    let recovery = client.call(json!({"type":"get_startup_recovery"})).await["data"].clone();
    assert_eq!(recovery["indeterminateCommands"], 1, "{recovery}");
    let history = client.call(json!({"type":"get_command_history"})).await["data"].clone();
    let states: Vec<_> = history["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["commandId"].as_str().unwrap(), entry["state"].as_str().unwrap()))
        .collect();
    assert!(
        states.contains(&("cut", "indeterminate")) && states.contains(&("done", "finished")),
        "{history}"
    );
    let response = client.call(done).await;
    assert_eq!(
        (&response["success"], &response["replayed"], &response["sessionVersion"]),
        (&json!(true), &json!(true), &json!(1))
    );
    // The runner knows whether it did it: it is asked under the same name.
    client.send(cut).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["idempotency_key"]), (&json!("prompt"), &uid));
    answer_version(&runner, &command, "null", 2).await;
    let response = client.response().await;
    assert_eq!((&response["success"], &response["sessionVersion"]), (&json!(true), &json!(2)), "{response}");
    world.stop().await;
}

#[tokio::test]
async fn reads_are_stored_behind_and_replayed_after_a_clean_end() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let read = json!({"type":"get_state","id":"read","sessionId":"s"});
    client.send(read.clone()).await;
    let command = runner.command().await;
    answer_version(&runner, &command, &state("s", 6).to_string(), 6).await;
    client.response().await;
    drop(client);
    let (world, runner) = restart(world, relaxed()).await;
    runner.say(&created("s")).await;
    let mut client = world.pi_client().await;
    let response = soon("a replay", client.call(read)).await;
    assert_eq!((&response["replayed"], &response["sessionVersion"]), (&json!(true), &json!(6)));
    assert_eq!(response["data"]["sessionId"], "s");
    world.stop().await;
}
