//! Plays `qd guard`, a runner that can be killed, and an agent, for the tests of this crate.

mod fake_pi;
mod parrot;
mod socket_client;

use std::process::ExitCode;

use qd_runner::process::{Environment, GuardCommand, Privileges, ProcessConfig, SpawnSpec};

/// `guard …` is the guard; `runner PROGRAM ARGS…` starts an agent, prints its pid and waits; `pi …` and `parrot` are agents.
fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    match args.next().as_deref().and_then(|word| word.to_str()) {
        Some("guard") => qd_runner::guard::main(args),
        Some(word @ ("runner" | "runner-without-cgroup")) => {
            run(args.collect(), /*use_cgroup*/ word == "runner")
        }
        Some("pi") => {
            fake_pi::main(&std::env::args().skip(2).collect::<Vec<_>>());
            ExitCode::SUCCESS
        }
        Some(word @ ("socket-ask" | "socket-attack" | "socket-orphan")) => {
            let args: Vec<String> = std::env::args().skip(2).collect();
            match (word, args.first()) {
                ("socket-ask", Some(socket)) => socket_client::ask(socket),
                ("socket-attack", Some(socket)) => socket_client::attack(socket),
                _ => socket_client::orphan(&args),
            }
        }
        Some("parrot") => {
            parrot::main();
            ExitCode::SUCCESS
        }
        _ => ExitCode::from(2),
    }
}

#[allow(clippy::print_stdout, clippy::print_stderr, reason = "a test helper talks by its stdout")]
fn run(program: Vec<std::ffi::OsString>, use_cgroup: bool) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let guard = match GuardCommand::current() {
            Ok(guard) => guard,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        let config = ProcessConfig { use_cgroup, ..ProcessConfig::default() };
        let spawn = SpawnSpec {
            program,
            cwd: "/".into(),
            environment: Environment::default(),
            guard,
            config,
            privileges: Privileges::default(),
            session_id: String::new(),
        };
        match spawn.start().await {
            Ok(agent) => {
                println!("{}", agent.pid());
                agent.exited().await;
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        }
    })
}
