//! The pi-server face: what outlives the process.

use serde_json::{Value, json};

use crate::pi_server::support::{pi_world, relaxed, restart, start, state};
use crate::support::{World, assert_fields, created, soon};

#[tokio::test]
async fn outcomes_are_replayed_after_a_restart_and_what_was_cut_off_is_taken_up_again() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let done = json!({"type":"set_session_name","id":"done","sessionId":"s","name":"n","idempotencyKey":"k"});
    let cut = json!({"type":"prompt","id":"cut","sessionId":"s","message":"m"});
    let read = json!({"type":"get_state","id":"read","sessionId":"s"});
    client.send(done.clone()).await;
    runner.answer_next_at("null", 1).await;
    client.response().await;
    client.send(read.clone()).await;
    runner.answer_next_at(&state("s", 1).to_string(), 1).await;
    client.response().await;
    client.send(cut.clone()).await;
    let command = runner.command().await;
    let uid = command["idempotency_key"].clone();
    // The process dies in the middle of it: nothing that happens later is stored.
    let directory = die(world).await;
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
    assert_fields(&response, json!({"success": true, "replayed": true, "sessionVersion": 1}));
    // The runner knows whether it did it: it is asked under the same name.
    client.send(cut).await;
    let command = runner.command().await;
    assert_eq!((&command["cmd"], &command["idempotency_key"]), (&json!("prompt"), &uid));
    runner.answer_at(&command, "null", 2).await;
    assert_fields(&client.response().await, json!({"success": true, "sessionVersion": 2}));
    world.stop().await;
}

#[tokio::test]
async fn reads_are_stored_behind_and_replayed_after_a_clean_end() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let read = json!({"type":"get_state","id":"read","sessionId":"s"});
    client.send(read.clone()).await;
    runner.answer_next_at(&state("s", 6).to_string(), 6).await;
    client.response().await;
    drop(client);
    let (world, runner) = restart(world, relaxed()).await;
    runner.say(&created("s")).await;
    let mut client = world.pi_client().await;
    let response = soon("a replay", client.call(read)).await;
    assert_fields(&response, json!({"replayed": true, "sessionVersion": 6, "data.sessionId": "s"}));
    world.stop().await;
}

/// A hub that dies in the middle of everything: nothing that happens later is stored.
async fn die(world: World) -> tempfile::TempDir {
    let World { store, directory, server, .. } = world;
    store.close().await;
    server.abort();
    directory
}

#[tokio::test]
async fn a_create_without_a_name_that_was_cut_off_is_taken_up_with_the_name_it_had() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let create = json!({"type":"create_session","id":"c","harness":"demo"});
    client.send(create.clone()).await;
    let first = runner.command().await;
    let directory = die(world).await;
    drop((runner, client));
    let (world, mut runner) = start(directory, relaxed()).await;
    let mut client = world.pi_client().await;
    client.send(create).await;
    let again = runner.command().await;
    let asked = |command: &Value| {
        [&command["cmd"], &command["session_id"], &command["idempotency_key"]].map(|field| field.clone())
    };
    assert_eq!(asked(&again), asked(&first));
    let name = first["session_id"].as_str().unwrap();
    let data =
        crate::support::attach_data(1, "ok").replacen('{', &format!("{{\"session_id\":\"{name}\","), 1);
    runner.say(&format!("{}\n{}", created(name), crate::support::answer(&again, &data))).await;
    runner.answer_next(&state(name, 0).to_string()).await;
    assert_eq!(client.response().await["data"]["sessionId"], name);
    assert_eq!(client.expect("session_created").await["data"]["sessionId"], name);
    world.stop().await;
}

#[tokio::test]
async fn what_cannot_be_stored_is_not_done_and_may_be_sent_again() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    world.store.close().await;
    for _ in 0..2 {
        let response = client.call(json!({"type":"prompt","id":"p","sessionId":"s","message":"m"})).await;
        assert_eq!((&response["success"], response.get("replayed")), (&json!(false), None));
        assert_eq!(response["code"], "store_unavailable", "{response}");
    }
    // Aborts need no store.
    client.send(json!({"type":"abort","id":"a","sessionId":"s"})).await;
    assert_eq!(runner.answer_next_at("null", 1).await["cmd"], "abort");
    assert_eq!(client.response().await["success"], true);
    world.stop().await;
}

#[tokio::test]
async fn a_command_whose_runner_went_away_is_asked_for_again_when_it_is_back() {
    let (world, _local) = pi_world(relaxed()).await;
    let (mut far, _) = world.come("far", &[]).await;
    far.create("f").await;
    let mut client = world.pi_client().await;
    let prompt = json!({"type":"prompt","id":"p","sessionId":"f","message":"m"});
    client.send(prompt.clone()).await;
    let first = far.command().await;
    drop(far);
    let response = client.response().await;
    assert_eq!((&response["success"], &response["indeterminate"]), (&json!(false), &json!(true)));
    let (mut far, _) = world.come("far", &[("f", 1)]).await;
    world.is_shown("far", "online").await;
    client.send(prompt).await;
    let again = far.command().await;
    assert_eq!((&again["cmd"], &again["idempotency_key"]), (&json!("prompt"), &first["idempotency_key"]));
    far.answer_at(&again, "null", 3).await;
    assert_fields(&client.response().await, json!({"success": true, "sessionVersion": 3}));
    world.stop().await;
}

#[tokio::test]
async fn who_gets_the_name_of_a_revoked_token_inherits_nothing() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client_of(&world.token_of("ci").await).await;
    let named = json!({"type":"set_session_name","id":"n","sessionId":"s","name":"x"});
    client.send(named.clone()).await;
    runner.answer_next_at("null", 1).await;
    assert_eq!(client.response().await["success"], true);
    client.send(json!({"type":"prompt","id":"p","sessionId":"s","message":"m"})).await;
    let under_way = runner.command().await;
    assert_eq!(world.api("DELETE", "/api/tokens/ci").await.0, 200);
    // What is under way then leaves nothing behind.
    runner.answer_at(&under_way, "null", 2).await;
    let mut client = world.pi_client_of(&world.token_of("ci").await).await;
    assert_fields(&client.call(json!({"type":"get_command_history"})).await["data"], json!({"entries": []}));
    client.send(named).await;
    assert_eq!(runner.answer_next_at("null", 3).await["cmd"], "set_session_name");
    let response = client.response().await;
    assert_eq!((&response["success"], response.get("replayed")), (&json!(true), None));
    assert_eq!(world.store.submissions(10).await.unwrap().len(), 1);
    world.stop().await;
}
