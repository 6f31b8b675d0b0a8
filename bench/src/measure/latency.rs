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

/// Turns of each side: one after the other, so that a noisy moment of the machine meets all of them.
const ROUNDS: usize = 10;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let count = plan.size(4000) / ROUNDS;
    let forwarder = Server::own(&["raw-forwarder", "each", "1", "child"])?;
    let mut forwarded = Client::connect(&forwarder).await?;
    let echo = Server::own(&["raw-echo", "each"])?;
    let mut echoed = Client::connect(&echo).await?;
    let qd = Server::qd(&plan.qd)?;
    let mut client = Client::connect(&qd).await?;
    let session = client.create("pi").await?;
    let (mut ours, mut raw, mut echo) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        raw.extend(paced(&mut forwarded, None, count).await?);
        ours.extend(paced(&mut client, Some(&session), count).await?);
        echo.extend(round_trips(&mut echoed, count).await?);
    }
    for times in [&mut ours, &mut raw, &mut echo] {
        times.sort_unstable();
    }
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

/// Nanoseconds from the agent's write to the client's read.
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
    Ok(times)
}

/// Nanoseconds of calm round trips to an echo.
async fn round_trips(client: &mut Client, count: usize) -> Outcome<Vec<u64>> {
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
    Ok(times)
}
