//! Records: stored by the runner, stored by the hub, acknowledged; and read back by a client that comes later.

use serde_json::json;

use super::Plan;
use crate::client::Client;
use crate::clock;
use crate::count::Counts;
use crate::error::{Outcome, failed};
use crate::hub_alone::SESSION;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "records";
const RECORDS_TARGET: f64 = 100_000.0;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let qd = Server::qd(&plan.qd)?;
    let mut client = Client::connect(&qd).await?;
    let session = client.create("pi").await?;
    let mut counts = Counts::default();
    client.prompt(Some(&session), "@@tools n=2000").await?;
    counts.until_settled(&mut client, 1).await?;
    let before = counts.records;
    let cpu = qd.cpu_seconds()?;
    let start = clock::now();
    client.prompt(Some(&session), &format!("@@tools n={}", plan.size(400_000).max(110_000))).await?;
    counts.until_settled(&mut client, 2).await?;
    let seconds = start.elapsed().as_secs_f64();
    let records = (counts.records - before) as f64;
    let cpu = (qd.cpu_seconds()? - cpu) * 1e6 / records;
    report
        .add(GROUP, "agent stdout to stored, acked and seen", records / seconds, "records/s")
        .target(Target::AtLeast(RECORDS_TARGET))
        .note(format!("tool.start and tool.end, {} gaps told", counts.resyncs));
    report.add(GROUP, "  CPU of the server", cpu, "us/record");

    for count in [5000, 100_000] {
        let after = counts.last_seq - count;
        let (seconds, found) = replay(&qd, &session, after, counts.last_seq).await?;
        if found != count {
            return failed(format!("{found} of {count} records were replayed"));
        }
        report
            .add(
                GROUP,
                &format!("replay of {count} to a client that comes"),
                found as f64 / seconds,
                "records/s",
            )
            .note(format!("{:.1} ms", seconds * 1000.0));
    }
    drop(client);
    drop(qd);

    let hub = Server::hub_alone()?;
    let mut client = Client::connect(&hub).await?;
    client.call(SESSION, "prompt", json!({"message": "@@records n=2250"})).await?;
    let count = plan.size(450_000);
    let cpu = hub.cpu_seconds()?;
    let data = client.call(SESSION, "prompt", json!({"message": format!("@@records n={count}")})).await?;
    let cpu = (hub.cpu_seconds()? - cpu) * 1e6 / count as f64;
    let rate = count as f64 / data["seconds"].as_f64().unwrap_or(f64::INFINITY);
    report
        .add(GROUP, "spool, link, hub store, ack (no agent)", rate, "records/s")
        .target(Target::AtLeast(RECORDS_TARGET));
    report.add(GROUP, "  CPU of the server", cpu, "us/record");
    Ok(())
}

/// Seconds until a new client has every record after `after`, and how many came.
async fn replay(server: &Server, session: &str, after: u64, last: u64) -> Outcome<(f64, u64)> {
    let mut client = Client::connect(server).await?;
    let mut counts = Counts::default();
    let start = clock::now();
    client.call_with(session, "session.attach", json!({"after": after}), |frame| counts.frame(frame)).await?;
    while counts.last_seq < last {
        client.read(|frame| counts.frame(frame)).await?;
    }
    Ok((start.elapsed().as_secs_f64(), counts.records))
}
