//! `cargo xtask runs`: programs in terminals, many times and through outages; every byte is compared. It prints what it
//! saw and fails on the first broken promise.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its streams")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a broken fixture is a failed run")]
#![allow(clippy::disallowed_methods, reason = "it measures")]

mod emit;
mod flood;
mod outage;
mod short;

use std::process::ExitCode;

const HELP: &str = "\
qd-runs --qd PATH flood [COUNT]            seq 1 2000000 COUNT times (100): every byte, in order, once
qd-runs --qd PATH short [COUNT]            COUNT short runs (1000): run.exited is the last of each
qd-runs --qd PATH outage [SECONDS RATE]    the hub killed for SECONDS while a run writes RATE lines a second;
                                           without numbers all of 3, 10, 60 s at 5, 20, 10000 lines/s";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Servers run in directories of their own.
    let binary = words.get(1).and_then(|path| std::fs::canonicalize(path).ok());
    let binary = binary.map(|path| path.display().to_string()).unwrap_or_default();
    if words.first() == Some(&"--qd") {
        words[1] = &binary;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("'{word}' is no number\n{HELP}"));
    let is_kept = match words.as_slice() {
        ["emit", rate, seconds] => emit::run(number(rate), number(seconds)),
        ["--qd", qd, "flood"] => runtime.block_on(flood::run(qd, 100)),
        ["--qd", qd, "flood", count] => runtime.block_on(flood::run(qd, number(count))),
        ["--qd", qd, "short"] => runtime.block_on(short::run(qd, 1000)),
        ["--qd", qd, "short", count] => runtime.block_on(short::run(qd, number(count))),
        ["--qd", qd, "outage"] => runtime.block_on(outage::run_all(qd)),
        ["--qd", qd, "outage", seconds, rate] => {
            runtime.block_on(outage::run(qd, number(seconds), number(rate)))
        }
        _ => {
            eprintln!("{HELP}");
            false
        }
    };
    if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
