//! `cargo xtask chaos`: a hub, a runner and real agents, killed with SIGKILL at random moments while people work, the
//! link between them cut; then everything is counted. It prints what it did and a table, and fails on the first
//! broken promise: a record lost or doubled, an input run twice, a process left over.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its streams")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed run")]

mod arguments;
mod fleet;
mod killer;
mod load;
mod outage;
mod proxy;
mod verdict;
mod watcher;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arguments::Arguments;
use fleet::Fleet;
use killer::Killer;
use load::Load;
use qd_testkit::seeded_random::SeededRandom;

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("{error}\n{}", arguments::HELP);
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let is_clean = runtime.block_on(run(arguments));
    runtime.shutdown_timeout(Duration::from_secs(1));
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One run, from an empty disk to the verdict.
async fn run(arguments: Arguments) -> bool {
    let fleet = Arc::new(Fleet::start(&arguments.binary).await);
    if let Some(down) = arguments.outage {
        let is_kept = outage::run(&fleet, down).await;
        let leftovers = fleet.stop().await;
        leftovers.iter().for_each(|leftover| println!("BROKEN: {leftover}"));
        return is_kept && leftovers.is_empty();
    }
    println!("chaos: seed {}, {} kills, {:?}", arguments.seed, arguments.kills, arguments.binary);
    let load = Load::start(&fleet, arguments.seed).await;
    let mut killer =
        Killer::new(Arc::clone(&fleet), SeededRandom::new(arguments.seed, "chaos"), arguments.kills);
    killer.run().await;
    println!("chaos: {} kills done; healing", killer.tally.kills());
    killer.heal().await;
    let report = load.finish(&fleet).await;
    let leftovers = fleet.stop().await;
    verdict::print(&killer.tally, &report, &leftovers)
}
