//! Whether an event costs more when there are a thousand sessions.

use futures_util::future::try_join_all;

use super::GROUP;
use crate::client::Client;
use crate::count::Counts;
use crate::error::Outcome;
use crate::measure::Plan;
use crate::process::Server;
use crate::report::{Report, Target};

const SESSIONS: usize = 1_000;
/// Deltas of one turn.
const TURN_DELTAS: usize = 1_000;
/// Turns in all, on one session or spread over many.
const TURNS: usize = 1_000;
const COST_RATIO_MAX: f64 = 1.5;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let one = cost(plan, 1).await?;
    for sessions in [10, 100, SESSIONS] {
        let many = cost(plan, sessions).await?;
        report
            .add(GROUP, &format!("CPU of the server, {sessions} sessions"), many, "us/event")
            .raw("one session", one)
            .target(Target::RatioAtMost(COST_RATIO_MAX));
    }
    Ok(())
}

/// Microseconds of the server's processor time per event, from agent to a client of each session.
async fn cost(plan: &Plan, sessions: usize) -> Outcome<f64> {
    let server = Server::qd(&plan.qd)?;
    let mut clients = Vec::new();
    for _ in 0..sessions {
        let mut client = Client::connect_small(&server, 16 << 10).await?;
        let session = client.create("demo").await?;
        clients.push((client, session, Counts::default()));
    }
    let turns = (plan.size(TURNS) / sessions).max(1);
    // Once to get warm, once to measure.
    run(&mut clients, 1).await?;
    let cpu = server.cpu_seconds()?;
    run(&mut clients, turns).await?;
    let events = (turns * sessions * TURN_DELTAS) as f64;
    Ok((server.cpu_seconds()? - cpu) * 1e6 / events)
}

/// Every session takes this many turns, all at the same time.
async fn run(clients: &mut [(Client, String, Counts)], turns: usize) -> Outcome<()> {
    let message = format!("/long {TURN_DELTAS}");
    let work = clients.iter_mut().map(|(client, session, counts)| {
        let message = &message;
        async move {
            for _ in 0..turns {
                client.prompt(Some(session), message).await?;
                let next = counts.settled + 1;
                counts.until_settled(client, next).await?;
            }
            Outcome::Ok(())
        }
    });
    try_join_all(work).await.map(drop)
}
