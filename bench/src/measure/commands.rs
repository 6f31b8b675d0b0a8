//! Commands and their answers.

use super::Plan;
use super::command_load::{CommandLoad, CommandProtocol};
use crate::client::Client;
use crate::error::Outcome;
use crate::process::Server;
use crate::report::{Report, Target};

const GROUP: &str = "commands";

pub(super) async fn measure(plan: &Plan, report: &mut Report) -> Outcome<()> {
    for (connections, depth) in [(1, 1), (1, 32), (16, 4)] {
        let count = plan.size(if depth == 1 { 20_000 } else { 200_000 });
        let load = CommandLoad { protocol: CommandProtocol::Mux, connections, depth, count };
        let each = load.run(&Server::own(&["raw-echo", "each"])?, "s").await?;
        let idle = load.run(&Server::own(&["raw-echo", "idle"])?, "s").await?;
        for harness in ["demo", "pi"] {
            let qd = Server::qd(&plan.qd)?;
            let session = Client::connect(&qd).await?.create(harness).await?;
            let ours = load.run(&qd, &session).await?;
            let name = format!("get_state of {harness}, {connections} x {depth} in flight");
            let target = if depth > 1 { Target::RatioAtLeast(0.3) } else { Target::None };
            report.add(GROUP, &name, ours.rate, "commands/s").raw("echo", each.rate).target(target);
            report.add(GROUP, "  p50", ours.p50, "us").raw("echo", each.p50);
            report.add(GROUP, "  p99", ours.p99, "us").raw("echo", each.p99);
            report.add(GROUP, "  CPU of the server", ours.cpu, "us/command").raw("echo", each.cpu);
            if depth > 1 {
                report.add(GROUP, "  against", ours.rate, "commands/s").raw("coalescing echo", idle.rate);
            }
        }
    }
    Ok(())
}
