//! The pi-server face: the order of commands sent in one go, and runners that do not answer.

use std::time::Duration;

use qd_hub::PiServerConfig;
use serde_json::json;

use crate::pi_server::support::{pi_world, relaxed, state};
use crate::support::{assert_fields, soon};

#[tokio::test]
async fn commands_sent_in_one_go_come_to_the_runner_in_their_order() {
    let (world, mut runner) = pi_world(PiServerConfig { pending_max: 1000, ..relaxed() }).await;
    let mut client = world.pi_client().await;
    for number in 0..50 {
        let id = format!("f{number}");
        client.send(json!({"type":"follow_up","id":id,"sessionId":"s","message":id})).await;
        // This one needs no row in the journal, and comes after the one that does all the same.
        if number % 5 == 0 {
            client.send(json!({"type":"abort","id":format!("a{number}"),"sessionId":"s"})).await;
        }
    }
    for number in 0..50 {
        let command = runner.command().await;
        assert_fields(&command, json!({"cmd": "follow_up", "message": format!("f{number}")}));
        runner.answer_at(&command, "null", 1).await;
        if number % 5 == 0 {
            let command = runner.command().await;
            assert_eq!(command["cmd"], "abort", "after f{number}");
            assert!(command.get("idempotency_key").is_none(), "{command}");
            runner.answer_at(&command, "null", 1).await;
        }
    }
    for _ in 0..60 {
        assert_eq!(client.response().await["success"], true);
    }
    // A prompt and an abort, many times: never the abort first.
    for number in 0..30 {
        client.send(json!({"type":"prompt","id":format!("p{number}"),"sessionId":"s","message":"m"})).await;
        client.send(json!({"type":"abort","sessionId":"s"})).await;
        for cmd in ["prompt", "abort"] {
            assert_eq!(runner.answer_next_at("null", 1).await["cmd"], cmd);
        }
        for _ in 0..2 {
            assert_eq!(client.response().await["success"], true);
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn a_runner_that_is_silent_keeps_no_answer_back() {
    let (world, mut runner) =
        pi_world(PiServerConfig { read_timeout: Duration::from_millis(3000), ..relaxed() }).await;
    let mut client = world.pi_client().await;
    for (command, asked) in [
        ("health_check", "runner.health"),
        ("list_sessions", "runner.sessions"),
        ("get_metrics", "runner.health"),
    ] {
        client.send(json!({ "type": command })).await;
        assert_eq!(runner.command().await["cmd"], asked);
        let response = soon("an answer", client.response()).await;
        assert_eq!(response["success"], true, "{response}");
        match command {
            "health_check" => {
                let data = &response["data"];
                assert_fields(data, json!({"healthy": false, "issues": ["Runner r1 does not answer"]}));
            }
            "list_sessions" => assert_eq!(response["data"]["sessions"][0]["sessionId"], "s"),
            _ => assert_eq!(response["data"]["stores"]["extensionUI"]["maxPendingRequests"], 256),
        }
    }
    world.stop().await;
}

#[tokio::test]
async fn great_answers_come_whole_between_others() {
    let (world, mut runner) = pi_world(relaxed()).await;
    let mut client = world.pi_client().await;
    let text = "word ".repeat(100_000);
    for number in 0..3 {
        client.send(json!({"type":"get_messages","id":format!("m{number}"),"sessionId":"s"})).await;
        client.send(json!({"type":"get_state","id":format!("g{number}"),"sessionId":"s"})).await;
    }
    for _ in 0..3 {
        let command = runner.command().await;
        let data = json!({"native":{"messages":[{"role":"user","content":text}]}});
        runner.answer_at(&command, &data.to_string(), 1).await;
        runner.answer_next_at(&state("s", 1).to_string(), 1).await;
    }
    for number in 0..3 {
        let response = client.response().await;
        assert_fields(&response, json!({"id": format!("m{number}"), "data.messages.0.content": text}));
        assert_eq!(client.response().await["id"], format!("g{number}"));
    }
    // So great a read is not stored.
    let mut rows = Vec::new();
    while rows.len() < 3 {
        rows = world.store.submissions(10).await.unwrap();
    }
    assert!(rows.iter().all(|row| row.command == "get_state"), "{rows:?}");
    // A condition cannot be checked against the hub's copies.
    let conditional = json!({"type":"get_messages","id":"v","sessionId":"s","ifSessionVersion":7});
    drop(runner);
    let response = loop {
        let response = client.call(conditional.clone()).await;
        if response["code"] != "indeterminate" && response["code"] != "link_lost" {
            break response;
        }
    };
    assert_eq!(response["success"], false);
    assert!(!response["error"].as_str().unwrap().contains("wait:true"), "{response}");
    world.stop().await;
}
