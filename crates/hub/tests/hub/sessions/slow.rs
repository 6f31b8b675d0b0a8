use std::time::Duration;

use futures_util::StreamExt;
use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{
    Client, Runner, World, assert_fields, attach_data, created, record, soon, world_with_session,
};

/// Bytes of this process that are in memory.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_is_told_of_its_gap_and_misses_no_record() {
    let (world, mut runner) = world_with_session(Limits::default()).await;
    let mut quick = world.client().await;
    quick.attach(&mut runner, "s", Some(1), 1).await;
    let mut slow = world.client().await;
    slow.attach(&mut runner, "s", Some(1), 1).await;

    let filler = "x".repeat(1000);
    let live = format!(
        r#"{{"type":"event","session_id":"s","runner_id":"r1","ts":1,"event":"stream.text_delta","message_id":"m","delta":"{filler}","content_index":0}}"#
    );
    let block = vec![live; 60].join("\n");
    let before = resident_bytes();
    let mut last = 1;
    // 120 MB of deltas, far more than sockets and ring hold, and a record now and then.
    for round in 0..2000 {
        runner.say(&block).await;
        for _ in 0..60 {
            assert_eq!(quick.next().await["event"], "stream.text_delta");
        }
        if round % 20 == 0 {
            last += 1;
            runner.say(&record("s", last, "notify", "")).await;
            assert_eq!(quick.next().await["seq"], last);
        }
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "memory grew by {grown} bytes");

    // The runner answers the hub's own attach; the slow one then has all records.
    let script = tokio::spawn(async move {
        loop {
            let command = runner.command().await;
            assert_eq!((&command["cmd"], command.get("client_command_id")), (&json!("session.attach"), None));
            runner.answer(&command, &attach_data(last, "ok")).await;
        }
    });
    let (mut seen, mut resyncs) = (1, 0);
    while seen < last {
        let event = slow.next().await;
        if event["event"] == "session.resync" {
            resyncs += 1;
            assert_fields(
                &event,
                json!({"resume": "gap", "seq": seen, "state.status": "idle",
                "replay_until": last, "channel": "agent", "session_id": "s"}),
            );
        } else if let Some(seq) = event["seq"].as_u64() {
            assert_eq!(seq, seen + 1, "a record is missing or comes twice");
            seen = seq;
        }
    }
    assert_eq!(resyncs, 1);
    script.abort();
    world.stop().await;
}

#[tokio::test]
async fn silent_clients_are_pinged_and_dead_ones_dropped() {
    let limits = Limits { ping_after: Duration::from_millis(100), ..Limits::default() };
    let (world, _runner) = world_with_session(limits).await;
    let mut alive = world.client().await;
    let dead = world.client().await;
    let mut pings = 0;
    // Reading answers pings; the other one is never read.
    soon("pings", async {
        while pings < 6 {
            let message = alive.socket.next().await.unwrap().unwrap();
            pings += usize::from(message.is_ping());
        }
    })
    .await;
    soon("the dead one to go", async {
        while world.connections().await != 1 {
            // Keeps the living one alive meanwhile.
            alive.socket.next().await.unwrap().unwrap();
        }
    })
    .await;
    drop(dead);
    world.stop().await;
}

#[tokio::test]
async fn a_silent_runner_is_shown_as_unhealthy() {
    // Longer than the time in which changes of a runner are told together.
    let limits = Limits { runner_silence_max: Duration::from_millis(300), ..Limits::default() };
    let (world, runner) = World::start_with(limits).await;
    let mut client = world.client().await;
    for status in ["unhealthy", "online", "unhealthy"] {
        loop {
            let told: Value = serde_json::from_str(&client.next_text().await).unwrap();
            if told["type"] == "runner.changed" && told["status"] == status {
                break;
            }
        }
        runner.say(r#"{"type":"runner.heartbeat","runner_id":"r1","uptime_s":1,"sessions":[]}"#).await;
    }
    world.stop().await;
}

/// Pipelines reads with great answers and takes none of them yet.
async fn with_great_answers(limits: Limits, count: usize) -> (World, Runner, Client) {
    let (world, mut runner) = world_with_session(limits).await;
    let mut client = world.client().await;
    // Who has asked for the list is told of every session that comes.
    assert_eq!(client.call("l", "_system", "list_sessions", json!({})).await["id"], "l");
    let mut commands = Vec::new();
    for number in 0..count {
        client.command(&number.to_string(), "s", "get_state", json!({})).await;
        commands.push(runner.command().await);
    }
    let data = format!("\"{}\"", "x".repeat(1 << 20));
    for command in &commands {
        runner.answer(command, &data).await;
    }
    (world, runner, client)
}

impl World {
    pub(crate) async fn connections(&self) -> u64 {
        let health: Value = serde_json::from_str(&self.http("/healthz", &[]).await.2).unwrap();
        health["connections"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn a_client_that_asks_for_much_at_once_gets_it_all() {
    let limits = Limits { held_bytes_max: 8 << 20, ..Limits::default() };
    let (world, _runner, mut client) = with_great_answers(limits, 24).await;
    for number in 0..24 {
        assert_eq!(client.next().await["id"], number.to_string());
    }
    assert_eq!(world.connections().await, 1);
    world.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_closed_when_too_much_waits_for_it() {
    let stall_max = Duration::from_millis(200);
    let limits = Limits { held_bytes_max: 8 << 20, stall_max, ..Limits::default() };
    let (world, runner, client) = with_great_answers(limits, 24).await;
    soon("the close", async {
        for number in 0.. {
            if world.connections().await == 0 {
                break;
            }
            // Something more for everyone, until the hub has had enough of it.
            runner.say(&created(&format!("t{number}"))).await;
        }
    })
    .await;
    drop(client);
    world.stop().await;
}

#[tokio::test]
async fn attaches_are_in_flight_until_their_snapshot_is_sent() {
    let limits = Limits { in_flight_max: 8, ..Limits::default() };
    let (world, mut runner) = world_with_session(limits).await;
    let filler = "x".repeat(900_000);
    let message = format!(
        r#","message":{{"id":"m","idx":0,"role":"user","parts":[{{"type":"text","id":"p","text":"{filler}"}}],"created_at":1}}"#
    );
    runner.say(&record("s", 2, "stream.message_end", &message)).await;
    while runner.line_of("ack").await["seq"] != 2 {}
    let mut client = world.client().await;
    // Nobody reads: after what socket and buffers take, snapshots stay undone and their commands in flight.
    let mut sent = 0;
    while sent < 200 {
        client.command("a", "s", "session.attach", json!({})).await;
        let next = tokio::time::timeout(Duration::from_millis(500), runner.command()).await;
        let Ok(command) = next else { break };
        runner.answer(&command, &attach_data(2, "ok")).await;
        sent += 1;
    }
    assert!(sent < 60, "{sent} attaches of a client that does not read went to the runner");
    let listed = world.api("GET", "/api/sessions").await.1.to_string();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert!(listed["sessions"][0]["subscriber_count"].as_u64().unwrap() <= 9, "{listed}");
    world.stop().await;
}
