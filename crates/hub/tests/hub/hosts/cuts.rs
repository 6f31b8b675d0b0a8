//! Foreign hosts whose connection, or whose hub, ends at any message.

use serde_json::{Value, json};

use crate::hosts::support::{Host, check_whole, output, restart, world_with_host};

/// What a host does with its spool: sends it all after each connection, and forgets what is acked.
struct Spool {
    events: Vec<(u64, &'static str, Value)>,
    acked: u64,
}

impl Spool {
    fn short_run() -> Spool {
        let mut events = vec![(1, "run.started", json!({"tool": "t", "cwd": "/w", "command": "c"}))];
        events.extend((2..=7).map(|seq| (seq, "run.output", output(seq))));
        events.push((8, "run.exited", json!({"exit_code": 0})));
        Spool { events, acked: 0 }
    }

    /// Sends what is not acked, at most `count`, and takes acks up to a moment's silence.
    async fn send(&mut self, host: &mut Host, count: usize) {
        let acked = self.acked;
        for (seq, kind, data) in self.events.iter().filter(|(seq, ..)| *seq > acked).take(count) {
            let text = host.event_text("run-1", *seq, kind, data.clone());
            if !host.try_send(&text).await {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_connection_cut_after_each_message_loses_and_doubles_nothing() {
    for cut in 0..=8 {
        for waits_for_ack in [false, true] {
            let (world, _runner, mut host) = world_with_host().await;
            let mut spool = Spool::short_run();
            spool.send(&mut host, cut).await;
            if waits_for_ack && cut > 0 {
                host.acked("run-1", cut as u64).await;
                spool.acked = cut as u64;
            }
            // Cut without a word.
            drop(host);
            let mut host = Host::connect(&world, "h").await;
            spool.send(&mut host, 100).await;
            if spool.acked < 8 {
                host.acked("run-1", 8).await;
            }
            check_whole(&world, "run-1", 8).await;
            world.stop().await;
        }
    }
}

#[tokio::test]
async fn a_hub_that_restarts_after_each_message_loses_and_doubles_nothing() {
    let (mut world, mut runner, mut host) = world_with_host().await;
    let mut spool = Spool::short_run();
    for count in 1..=8 {
        spool.send(&mut host, 1).await;
        if count % 2 == 0 {
            host.acked("run-1", spool.acked + 1).await;
            spool.acked += 1;
        }
        (world, runner) = restart(world).await;
        host = Host::connect(&world, "h").await;
    }
    spool.send(&mut host, 100).await;
    host.acked("run-1", 8).await;
    check_whole(&world, "run-1", 8).await;
    drop(runner);
    world.stop().await;
}
