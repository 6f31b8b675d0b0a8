//! How long one delta takes when nothing is in its way.

use super::{Plan, percentile};
use crate::client::Client;
use crate::clock::{self, wall_nanoseconds};
use crate::count::{Counts, delta_text};
use crate::error::Outcome;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "latency";
const PACE_MICROSECONDS: usize = 2500;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let count = plan.size(4000);
    let raw = Server::own(&["raw-forwarder", "each", "1", "child"])?;
    let mut client = Client::connect(&raw).await?;
    let raw = paced(&mut client, None, count).await?;
    let qd = Server::qd(&plan.qd)?;
    let mut client = Client::connect(&qd).await?;
    let session = client.create("pi").await?;
    let ours = paced(&mut client, Some(&session), count).await?;
    let echo = echo(count).await?;
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        let target = if share > 0.9 { Target::RatioAtMost(2.0) } else { Target::None };
        let value = percentile(&ours, share) / 1000.0;
        report
            .add(GROUP, &format!("agent stdout to client, {name}"), value, "us")
            .raw("forwarder", percentile(&raw, share) / 1000.0)
            .target(target);
        report
            .add(GROUP, &format!("  the same, {name}"), value, "us")
            .raw("echo round trip", percentile(&echo, share) / 1000.0)
            .target(target);
    }
    Ok(())
}

/// Sorted nanoseconds from the agent's write to the client's read.
async fn paced(client: &mut Client, session: Option<&str>, count: usize) -> Outcome<Vec<u64>> {
    let mut times = Vec::new();
    let mut counts = Counts::default();
    client.prompt(session, &format!("@@pace n={count} us={PACE_MICROSECONDS}")).await?;
    while counts.settled == 0 {
        client
            .read(|frame| {
                counts.frame(frame);
                let sent = delta_text(frame).and_then(|text| std::str::from_utf8(text).ok());
                if let Some(sent) = sent.and_then(|text| text.parse::<u64>().ok()) {
                    times.push(wall_nanoseconds().saturating_sub(sent));
                }
            })
            .await?;
    }
    times.sort_unstable();
    Ok(times)
}

/// Sorted nanoseconds of calm round trips to an echo.
async fn echo(count: usize) -> Outcome<Vec<u64>> {
    let server = Server::own(&["raw-echo", "each"])?;
    let mut client = Client::connect(&server).await?;
    let mut times = Vec::new();
    for _ in 0..count {
        tokio::time::sleep(std::time::Duration::from_micros(PACE_MICROSECONDS as u64)).await;
        let start = clock::now();
        client.send(r#"{"channel":"agent","id":"1","session_id":"s","cmd":"get_state"}"#).await?;
        let mut seen = 0;
        while seen == 0 {
            client.read(|_| seen += 1).await?;
        }
        times.push(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    times.sort_unstable();
    Ok(times)
}
