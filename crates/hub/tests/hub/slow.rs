use std::time::Duration;

use futures_util::StreamExt;
use qd_hub::Limits;
use serde_json::{Value, json};

use crate::support::{World, attach_data, record, soon, world_with_session};

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
            assert_eq!(
                (&event["resume"], &event["seq"], &event["state"]["status"]),
                (&json!("gap"), &json!(seen), &json!("idle"))
            );
            assert_eq!((&event["channel"], &event["session_id"]), (&json!("agent"), &json!("s")));
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
        loop {
            let health: Value = serde_json::from_str(&world.http("/healthz", &[]).await.2).unwrap();
            if health["connections"] == 1 {
                break;
            }
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
    let limits = Limits { runner_silence_max: Duration::from_millis(50), ..Limits::default() };
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
