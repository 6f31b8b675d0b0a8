//! The benchmarks: every figure beside that of a raw program written with the same libraries, in the same run.
//!
//! `qd-bench [--quick] [--only GROUP] [--qd PATH] [--out FILE]` measures. The program is also every process it needs
//! (`fake-pi`, `raw-forwarder`, `raw-echo`, `raw-lifecycle`, `raw-pty`, `hub-alone`), so one build is enough. Nothing here is a test: figures
//! depend on the machine, so targets are shown and never fail a build.
#![forbid(unsafe_code)]

mod client;
mod clock;
mod count;
mod error;
mod fake_pi;
mod hub_alone;
mod measure;
mod process;
mod raw;
mod raw_lifecycle;
mod raw_pty;
mod report;
mod script;

use std::path::PathBuf;
use std::process::Command;

use error::{Outcome, failed};
use measure::Plan;

/// Threads of the raw servers, as many as `qd up` takes on this machine.
const WORKER_THREADS_MAX: usize = 4;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (first, rest) = arguments.split_first().map_or(("", [].as_slice()), |(first, rest)| (first, rest));
    match first {
        "fake-pi" => fake_pi::run(rest),
        "raw-forwarder" => serve(raw::forwarder(rest)),
        "raw-echo" => serve(raw::echo(rest)),
        "raw-lifecycle" => serve(raw_lifecycle::run()),
        "raw-pty" => serve(raw_pty::run(rest)),
        "hub-alone" => serve(hub_alone::run(rest)),
        _ => {
            let plan = plan(&arguments)?;
            // One thread, so that the clients leave the other cores to what is measured.
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(measure::run(plan))
        }
    }
}

fn serve(server: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(cores.min(WORKER_THREADS_MAX)).enable_all().build()?.block_on(server)
}

fn plan(arguments: &[String]) -> Outcome<Plan> {
    let own = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = own.join("out/latest.json");
    let mut plan = Plan { qd: PathBuf::new(), is_quick: false, only: Vec::new(), out };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--quick" => plan.is_quick = true,
            "--only" => plan.only.push(value()?),
            "--qd" => plan.qd = value()?.into(),
            "--out" => plan.out = value()?.into(),
            _ => {
                let names = measure::GROUPS.map(|(name, _)| name).join(", ");
                return failed(format!(
                    "usage: qd-bench [--quick] [--only GROUP] [--qd PATH] [--out FILE]; groups: {names}"
                ));
            }
        }
    }
    if plan.qd.as_os_str().is_empty() {
        plan.qd = build(own)?;
    }
    Ok(plan)
}

/// Builds the program that is measured: the one that packages carry.
fn build(directory: &std::path::Path) -> Outcome<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(directory)
        .args(["build", "--profile", "dist", "-p", "qd"])
        .status()?;
    if !status.success() {
        return failed("qd could not be built");
    }
    // Beside the directory that Cargo put this program in, wherever the target directory is.
    let own_program = std::env::current_exe()?;
    match own_program.ancestors().nth(2) {
        Some(target) => Ok(target.join("dist/qd")),
        None => {
            failed(format!("{} is in no target directory; name a build with --qd", own_program.display()))
        }
    }
}
