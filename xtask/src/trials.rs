//! Long trials of the release build, run by hand: real processes killed, a network that loses packets.

use std::process::Command;

use crate::failure::Failure;
use crate::tree::root;

/// Kills hub, runner and agents at random moments; `arguments` go to the program (`--kills N --seed S`).
pub(crate) fn chaos(arguments: &[&str]) -> Result<(), Failure> {
    cargo(&["build", "--release", "-p", "qd", "-p", "qd-testkit", "--bin", "qd", "--bin", "qd-chaos"])?;
    let directory = root().join("target/release");
    let mut command = Command::new(directory.join("qd-chaos"));
    command.arg("--qd").arg(directory.join("qd")).args(arguments);
    run(command, "the lines marked BROKEN say which promise; the seed repeats the decisions, not the moments")
}

/// Programs in terminals, many times and through outages; `arguments` say which trial.
pub(crate) fn runs(arguments: &[&str]) -> Result<(), Failure> {
    cargo(&["build", "--release", "-p", "qd", "-p", "qd-testkit", "--bin", "qd", "--bin", "qd-runs"])?;
    let directory = root().join("target/release");
    let mut command = Command::new(directory.join("qd-runs"));
    command.arg("--qd").arg(directory.join("qd")).args(arguments);
    run(command, "the lines marked BROKEN say which promise")
}

/// Puts hub and runner into two network namespaces with a bad wire between them. Needs root, `ip` and python3.
pub(crate) fn network(arguments: &[&str]) -> Result<(), Failure> {
    cargo(&["build", "--release", "-p", "qd"])?;
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/network/lossy_link.py"))
        .arg(root().join("target/release/qd"))
        .args(arguments);
    run(command, "run it as root with iproute2 and python3 installed; its last line says what was promised")
}

fn cargo(arguments: &[&str]) -> Result<(), Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    run(command, "see cargo's message above")
}

fn run(mut command: Command, advice: &str) -> Result<(), Failure> {
    let shown = format!("{command:?}");
    let status = command.current_dir(root()).status();
    let status = status.map_err(|error| Failure::new(format!("cannot run {shown}: {error}"), advice))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{shown} ended with {status}"), advice)) }
}
