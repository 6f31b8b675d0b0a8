//! Any number of simulated worlds, in the release build: the test program of `qd-testkit` does the work.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use crate::failure::Failure;
use crate::tree::root;

const USAGE: &str = "cargo xtask world --seeds N [--from SEED] [--jobs J], or cargo xtask world --seed S";

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Every line of one world.
    One {
        seed: u64,
    },
    Many {
        from: u64,
        seeds: u64,
        jobs: u64,
    },
}

/// Builds the world and runs it.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let wanted = read(arguments)?;
    let program = build()?;
    let mut command = Command::new(program);
    let advice = match &wanted {
        Wanted::One { seed } => {
            command.env("QD_WORLD_TRACE", "1").arg("seed").arg(seed.to_string());
            "the lines above tell the story; QD_WORLD_LOG=1 adds what hub and runners log"
        }
        Wanted::Many { from, seeds, jobs } => {
            command.arg("many").args([from, seeds, jobs].map(u64::to_string));
            "run `cargo xtask world --seed S` with a seed that failed"
        }
    };
    let start = now();
    let status = command.current_dir(root()).status();
    let status =
        status.map_err(|error| Failure::new(format!("cannot run {command:?}: {error}"), "see above"))?;
    let elapsed = start.elapsed().as_secs_f64();
    if let Wanted::Many { seeds, .. } = wanted {
        println!("{seeds} worlds in {elapsed:.1} s: {:.2} a second", seeds as f64 / elapsed.max(0.001));
    }
    if status.success() { Ok(()) } else { Err(Failure::new("the world broke a promise".to_owned(), advice)) }
}

fn read(arguments: &[&str]) -> Result<Wanted, Failure> {
    let wrong = |what: String| Failure::new(what, USAGE);
    let (mut seed, mut from, mut seeds) = (None, 0, None);
    let mut jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(wrong(format!("{} needs a number", pair[0]))) };
        let number: u64 = value.parse().map_err(|_| wrong(format!("'{value}' is not a number")))?;
        match *name {
            "--seed" => seed = Some(number),
            "--seeds" => seeds = Some(number),
            "--from" => from = number,
            "--jobs" => jobs = number.max(1),
            _ => return Err(wrong(format!("'{name}' is not known"))),
        }
    }
    match (seed, seeds) {
        (Some(seed), None) => Ok(Wanted::One { seed }),
        (None, Some(seeds)) => Ok(Wanted::Many { from, seeds, jobs }),
        _ => Err(wrong("either --seeds or --seed is needed".to_owned())),
    }
}

/// The program, as cargo names it.
fn build() -> Result<PathBuf, Failure> {
    let advice = "see cargo's message above";
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--no-run", "--release", "-p", "qd-testkit", "--test", "world"]);
    command
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root())
        .stderr(Stdio::inherit());
    let output = command.output();
    let output = output.map_err(|error| Failure::new(format!("cannot run {command:?}: {error}"), advice))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let found = messages.lines().find_map(executable);
    found
        .filter(|_| output.status.success())
        .ok_or_else(|| Failure::new("the world cannot be built".to_owned(), advice))
}

fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_world = message["target"]["name"] == "world" && message["reason"] == "compiler-artifact";
    message["executable"].as_str().filter(|_| is_world).map(PathBuf::from)
}

#[allow(clippy::disallowed_methods, reason = "a tool that measures real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_pairs() {
        assert_eq!(read(&["--seed", "7"]).ok(), Some(Wanted::One { seed: 7 }));
        let many = Wanted::Many { from: 5, seeds: 10, jobs: 3 };
        assert_eq!(read(&["--seeds", "10", "--from", "5", "--jobs", "3"]).ok(), Some(many));
        for wrong in
            [&["--seeds"][..], &[], &["--seed", "x"], &["--seed", "1", "--seeds", "2"], &["--x", "1"]]
        {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_program_is_found_among_the_messages() {
        let world = r#"{"reason":"compiler-artifact","target":{"name":"world"},"executable":"/t/world-1"}"#;
        assert_eq!(executable(world), Some(PathBuf::from("/t/world-1")));
        let other = r#"{"reason":"compiler-artifact","target":{"name":"qd"},"executable":"/t/qd"}"#;
        assert_eq!(executable(other), None);
    }
}
