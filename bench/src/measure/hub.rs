//! The hub's part alone: from the link to a client.

use serde_json::json;

use super::Plan;
use crate::client::Client;
use crate::clock;
use crate::count::Counts;
use crate::error::Outcome;
use crate::hub_alone::{CREDIT_LINES, SESSION};
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "hub";

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    // A multiple of a block's lines and of the credit.
    let count = plan.size(4_500_000);
    let raw = Server::own(&["raw-forwarder", "idle", "1", "memory"])?;
    let (raw_rate, raw_cpu) = flow(&raw, count, false).await?;
    let hub = Server::hub_alone()?;
    let (rate, cpu) = flow(&hub, count, true).await?;
    report
        .add(GROUP, "link to 1 client", rate, "deltas/s")
        .raw("coalescing", raw_rate)
        .target(Target::RatioAtLeast(0.3));
    report.add(GROUP, "  CPU of the server", cpu, "us/delta").raw("coalescing", raw_cpu);
    Ok(())
}

/// Deltas per second and microseconds of the server's processor time per delta.
async fn flow(server: &Server, count: usize, is_hub: bool) -> Outcome<(f64, f64)> {
    let mut client = Client::connect(server).await?;
    if is_hub {
        client.attach(SESSION).await?;
    }
    let mut counts = Counts::default();
    for is_warm in [false, true] {
        let size = if is_warm { count } else { count / 10 };
        let goal = counts.deltas + size as u64;
        let message = format!("@@deltas n={size}");
        let start = clock::now();
        let cpu = server.cpu_seconds()?;
        if is_hub {
            client.prompt(Some(SESSION), &message).await?;
        } else {
            client.send(&message).await?;
        }
        let mut credited = counts.deltas;
        while counts.deltas < goal {
            client.read(|frame| counts.frame(frame)).await?;
            let seen = counts.deltas - credited;
            if is_hub && seen >= CREDIT_LINES as u64 {
                credited += seen;
                let credit = json!({"channel": "agent", "session_id": SESSION, "cmd": "prompt",
                    "message": format!("@@credit n={seen}")});
                client.send(&credit.to_string()).await?;
            }
        }
        if is_warm {
            let seconds = start.elapsed().as_secs_f64();
            let cpu = (server.cpu_seconds()? - cpu) * 1e6 / size as f64;
            return Ok((size as f64 / seconds, cpu));
        }
    }
    Ok((0.0, 0.0))
}
