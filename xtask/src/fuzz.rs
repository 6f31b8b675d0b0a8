//! Fuzzing of what reads frames of strangers, run by hand for as long as wanted. CI replays the kept corpus and
//! fuzzes a few seconds, as tests of `qd-core`.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::tree::root;

/// What is fuzzed: the target of `fuzz/`, and where its corpus is kept.
const TARGET: &str = "pi_server_request";
const CORPUS: &str = "tests/fuzz/pi_server/corpus";

/// The machine the instrumented program is built for; naming it keeps build scripts without instruments.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// What cargo-fuzz gives the compiler: counters at every edge and comparison, and checks of every access.
const INSTRUMENTS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Zsanitizer=address -Ccodegen-units=1";

const ADVICE: &str = "keep the frame it names in tests/fuzz/pi_server/corpus, and mend what it breaks";

/// `--seconds N`, and `--coverage` for libFuzzer, which needs a nightly Rust.
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (mut seconds, mut coverage, mut rest) = ("60", false, arguments.iter());
    while let Some(argument) = rest.next() {
        match (*argument, rest.as_slice().first()) {
            ("--coverage", _) => coverage = true,
            ("--seconds", Some(value)) if value.parse::<u32>().is_ok() => {
                seconds = value;
                rest.next();
            }
            _ => {
                let advice = "cargo xtask fuzz [--seconds N] [--coverage]";
                return Err(Failure::new(format!("cannot read {argument}"), advice));
            }
        }
    }
    if coverage { by_coverage(seconds) } else { by_mutation(seconds) }
}

/// Mutates the corpus without looking into the program; needs nothing but Rust.
fn by_mutation(seconds: &str) -> Result<(), Failure> {
    let mut command = cargo();
    command
        .args(["test", "--release", "-p", "qd-core", "--test", "pi_server_fuzz", "--", "--nocapture"])
        .env("QD_FUZZ_SECONDS", seconds);
    perform(command, ADVICE)
}

/// Looks for frames that reach new code.
fn by_coverage(seconds: &str) -> Result<(), Failure> {
    let scratch = root().join("target/fuzz");
    let found = scratch.join("corpus").join(TARGET);
    std::fs::create_dir_all(&found).map_err(|error| {
        Failure::new(format!("cannot make {}: {error}", found.display()), "free some room")
    })?;
    let mut build = Command::new("cargo");
    build.args(["+nightly", "build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", TRIPLE]);
    build.args(["--bin", TARGET, "--target-dir"]).arg(scratch.join("build")).env("RUSTFLAGS", INSTRUMENTS);
    perform(build, "install a nightly Rust (`rustup toolchain install nightly`), or leave out --coverage")?;
    let program: PathBuf = scratch.join("build").join(TRIPLE).join("release").join(TARGET);
    let mut command = Command::new(program);
    command.arg(format!("-max_total_time={seconds}")).args(["-max_len=4096", "-timeout=10"]);
    command.arg(format!("-artifact_prefix={}/", scratch.display())).arg(found).arg(CORPUS);
    perform(command, ADVICE)
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
