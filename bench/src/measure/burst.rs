//! A burst to many clients, one of which stops reading.

use std::time::Duration;

use super::Plan;
use super::stream::AttachedClients;
use crate::client::Client;
use crate::count::Counts;
use crate::error::Outcome;
use crate::fake_pi::ANSWER_DELTAS;
use crate::report::{Report, Target};

const GROUP: &str = "burst";
const CLIENTS: usize = 100;
/// How long the slow one may take to learn of its gap, once it reads.
const TOLD_WITHIN: Duration = Duration::from_secs(20);
/// What "flat" allows: the bounded ring, and what the allocator keeps.
const GROWTH_MB_MAX: f64 = 8.0;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let mut attached = AttachedClients::at_qd(&plan.qd, CLIENTS).await?;
    let mut slow = Client::connect(&attached.server).await?;
    slow.attach(attached.session.as_deref().unwrap_or_default()).await?;
    let message = format!("@@deltas n={ANSWER_DELTAS}");
    for _ in 0..5 {
        attached.turn(&message).await?;
    }
    let before = attached.server.memory()?.private_bytes;
    let mut most = before;
    let turns = plan.size(100).max(20);
    for _ in 0..turns {
        attached.turn(&message).await?;
        most = most.max(attached.server.memory()?.private_bytes);
    }
    let after = attached.server.memory()?.private_bytes;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    report
        .add(GROUP, "growth, 100 clients and a slow one", megabytes(most) - megabytes(before), "MB")
        .target(Target::AtMost(GROWTH_MB_MAX))
        .note(format!(
            "{:.1} MB before, {:.1} at most, {:.1} after {} deltas",
            megabytes(before),
            megabytes(most),
            megabytes(after),
            turns * ANSWER_DELTAS
        ));
    let mut counts = Counts::default();
    let told = tokio::time::timeout(TOLD_WITHIN, async {
        while counts.resyncs == 0 {
            slow.read(|frame| counts.frame(frame)).await?;
        }
        Outcome::Ok(())
    });
    // A timeout shows as a gap that was not told.
    let _ = told.await;
    report
        .add(GROUP, "gaps the slow one is told of", counts.resyncs as f64, "")
        .target(Target::AtLeast(1.0))
        .note(format!("{} deltas came before it", counts.deltas));
    Ok(())
}
