//! From the agent's stdout to clients.

use std::path::Path;

use futures_util::future::try_join_all;

use super::Plan;
use crate::client::Client;
use crate::clock;
use crate::count::Counts;
use crate::error::Outcome;
use crate::fake_pi::ANSWER_DELTAS;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "stream";
const MANY: usize = 100;

/// A server with clients that follow one agent. The clients come first, so that they are gone before the server ends.
pub(super) struct AttachedClients {
    clients: Vec<(Client, Counts)>,
    pub(super) server: Server,
    pub(super) session: Option<String>,
}

/// What one run gave.
struct StreamFigures {
    /// Deltas that arrived at all clients together.
    deliveries: f64,
    seconds: f64,
    cpu_seconds: f64,
    resyncs: u64,
}

impl StreamFigures {
    fn rate(&self) -> f64 {
        self.deliveries / self.seconds
    }

    fn cpu_microseconds(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.deliveries
    }
}

impl AttachedClients {
    pub(super) async fn at_qd(program: &Path, count: usize) -> Outcome<Self> {
        let server = Server::qd(program)?;
        let mut first = Client::connect(&server).await?;
        let session = first.create("pi").await?;
        let mut clients = vec![(first, Counts::default())];
        for _ in 1..count {
            let mut client = Client::connect(&server).await?;
            client.attach(&session).await?;
            clients.push((client, Counts::default()));
        }
        Ok(AttachedClients { server, session: Some(session), clients })
    }

    async fn at_forwarder(flush: &str, count: usize) -> Outcome<Self> {
        let server = Server::own(&["raw-forwarder", flush, &count.to_string(), "child"])?;
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push((Client::connect(&server).await?, Counts::default()));
        }
        Ok(AttachedClients { server, session: None, clients })
    }

    /// One turn: the first client asks, all wait for its end.
    pub(super) async fn turn(&mut self, message: &str) -> Outcome<()> {
        self.clients[0].0.prompt(self.session.as_deref(), message).await?;
        let turns = self.clients.iter_mut().map(|(client, counts)| {
            let next = counts.settled + 1;
            counts.until_settled(client, next)
        });
        try_join_all(turns).await.map(|_| ())
    }

    async fn run(&mut self, message: &str, turns: usize) -> Outcome<StreamFigures> {
        self.turn(&format!("@@deltas n={ANSWER_DELTAS}")).await?;
        let count = |clients: &[(Client, Counts)]| -> (u64, u64) {
            clients.iter().fold((0, 0), |sum, (_, counts)| (sum.0 + counts.deltas, sum.1 + counts.resyncs))
        };
        let before = count(&self.clients);
        let cpu = self.server.cpu_seconds()?;
        let start = clock::now();
        for _ in 0..turns {
            self.turn(message).await?;
        }
        let end = self.clients.iter().map(|(_, counts)| counts.last_delta).max().unwrap_or(start);
        let after = count(&self.clients);
        Ok(StreamFigures {
            deliveries: (after.0 - before.0) as f64,
            seconds: (end - start).as_secs_f64(),
            cpu_seconds: self.server.cpu_seconds()? - cpu,
            resyncs: after.1 - before.1,
        })
    }
}

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    one(plan, report).await?;
    many(plan, report).await
}

async fn one(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let count = plan.size(1_000_000);
    let message = format!("@@deltas n={count} per={ANSWER_DELTAS}");
    let each = AttachedClients::at_forwarder("each", 1).await?.run(&message, 1).await?;
    let idle = AttachedClients::at_forwarder("idle", 1).await?.run(&message, 1).await?;
    let ours = AttachedClients::at_qd(&plan.qd, 1).await?.run(&message, 1).await?;
    let missed = count as f64 - ours.deliveries;
    report
        .add(GROUP, "agent stdout to 1 client", ours.rate(), "deltas/s")
        .raw("frame by frame", each.rate())
        .target(Target::RatioAtLeast(1.0))
        .note(format!("{:.1} % not seen live, {} gaps told", 100.0 * missed / count as f64, ours.resyncs));
    report.add(GROUP, "  the same", ours.rate(), "deltas/s").raw("coalescing", idle.rate());
    report
        .add(GROUP, "  CPU of the server", ours.cpu_microseconds(), "us/delta")
        .raw("frame by frame", each.cpu_microseconds());
    report
        .add(GROUP, "  the same", ours.cpu_microseconds(), "us/delta")
        .raw("coalescing", idle.cpu_microseconds());
    let answers = plan.size(200);
    let message = format!("@@deltas n={ANSWER_DELTAS}");
    let each = AttachedClients::at_forwarder("each", 1).await?.run(&message, answers).await?;
    let ours = AttachedClients::at_qd(&plan.qd, 1).await?.run(&message, answers).await?;
    report
        .add(GROUP, "answers of 2,000 one by one, 1 client", ours.rate(), "deltas/s")
        .raw("frame by frame", each.rate())
        .note(format!("{} gaps told", ours.resyncs));
    Ok(())
}

async fn many(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let answers = plan.size(50).max(5);
    let message = format!("@@deltas n={ANSWER_DELTAS}");
    let each = AttachedClients::at_forwarder("each", MANY).await?.run(&message, answers.div_ceil(10)).await?;
    let idle = AttachedClients::at_forwarder("idle", MANY).await?.run(&message, answers).await?;
    let ours = AttachedClients::at_qd(&plan.qd, MANY).await?.run(&message, answers).await?;
    report
        .add(GROUP, "answers of 2,000 to 100 clients", ours.rate(), "deliveries/s")
        .raw("frame by frame", each.rate())
        .note(format!("{} gaps told", ours.resyncs));
    report.add(GROUP, "  the same", ours.rate(), "deliveries/s").raw("coalescing", idle.rate());
    report
        .add(GROUP, "  CPU of the server", ours.cpu_microseconds(), "us/delivery")
        .raw("coalescing", idle.cpu_microseconds())
        .target(Target::AtMost(0.3));
    let count = plan.size(100_000);
    let message = format!("@@deltas n={count} per={ANSWER_DELTAS}");
    let idle = AttachedClients::at_forwarder("idle", MANY).await?.run(&message, 1).await?;
    let ours = AttachedClients::at_qd(&plan.qd, MANY).await?.run(&message, 1).await?;
    let missed = 1.0 - ours.deliveries / (count * MANY) as f64;
    report
        .add(GROUP, "without a pause to 100 clients", ours.rate(), "deliveries/s")
        .raw("coalescing", idle.rate())
        .note(format!("{:.1} % not seen live, {} gaps told", 100.0 * missed, ours.resyncs));
    Ok(())
}
