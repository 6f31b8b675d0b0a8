//! Start and memory.

use std::time::Duration;

use serde_json::json;

use super::Plan;
use crate::client::Client;
use crate::clock;
use crate::error::Outcome;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "footprint";
const STARTS: usize = 10;
const WARM: usize = 20;
const COUNT: usize = 200;
/// Memory is looked at after this, when what was only needed at the start is given back.
const SETTLE: Duration = Duration::from_millis(500);

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    drop(Server::qd_in(&plan.qd, directory.path())?);
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let start = clock::now();
        let server = Server::qd_in(&plan.qd, directory.path())?;
        starts.push(start.elapsed().as_secs_f64() * 1000.0);
        drop(server);
    }
    starts.sort_by(f64::total_cmp);
    report
        .add(GROUP, "start to ready, median of 10, warm", starts[STARTS / 2], "ms")
        .target(Target::AtMost(50.0))
        .note(format!("slowest {:.1} ms", starts[STARTS - 1]));

    let server = Server::qd(&plan.qd)?;
    tokio::time::sleep(SETTLE).await;
    let idle = server.memory()?;
    report
        .add(GROUP, "private memory, idle", idle.private_megabytes(), "MB")
        .target(Target::AtMost(10.0))
        .note(idle.code_note());

    let mut owner = Client::connect(&server).await?;
    let mut session = sessions(&mut owner, WARM).await?;
    let before = settled(&server).await?;
    session = sessions(&mut owner, COUNT).await.inspect(|_| drop(session))?;
    let grown = settled(&server).await? - before;
    report
        .add(GROUP, "per idle demo session (of 200)", grown / COUNT as f64 / 1024.0, "KiB")
        .target(Target::AtMost(64.0));

    let mut clients = Vec::new();
    attached(&server, &session, WARM, &mut clients).await?;
    let before = settled(&server).await?;
    attached(&server, &session, COUNT, &mut clients).await?;
    let grown = settled(&server).await? - before;
    report
        .add(GROUP, "per attached client (of 200)", grown / COUNT as f64 / 1024.0, "KiB")
        .target(Target::AtMost(12.0));
    Ok(())
}

async fn settled(server: &Server) -> Outcome<f64> {
    tokio::time::sleep(SETTLE).await;
    Ok(server.memory()?.private_bytes as f64)
}

/// Creates sessions nobody follows; gives the last one.
async fn sessions(owner: &mut Client, count: usize) -> Outcome<String> {
    let mut last = String::new();
    for _ in 0..count {
        last = owner.create("demo").await?;
        owner.call(&last, "session.detach", json!({})).await?;
    }
    Ok(last)
}

async fn attached(server: &Server, session: &str, count: usize, clients: &mut Vec<Client>) -> Outcome<()> {
    for _ in 0..count {
        let mut client = Client::connect(server).await?;
        client.attach(session).await?;
        clients.push(client);
    }
    Ok(())
}
