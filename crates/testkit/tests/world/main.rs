//! The fleet in a simulated world: a hub, three runners and clients in one network that fails, with a virtual clock.
//! One number decides everything that happens, so a failure can be seen again.
//!
//! This program has its own `main`: mad-turmoil puts its randomness and clocks in place of the process's, so each
//! world has a process of its own, started by this same program.
//!
//! - as a test: `cargo nextest run -p qd-testkit --test world`
//! - any number of worlds: `cargo xtask world --seeds N`
//! - one, with every line of its trace: `cargo xtask world --seed S`
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test with its own `main`"
)]

mod checks;
mod client;
mod disk;
mod faults;
mod hosts;
mod net;
mod oracle;
mod plan;
mod pool;
mod run;
mod state;
mod trace;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use plan::Bug;
use pool::ManyWorlds;

/// Worlds that CI looks at, in parts so that the test runner can use all cores.
const CI_SEEDS: u64 = 300;
const CI_PARTS: u64 = 10;

/// A planted bug must be found within so many worlds.
const BUG_SEEDS_MAX: u64 = 1_000;

/// A world that takes longer hangs.
const WORLD_TIME_MAX: Duration = Duration::from_secs(150);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        // The test runner asks which tests there are before it runs them.
        list if list.contains(&"--list") => {
            if !list.contains(&"--ignored") {
                tests().for_each(|name| println!("{name}: test"));
            }
            ExitCode::SUCCESS
        }
        ["seed", seed] => one(number(seed), None),
        ["seed", seed, bug] => one(number(seed), Bug::named(bug)),
        ["many", from, seeds, jobs] => many(number(from), number(seeds), number(jobs)),
        _ => run_tests(&arguments),
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is not a number"))
}

/// One world in this process.
fn one(seed: u64, bug: Option<Bug>) -> ExitCode {
    let is_traced = std::env::var_os("QD_WORLD_TRACE").is_some();
    trace::print_all(is_traced);
    if std::env::var_os("QD_WORLD_LOG").is_some() {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).without_time();
        subscriber.with_ansi(false).init();
    }
    std::thread::spawn(move || {
        std::thread::sleep(WORLD_TIME_MAX);
        println!("seed {seed} hangs: it took more than {WORLD_TIME_MAX:?} of real time");
        std::process::exit(3);
    });
    match run::run(seed, bug) {
        Ok(summary) => {
            println!("{}", serde_json::to_string(&summary).unwrap());
            ExitCode::SUCCESS
        }
        Err(report) if is_traced => {
            // The lines have been printed already; the verdict stands at the end.
            let verdict: Vec<&str> = report.lines().rev().take(2).collect();
            verdict.iter().rev().for_each(|line| println!("{line}"));
            ExitCode::FAILURE
        }
        Err(report) => {
            println!("{report}");
            ExitCode::FAILURE
        }
    }
}

fn many(from: u64, seeds: u64, jobs: u64) -> ExitCode {
    let tell_every = (seeds / 50).clamp(1, 100);
    let results = pool::run(ManyWorlds { from, seeds, jobs, bug: None, stops_at_failure: false, tell_every });
    if let Some((_, report)) = results.failures.first_key_value() {
        println!("{report}\n");
    }
    println!("{}", results.table());
    if results.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    let seeds: Vec<String> = results.failures.keys().map(u64::to_string).collect();
    println!("failed seeds: {}", seeds.join(" "));
    ExitCode::FAILURE
}

fn tests() -> impl Iterator<Item = String> {
    let named = [
        "same_seed_same_trace",
        "finds_an_ack_before_the_commit",
        "finds_a_resend_without_dedupe",
        "finds_a_prompt_that_is_answered_before_it_is_stored",
    ];
    let parts = (0..CI_PARTS).map(|part| format!("seeds_part_{part}"));
    named.into_iter().map(str::to_owned).chain(parts)
}

/// Runs the tests whose names are asked for, as the usual harness does.
fn run_tests(arguments: &[&str]) -> ExitCode {
    let is_exact = arguments.contains(&"--exact");
    let names: Vec<&str> = arguments.iter().copied().filter(|argument| !argument.starts_with('-')).collect();
    let is_asked = |test: &String| {
        let fits = |name: &&str| if is_exact { test == *name } else { test.contains(*name) };
        names.is_empty() || names.iter().any(fits)
    };
    let mut code = ExitCode::SUCCESS;
    for test in tests().filter(is_asked) {
        match run_test(&test) {
            Ok(said) => println!("test {test} ... ok\n{said}"),
            Err(report) => {
                println!("{report}\ntest {test} ... FAILED");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn run_test(test: &str) -> Result<String, String> {
    match test {
        "same_seed_same_trace" => same_seed_same_trace(),
        "finds_an_ack_before_the_commit" => finds("ack"),
        "finds_a_resend_without_dedupe" => finds("dedupe"),
        "finds_a_prompt_that_is_answered_before_it_is_stored" => finds("accepted"),
        part => {
            let part = number(part.strip_prefix("seeds_part_").unwrap_or("0"));
            let seeds = CI_SEEDS / CI_PARTS;
            passes(ManyWorlds {
                from: part * seeds,
                seeds,
                jobs: 1,
                bug: None,
                stops_at_failure: true,
                tell_every: 0,
            })
        }
    }
}

fn passes(many: ManyWorlds) -> Result<String, String> {
    let results = pool::run(many);
    match results.failures.first_key_value() {
        None => Ok(results.table()),
        Some((_, report)) => Err(report.clone()),
    }
}

/// A world with a planted bug is broken; a test that cannot see it sees nothing.
fn finds(bug: &'static str) -> Result<String, String> {
    let many = ManyWorlds {
        from: 0,
        seeds: BUG_SEEDS_MAX,
        jobs: 1,
        bug: Some(bug),
        stops_at_failure: true,
        tell_every: 0,
    };
    let results = pool::run(many);
    match results.failures.first_key_value() {
        Some((seed, report)) => {
            let verdict =
                report.lines().find(|line| line.contains(" breaks ")).unwrap_or("it ended otherwise");
            let said = format!("found after {} worlds, seed {seed}: {verdict}", results.worlds);
            // A world that hangs or cannot start has found nothing, nor has one that is broken without the bug.
            if !report.contains(" breaks ") {
                return Err(report.clone());
            }
            pool::one(*seed, None)?;
            Ok(said)
        }
        None => Err(format!("{BUG_SEEDS_MAX} worlds did not find the planted bug '{bug}'")),
    }
}

fn same_seed_same_trace() -> Result<String, String> {
    let mut hashes = Vec::new();
    for seed in [1, 2, 3, 1001, 1002] {
        let (first, second) = (pool::one(seed, None)?, pool::one(seed, None)?);
        if first.hash != second.hash || first.counts != second.counts {
            return Err(format!("seed {seed} gave {} and then {}", first.hash, second.hash));
        }
        hashes.push(first.hash);
    }
    hashes.dedup();
    if hashes.len() < 2 { Err(format!("all seeds give the same: {hashes:?}")) } else { Ok(hashes.join(" ")) }
}
