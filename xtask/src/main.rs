//! `cargo xtask`: generates files, checks the tree and its dependencies, and runs all of CI.
//!
//! Nothing here ships. What a rule forbids is written in the file of its command, with the reason.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks on its streams")]

mod attack;
mod bans;
mod ci;
mod client;
mod codegen;
mod deny;
mod failure;
mod fuzz;
mod tidy;
mod tree;
mod trials;
mod web;
mod world;

use std::process::ExitCode;

use failure::Failure;

const HELP: &str = "\
cargo xtask <command>

  ci [--install]   everything below and the tests; with --install what `make test` runs
  install          the programs, agents, libraries and the browser that tests need
  codegen          write docs/generated, the TypeScript types and the tables of docs/protocol.md from crates/wire
  codegen --check  fail if they are not what the types say
  tidy             size of files and folders, banned words, heads of crates, functions that ARCHITECTURE.md names
  bans             who may depend on whom, number of packages
  deny             licences, sources, banned and doubled packages, advisories: as deny.toml says; [--update CLONE]
  attack           attacks on the binary that `cargo build -p qd` has built (python3): [NUMBER…]
  world            simulated worlds: --seeds N [--from S] [--jobs J], or --seed S with its trace
  chaos            real processes killed at random moments: [--kills N] [--seed S], or --outage SECONDS
  runs             programs in terminals: flood [N], short [N], outage [SECONDS RATE]
  fuzz             bytes of strangers, by libFuzzer: [TARGET…] [--seconds N] [--seed N]; --ci; --mutate [--seconds N]
  network          hub and runner with a bad wire between them (root, python3): [--loss %] [--delay MS]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["ci"] => ci::run(false),
        ["ci", "--install"] => ci::run(true),
        ["install"] => ci::install(),
        ["codegen"] => codegen::write(),
        ["codegen", "--check"] => codegen::check(),
        ["tidy"] => tidy::run(),
        ["bans"] => bans::run(),
        ["deny", arguments @ ..] => deny::run(arguments),
        ["attack", numbers @ ..] => attack::run(numbers),
        ["world", arguments @ ..] => world::run(arguments),
        ["chaos", arguments @ ..] => trials::chaos(arguments),
        ["runs", arguments @ ..] => trials::runs(arguments),
        ["fuzz", arguments @ ..] => fuzz::run(arguments),
        ["network", arguments @ ..] => trials::network(arguments),
        ["help" | "--help" | "-h"] | [] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => Err(Failure::new(format!("no such command: {}", arguments.join(" ")), "run `cargo xtask help`")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
