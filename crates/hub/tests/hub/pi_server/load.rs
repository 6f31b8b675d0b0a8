//! The pi-server face with many clients at once.

use std::collections::HashMap;

use qd_hub::PiServerConfig;
use serde_json::{Value, json};

use crate::pi_server::support::{PiClient, pi_world, relaxed, state};
use crate::support::{Runner, answer, record};

const CLIENTS: usize = 8;
const COMMANDS: usize = 150;

/// A runner that does all it is asked.
async fn serve(mut runner: Runner) {
    let mut seq = 1;
    loop {
        let command = runner.command().await;
        let line = match command["cmd"].as_str().unwrap() {
            "get_state" => answer(&command, &state("s", seq).to_string()),
            "runner.sessions" => answer(&command, &json!({"sessions":[state("s", seq)]}).to_string()),
            "runner.health" => answer(
                &command,
                r#"{"breakers":[],"bash":{"state":"closed","failures":0,"sessions":0,"open_sessions":0,"total_calls":0,"total_timeouts":0,"total_rejected":0},"max_sessions":4,"agents":1}"#,
            ),
            "session.attach" => answer(&command, &crate::pi_server::support::attached("s", 1)),
            "prompt" => {
                seq += 1;
                let event = crate::pi_server::support::native("s", &json!({"type":"agent_start"}));
                format!("{}\n{event}\n{}", record("s", seq, "notify", ""), answer(&command, "null"))
            }
            _ => answer(&command, "null"),
        };
        runner.say(&line).await;
    }
}

fn command(client: usize, number: usize) -> Value {
    let id = format!("{client}-{number}");
    match number % 7 {
        0 => json!({"type":"prompt","id":id,"sessionId":"s","message":"m"}),
        1 => json!({"type":"switch_session","id":id,"sessionId":"s"}),
        2 => json!({"type":"list_sessions","id":id}),
        3 => json!({"type":"abort","id":id,"sessionId":"s","idempotencyKey":format!("{client}-{number}")}),
        4 => json!({"type":"health_check","id":id}),
        5 => {
            json!({"type":"set_auto_retry","id":id,"sessionId":"s","enabled":true,"dependsOn":[format!("{client}-{}", number - 5)]})
        }
        _ => json!({"type":"get_state","id":id,"sessionId":"s"}),
    }
}

/// Sends all commands, some at a time, and gives everything that came.
async fn drive(mut client: PiClient, number: usize) -> Vec<Value> {
    let mut frames = Vec::new();
    let (mut sent, mut answered) = (0, 0);
    while answered < COMMANDS {
        while sent < COMMANDS && sent - answered < 16 {
            client.send(command(number, sent)).await;
            sent += 1;
        }
        let frame = client.next().await;
        answered += usize::from(frame["type"] == "response");
        frames.push(frame);
    }
    frames
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_command_of_many_clients_is_told_once_and_in_order() {
    let config = PiServerConfig { backlog_bytes_max: 64 << 20, ..relaxed() };
    let (world, runner) = pi_world(config).await;
    let runner = tokio::spawn(serve(runner));
    let mut drivers = Vec::new();
    for number in 0..CLIENTS {
        let client = world.pi_client().await;
        drivers.push(tokio::spawn(drive(client, number)));
    }
    for (number, driver) in drivers.into_iter().enumerate() {
        let frames = driver.await.unwrap();
        let mut phases: HashMap<String, Vec<&str>> = HashMap::new();
        for frame in &frames {
            let kind = frame["type"].as_str().unwrap();
            let id = match kind {
                "response" => frame["id"].as_str().unwrap(),
                "event" => continue,
                _ => frame["data"]["commandId"].as_str().unwrap(),
            };
            phases.entry(id.to_owned()).or_default().push(kind);
            assert_ne!(frame["success"], false, "{frame}");
        }
        for command in 0..COMMANDS {
            let id = format!("{number}-{command}");
            assert_eq!(
                phases[&id],
                ["command_accepted", "command_started", "command_finished", "response"],
                "{id}"
            );
        }
        // What others did is told once and in order too, as far as it was told before this one left.
        for (id, kinds) in &phases {
            let all = ["command_accepted", "command_started", "command_finished", "response"];
            let is_late_comer = kinds.first() != Some(&"command_accepted");
            assert!(is_late_comer || all.starts_with(kinds), "{id}: {kinds:?}");
        }
    }
    runner.abort();
    world.stop().await;
}
