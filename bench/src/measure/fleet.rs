//! Many runners, many clients, one hub: what it weighs, how late events come, and whether more sessions cost more.

mod flat;
mod fleet_clients;
mod runners;

use std::time::Duration;

use serde_json::json;

use super::{Plan, percentile};
use crate::client::Client;
use crate::clock;
use crate::error::{Outcome, failed};
use crate::process::Server;
use crate::report::{Report, Target};
use fleet_clients::{FleetClients, SeenEvents};
use runners::Runners;

const GROUP: &str = "fleet";
const RUNNERS: usize = 100;
const SESSIONS_EACH: usize = 10;
const CLIENTS: usize = 10_000;
/// Clients of sessions whose agents work.
const CLIENTS_BUSY: usize = 1_000;
const BUSY_FOR: Duration = Duration::from_secs(30);
const HUB_MB_MAX: f64 = 400.0;
/// What the hub may keep of all that when everybody has gone, beside what it had before.
const KEPT_RATIO_MAX: f64 = 1.5;

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    flat::measure(plan, report).await?;
    measure_crowded(plan, report).await
}

async fn measure_crowded(plan: &Plan, report: &mut Report) -> Outcome<()> {
    let (runners, clients) = (plan.size(RUNNERS), plan.size(CLIENTS));
    let hub = Server::qd(&plan.qd)?;
    let idle = megabytes(&hub)?;
    let fleet = Runners::start(&plan.qd, &hub, runners).await?;
    let mut owner = Client::connect(&hub).await?;
    let mut sessions = Vec::new();
    for runner in fleet.names() {
        for _ in 0..SESSIONS_EACH {
            sessions.push(create(&mut owner, runner).await?);
        }
    }
    let empty = megabytes(&hub)?;
    let busy: Vec<String> = sessions.iter().step_by(SESSIONS_EACH).cloned().collect();
    let rest: Vec<String> = sessions.iter().filter(|session| !busy.contains(session)).cloned().collect();
    let mut clients_of_fleet =
        FleetClients::attach(&hub, &busy, plan.size(CLIENTS_BUSY), &rest, clients).await?;
    let full = megabytes(&hub)?;
    let cpu = hub.cpu_seconds()?;
    let start = clock::now();
    let seen = clients_of_fleet.work(&busy, BUSY_FOR).await?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu = hub.cpu_seconds()? - cpu;
    let most = full.max(megabytes(&hub)?);
    told(report, &seen, seconds, cpu);
    report
        .add(GROUP, &format!("hub, {runners} runners, {clients} clients"), most, "MB")
        .target(Target::AtMost(HUB_MB_MAX))
        .note(format!("{idle:.1} MB alone, {empty:.1} with {} sessions", sessions.len()));
    drop((clients_of_fleet, owner));
    let after = settled(&hub, empty * KEPT_RATIO_MAX).await?;
    report
        .add(GROUP, "  when the clients have gone", after, "MB")
        .raw("before they came", empty)
        .target(Target::RatioAtMost(KEPT_RATIO_MAX));
    Ok(())
}

fn told(report: &mut Report, seen: &SeenEvents, seconds: f64, cpu: f64) {
    let mut latencies = seen.latencies.clone();
    latencies.sort_unstable();
    let deliveries = seen.events as f64;
    report
        .add(GROUP, "events delivered to the busy clients", deliveries / seconds, "events/s")
        .note(format!("{} in {seconds:.0} s; hub CPU {:.1} us/event", seen.events, cpu * 1e6 / deliveries));
    for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
        report.add(
            GROUP,
            &format!("  runner's clock to client, {name}"),
            percentile(&latencies, share),
            "ms",
        );
    }
    report
        .add(GROUP, "  records missing or out of order", seen.missing as f64, "")
        .target(Target::AtMost(0.0));
    report
        .add(GROUP, "  clients behind at the end", seen.behind as f64, "")
        .target(Target::AtMost(0.0))
        .note(format!("{} gaps told", seen.resyncs));
}

async fn create(owner: &mut Client, runner: &str) -> Outcome<String> {
    let config = json!({"runner_id": runner, "wait": true, "config": {"harness": "demo", "cwd": "/tmp"}});
    let data = owner.call("", "session.create", config).await?;
    let session = data["session_id"].as_str().unwrap_or_default().to_owned();
    owner.call(&session, "session.detach", json!({})).await?;
    Ok(session)
}

fn megabytes(server: &Server) -> Outcome<f64> {
    Ok(server.memory()?.private_megabytes())
}

/// Memory when it has come down to `goal`, or when it has had time enough to.
async fn settled(server: &Server, goal: f64) -> Outcome<f64> {
    for _ in 0..150 {
        if megabytes(server)? <= goal {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    megabytes(server)
}

/// A number of a child's JSON.
fn text(value: &serde_json::Value, name: &str) -> Outcome<String> {
    match value[name].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => failed(format!("no '{name}' in {value}")),
    }
}
