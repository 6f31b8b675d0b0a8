//! Fuzzing of what reads bytes of strangers. By hand for as long as wanted; in CI with a fixed seed and a fixed number of
//! runs, so that it ends the same way each time (docs/adr/0027-supply-chain-checks.md).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, read};
use crate::tree::root;

/// The machine the instrumented programs are built for; naming it keeps build scripts without instruments.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What libFuzzer needs of the compiler: counters at every edge, and comparisons that it can look into.
const INSTRUMENTS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Clink-dead-code";

const USAGE: &str = "cargo xtask fuzz [TARGET…] [--seconds N] [--seed N] | --ci | --mutate [--seconds N]";

/// What CI runs of each target beside its corpus: about a quarter of a minute on one core.
const CI_RUNS: &[(&str, u64)] = &[
    ("demo_codec", 20_000),
    ("link_line", 250_000),
    ("mux_frame", 600_000),
    ("pi_codec", 300_000),
    ("pi_server", 400_000),
    ("run_app", 500_000),
    ("run_host", 800_000),
    ("run_server", 200_000),
    ("runner_line", 800_000),
    ("terminal_output", 40_000),
];
const CI_SEED: &str = "1";

/// Longer inputs find little that shorter ones do not, and take their time.
const INPUT_BYTES_MAX: u32 = 4096;
/// An input that takes this long is a finding.
const INPUT_SECONDS_MAX: u32 = 25;

#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    Mutate { seconds: &'a str },
    Ci,
    ByHand { targets: Vec<&'a str>, seconds: &'a str, seed: Option<&'a str> },
}

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    match wanted(arguments)? {
        Wanted::Mutate { seconds } => by_mutation(seconds),
        Wanted::Ci => ci(),
        Wanted::ByHand { targets, seconds, seed } => by_hand(&targets, seconds, seed),
    }
}

fn wanted<'a>(arguments: &[&'a str]) -> Result<Wanted<'a>, Failure> {
    let (mut seconds, mut seed, mut targets, mut mutates) = ("60", None, Vec::new(), false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let number = rest.as_slice().first().filter(|value| value.parse::<u32>().is_ok()).copied();
        match (*argument, number) {
            ("--ci", _) if arguments.len() == 1 => return Ok(Wanted::Ci),
            ("--mutate", _) => mutates = true,
            ("--seconds", Some(value)) => {
                seconds = value;
                rest.next();
            }
            ("--seed", Some(value)) => {
                seed = Some(value);
                rest.next();
            }
            (target, _) if CI_RUNS.iter().any(|(name, _)| *name == target) => targets.push(target),
            _ => return Err(Failure::new(format!("cannot read {argument}"), USAGE)),
        }
    }
    if mutates {
        return Ok(Wanted::Mutate { seconds });
    }
    if targets.is_empty() {
        targets = CI_RUNS.iter().map(|(name, _)| *name).collect();
    }
    Ok(Wanted::ByHand { targets, seconds, seed })
}

/// The step of CI: all targets, each over its corpus and then a fixed number of inputs made from it.
pub(crate) fn ci() -> Result<(), Failure> {
    check_targets()?;
    build()?;
    for (target, runs) in CI_RUNS {
        // What is found is not kept: the next run must begin as this one did.
        let found = empty_directory("ci", target)?;
        let mut command = fuzzer(target, &found);
        command.arg(format!("-runs={runs}")).arg(format!("-seed={CI_SEED}"));
        command.stderr(Stdio::piped());
        perform_quietly(command, target)?;
    }
    Ok(())
}

/// Each target for some seconds; what reaches new code is kept below `target/fuzz` for the next time.
fn by_hand(targets: &[&str], seconds: &str, seed: Option<&str>) -> Result<(), Failure> {
    check_targets()?;
    build()?;
    for target in targets {
        let found = scratch().join("corpus").join(target);
        make_directory(&found)?;
        let mut command = fuzzer(target, &found);
        command.arg(format!("-max_total_time={seconds}"));
        if let Some(seed) = seed {
            command.arg(format!("-seed={seed}"));
        }
        perform(command, &advice(target))?;
    }
    Ok(())
}

/// Mutates the frames of the pi-server face without looking into the program.
fn by_mutation(seconds: &str) -> Result<(), Failure> {
    let mut command = cargo();
    command
        .args(["test", "--release", "-p", "qd-core", "--test", "pi_server_fuzz", "--", "--nocapture"])
        .env("QD_FUZZ_SECONDS", seconds);
    perform(command, &advice("pi_server"))
}

/// A target without runs in CI, or without a corpus, is one that nobody runs.
fn check_targets() -> Result<(), Failure> {
    let manifest = read(&root().join("fuzz/Cargo.toml"))?;
    let manifest: toml::Table = manifest
        .parse()
        .map_err(|error| Failure::new(format!("fuzz/Cargo.toml: {error}"), "mend the file"))?;
    let targets = manifest.get("bin").and_then(toml::Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = targets.iter().filter_map(|target| target.get("name")?.as_str()).collect();
    let known: Vec<&str> = CI_RUNS.iter().map(|(name, _)| *name).collect();
    if names != known {
        let what = format!("fuzz/Cargo.toml has the targets {names:?}, CI runs {known:?}");
        return Err(Failure::new(what, "name the same ones, in order, in xtask/src/fuzz.rs"));
    }
    for name in names {
        if std::fs::read_dir(corpus(name)).map_or(0, Iterator::count) < 5 {
            let what = format!("{} has fewer than five inputs", corpus(name).display());
            return Err(Failure::new(what, "put some there that reach each part of the code"));
        }
    }
    Ok(())
}

fn build() -> Result<(), Failure> {
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--manifest-path", "fuzz/Cargo.toml", "--target", TRIPLE]);
    build.arg("--target-dir").arg(scratch().join("build")).env("RUSTFLAGS", INSTRUMENTS);
    perform(build, "mend what the compiler names; libFuzzer needs a C++ compiler (tests/programs/install.sh)")
}

fn fuzzer(target: &str, found: &Path) -> Command {
    let mut command = Command::new(scratch().join("build").join(TRIPLE).join("release").join(target));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}")).arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.args(["-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"]);
    command.arg(format!("-dict={}", root().join("tests/fuzz/words.dict").display()));
    command.arg(format!("-artifact_prefix={}/", scratch().display())).arg(found).arg(corpus(target));
    command
}

fn corpus(target: &str) -> PathBuf {
    root().join("tests/fuzz").join(target).join("corpus")
}

fn scratch() -> PathBuf {
    root().join("target/fuzz")
}

fn empty_directory(group: &str, target: &str) -> Result<PathBuf, Failure> {
    let path = scratch().join(group).join(target);
    if path.exists() {
        std::fs::remove_dir_all(&path).map_err(|error| {
            Failure::new(format!("cannot empty {}: {error}", path.display()), "remove it")
        })?;
    }
    make_directory(&path)?;
    Ok(path)
}

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", path.display()), "free some room"))
}

fn advice(target: &str) -> String {
    format!(
        "keep the input it names (below target/fuzz) in tests/fuzz/{target}/corpus, and mend what it breaks: the code, or \
         the statement of the target if that does not hold"
    )
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn perform(mut command: Command, advice: &str) -> Result<(), Failure> {
    let shown = format!("{command:?}");
    let status = command.current_dir(root()).status();
    let status = status.map_err(|error| Failure::new(format!("cannot run {shown}: {error}"), advice))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("{shown} ended with {status}"), advice)) }
}

/// Shows of a run that went well only how much it did.
fn perform_quietly(mut command: Command, target: &str) -> Result<(), Failure> {
    let shown = format!("{command:?}");
    let advice = advice(target);
    let output = command.current_dir(root()).output();
    let output = output.map_err(|error| Failure::new(format!("cannot run {shown}: {error}"), &*advice))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::new(format!("{said}\n{shown} ended with {}", output.status), advice));
    }
    let figures = said.lines().filter_map(|line| line.strip_prefix("stat::"));
    let wanted = ["number_of_executed_units:", "average_exec_per_sec:"];
    let figures: Vec<&str> =
        figures.filter(|line| wanted.iter().any(|name| line.starts_with(name))).collect();
    let figures = figures.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    println!("{target:<18} {}", figures.collect::<Vec<_>>().join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        assert_eq!(wanted(&["--ci"]).ok(), Some(Wanted::Ci));
        assert_eq!(wanted(&["--mutate", "--seconds", "5"]).ok(), Some(Wanted::Mutate { seconds: "5" }));
        let by_hand = |targets| Wanted::ByHand { targets, seconds: "9", seed: Some("3") };
        let arguments = ["mux_frame", "--seconds", "9", "--seed", "3"];
        assert_eq!(wanted(&arguments).ok(), Some(by_hand(vec!["mux_frame"])));
        let all = CI_RUNS.iter().map(|(name, _)| *name).collect();
        assert_eq!(wanted(&arguments[1..]).ok(), Some(by_hand(all)));
        for wrong in [&["--seconds"][..], &["--seconds", "x"], &["no_such_target"], &["--ci", "mux_frame"]] {
            assert!(wanted(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_target_has_a_corpus_and_runs_in_ci() {
        check_targets().expect("the targets, their runs and corpora belong together");
    }
}
