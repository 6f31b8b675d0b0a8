//! Commands and their answers.

use std::time::Instant;

use futures_util::future::try_join_all;
use memchr::memmem::find;

use super::{Plan, percentile};
use crate::client::{Client, put_frame};
use crate::clock;
use crate::error::Outcome;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "commands";

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    for (connections, depth) in [(1, 1), (1, 32), (16, 4)] {
        let load = Load { connections, depth, count: plan.size(if depth == 1 { 20_000 } else { 200_000 }) };
        let each = load.run(&Server::own(&["raw-echo", "each"])?, "s").await?;
        let idle = load.run(&Server::own(&["raw-echo", "idle"])?, "s").await?;
        for harness in ["demo", "pi"] {
            let qd = Server::qd(&plan.qd)?;
            let session = Client::connect(&qd).await?.create(harness).await?;
            let ours = load.run(&qd, &session).await?;
            let name = format!("get_state of {harness}, {connections} x {depth} in flight");
            let target = if depth > 1 { Target::RatioAtLeast(0.3) } else { Target::None };
            report.add(GROUP, &name, ours.rate, "commands/s").raw("echo", each.rate).target(target);
            report.add(GROUP, "  p50", ours.p50, "us").raw("echo", each.p50);
            report.add(GROUP, "  p99", ours.p99, "us").raw("echo", each.p99);
            report.add(GROUP, "  CPU of the server", ours.cpu, "us/command").raw("echo", each.cpu);
            if depth > 1 {
                report.add(GROUP, "  against", ours.rate, "commands/s").raw("coalescing echo", idle.rate);
            }
        }
    }
    Ok(())
}

/// How commands are sent.
struct Load {
    connections: usize,
    /// Commands under way on each connection.
    depth: usize,
    /// Commands in all.
    count: usize,
}

struct RoundTrips {
    rate: f64,
    p50: f64,
    p99: f64,
    cpu: f64,
}

impl Load {
    async fn run(&self, server: &Server, session: &str) -> Outcome<RoundTrips> {
        let mut clients = Vec::new();
        for _ in 0..self.connections {
            let mut client = Client::connect(server).await?;
            pump(&mut client, session, self.depth * 20, self.depth).await?;
            clients.push(client);
        }
        let cpu = server.cpu_seconds()?;
        let start = clock::now();
        let share = self.count / self.connections;
        let pumps = clients.iter_mut().map(|client| pump(client, session, share, self.depth));
        let mut times: Vec<u64> = try_join_all(pumps).await?.concat();
        let seconds = start.elapsed().as_secs_f64();
        let cpu = server.cpu_seconds()? - cpu;
        times.sort_unstable();
        Ok(RoundTrips {
            rate: times.len() as f64 / seconds,
            p50: percentile(&times, 0.5) / 1000.0,
            p99: percentile(&times, 0.99) / 1000.0,
            cpu: cpu * 1e6 / times.len() as f64,
        })
    }
}

/// Keeps `depth` commands under way until `count` are answered; gives the nanoseconds of each.
async fn pump(client: &mut Client, session: &str, count: usize, depth: usize) -> Outcome<Vec<u64>> {
    let mut sent: Vec<Instant> = Vec::with_capacity(count);
    let mut times = Vec::with_capacity(count);
    let mut frames = Vec::new();
    while times.len() < count {
        frames.clear();
        let now = clock::now();
        while sent.len() < count && sent.len() - times.len() < depth {
            let id = sent.len();
            let text =
                format!(r#"{{"channel":"agent","id":"{id}","session_id":"{session}","cmd":"get_state"}}"#);
            put_frame(&mut frames, 1, text.as_bytes());
            sent.push(now);
        }
        if !frames.is_empty() {
            client.send_frames(&frames).await?;
        }
        client
            .read(|frame| {
                if let Some(start) = answered(frame).and_then(|id| sent.get(id)) {
                    times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
                }
            })
            .await?;
    }
    Ok(times)
}

/// The number of the command this frame answers.
fn answered(frame: &[u8]) -> Option<usize> {
    let head = &frame[..frame.len().min(80)];
    let rest = &head[find(head, b"\"id\":\"")? + 6..];
    std::str::from_utf8(&rest[..memchr::memchr(b'"', rest)?]).ok()?.parse().ok()
}
