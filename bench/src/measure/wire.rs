//! What an answer costs on the wire.

use super::Plan;
use crate::client::Client;
use crate::count::Counts;
use crate::error::Outcome;
use crate::fake_pi::{ANSWER_DELTAS, DELTA_TEXT};
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "wire";
const BYTES_PER_DELTA_MAX: f64 = 220.0;
const TEXT_FACTOR_MAX: f64 = 1.5;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let server = Server::qd(&plan.qd)?;
    let mut client = Client::connect(&server).await?;
    let session = client.create("pi").await?;
    let mut counts = Counts::default();
    let before = client.received;
    client.prompt(Some(&session), &format!("@@deltas n={ANSWER_DELTAS}")).await?;
    counts.until_settled(&mut client, 1).await?;
    let received = (client.received - before) as f64;
    let text = (ANSWER_DELTAS * DELTA_TEXT.len()) as f64;
    let most = TEXT_FACTOR_MAX * text + BYTES_PER_DELTA_MAX * ANSWER_DELTAS as f64;
    let per_delta = (received - TEXT_FACTOR_MAX * text) / ANSWER_DELTAS as f64;
    report
        .add(GROUP, "an answer of 2,000 deltas", received, "bytes")
        .target(Target::AtMost(most))
        .note(format!("text {text} bytes; {per_delta:.0} bytes a delta beside 1.5 x text"));
    Ok(())
}
