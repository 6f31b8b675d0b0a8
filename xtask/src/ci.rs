//! All checks in the order in which they fail fastest; each says its name, its time, and what to do.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::tree::root;
use crate::{bans, client, codegen, tidy, web};

/// What a step does.
enum Work {
    Check(fn() -> Result<(), Failure>),
    /// Arguments of cargo, and one variable of its environment.
    Cargo(&'static [&'static str], Option<(&'static str, &'static str)>),
}

struct Step {
    name: &'static str,
    work: Work,
    advice: &'static str,
}

pub(crate) fn run() -> Result<(), Failure> {
    let mut times = Vec::new();
    for step in steps() {
        println!("\n== {}", step.name);
        let start = now();
        let result = perform(&step);
        let elapsed = start.elapsed();
        times.push((step.name, elapsed));
        if let Err(failure) = result {
            println!("== {} failed after {}", step.name, seconds(elapsed));
            return Err(failure);
        }
        println!("== {} passed in {}", step.name, seconds(elapsed));
    }
    println!();
    for (name, elapsed) in &times {
        println!("{name:<10} {:>8}", seconds(*elapsed));
    }
    println!("{:<10} {:>8}", "all", seconds(times.iter().map(|(_, elapsed)| *elapsed).sum()));
    Ok(())
}

fn steps() -> Vec<Step> {
    let mut steps = vec![
        Step {
            name: "fmt",
            work: Work::Cargo(&["fmt", "--all", "--check"], None),
            advice: "run `cargo fmt --all`",
        },
        Step { name: "tidy", work: Work::Check(tidy::run), advice: "" },
        Step { name: "codegen", work: Work::Check(codegen::check), advice: "" },
        Step { name: "bans", work: Work::Check(bans::run), advice: "" },
        // Before the binary, which carries it.
        Step { name: "web", work: Work::Check(web::build), advice: "" },
        Step {
            name: "clippy",
            work: Work::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
            advice: "mend what clippy names; an `allow` needs a reason",
        },
        Step {
            name: "build",
            work: Work::Cargo(&["build", "--workspace", "--bins"], None),
            advice: "tests drive the binaries; mend what the compiler names",
        },
    ];
    steps.extend(test_steps(has_nextest()));
    steps.push(Step { name: "client", work: Work::Check(client::run), advice: "" });
    steps.push(Step { name: "browser", work: Work::Check(web::test), advice: "" });
    steps.push(Step {
        name: "doc",
        work: Work::Cargo(&["doc", "--workspace", "--no-deps"], Some(("RUSTDOCFLAGS", "-D warnings"))),
        advice: "mend the links and the markup that rustdoc names",
    });
    steps
}

/// cargo-nextest runs each test in a process of its own; without it cargo's own runner does.
fn test_steps(nextest: bool) -> Vec<Step> {
    let advice = "run the failing test alone, by its name; a test that fails now and then is a bug too";
    if !nextest {
        return vec![Step { name: "test", work: Work::Cargo(&["test", "--workspace"], None), advice }];
    }
    vec![
        Step { name: "test", work: Work::Cargo(&["nextest", "run", "--workspace"], None), advice },
        Step { name: "doctest", work: Work::Cargo(&["test", "--workspace", "--doc"], None), advice },
    ]
}

fn has_nextest() -> bool {
    let asked = Command::new("cargo").args(["nextest", "--version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

fn perform(step: &Step) -> Result<(), Failure> {
    let (arguments, variable) = match &step.work {
        Work::Check(check) => return check(),
        Work::Cargo(arguments, variable) => (*arguments, *variable),
    };
    let shown = format!("cargo {}", arguments.join(" "));
    let status = Command::new("cargo").args(arguments).envs(variable).current_dir(root()).status().map_err(
        |error| Failure::new(format!("cannot run `{shown}`: {error}"), "install Rust and its cargo"),
    )?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{shown}` ended with {status}"), step.advice))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place that reads the clock, to print how long steps took"
)]
fn now() -> Instant {
    Instant::now()
}
