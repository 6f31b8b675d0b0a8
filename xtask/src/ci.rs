//! All checks in the order in which they fail fastest. Each says its name, its time and what to do; at the end, also after
//! a failure, a table shows where the time went.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::tree::root;
use crate::{attack, bans, client, codegen, deny, fuzz, tidy, web};

/// What a step does.
enum StepWork {
    Check(fn() -> Result<(), Failure>),
    /// Arguments of cargo, and one variable of its environment.
    Cargo(&'static [&'static str], Option<(&'static str, &'static str)>),
    /// A script of the repository with its arguments.
    Script(&'static [&'static str]),
}

struct Step {
    name: &'static str,
    work: StepWork,
    advice: &'static str,
}

/// Installs what the tests need.
pub(crate) fn install() -> Result<(), Failure> {
    run_steps(install_steps())
}

/// Runs every check and test, with `is_installing` after [`install`].
pub(crate) fn run(is_installing: bool) -> Result<(), Failure> {
    let mut steps = if is_installing { install_steps() } else { Vec::new() };
    steps.extend(check_steps());
    steps.extend(test_steps(has_nextest()));
    run_steps(steps)
}

fn run_steps(steps: Vec<Step>) -> Result<(), Failure> {
    let mut times = Vec::new();
    let mut outcome = Ok(());
    for step in steps {
        println!("\n== {}", step.name);
        let start = now();
        outcome = perform(&step);
        let elapsed = start.elapsed();
        let word = if outcome.is_ok() { "passed in" } else { "failed after" };
        println!("== {} {word} {}", step.name, seconds(elapsed));
        times.push((step.name, elapsed));
        if outcome.is_err() {
            break;
        }
    }
    println!();
    let all = times.iter().map(|(_, elapsed)| *elapsed).sum();
    for (name, elapsed) in times.into_iter().chain([("all", all)]) {
        println!("{name:<16} {:>9}", seconds(elapsed));
    }
    outcome
}

fn install_steps() -> Vec<Step> {
    let advice = "see what it printed; it says what is missing";
    let script = |name, words| Step { name, work: StepWork::Script(words), advice };
    vec![
        script("install programs", &["tests/programs/install.sh"]),
        script("install agents", &["tests/agents/install.sh"]),
        script("install client", &["clients/typescript/install.sh"]),
        script("install web", &["web/install.sh", "--tests"]),
    ]
}

fn check_steps() -> Vec<Step> {
    let check = |name, check| Step { name, work: StepWork::Check(check), advice: "" };
    vec![
        Step {
            name: "fmt",
            work: StepWork::Cargo(&["fmt", "--all", "--check"], None),
            advice: "run `cargo fmt --all`",
        },
        check("tidy", tidy::run),
        check("codegen", codegen::check),
        check("bans", bans::run),
        check("deny", || deny::run(&[])),
        // Before the binary, which carries it.
        check("web", web::build),
        Step {
            name: "clippy",
            work: StepWork::Cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"], None),
            advice: "mend what clippy names; an `allow` needs a reason",
        },
    ]
}

/// cargo-nextest runs each test in a process of its own; without it cargo's own runner does. Programs and tests are built
/// in one go: a build of the programs alone would have other features of the libraries, and compile them twice.
fn test_steps(nextest: bool) -> Vec<Step> {
    let advice = "run the failing test alone, by its name; a test that fails now and then is a bug too";
    let cargo = |name, words, advice| Step { name, work: StepWork::Cargo(words, None), advice };
    let build_advice = "tests drive the binaries; mend what the compiler names";
    let mut steps = match nextest {
        true => vec![
            cargo(
                "build",
                &["nextest", "run", "--workspace", "--lib", "--bins", "--tests", "--no-run"],
                build_advice,
            ),
            cargo("test", &["nextest", "run", "--workspace", "--lib", "--bins", "--tests"], advice),
        ],
        false => vec![
            cargo("build", &["test", "--workspace", "--lib", "--bins", "--tests", "--no-run"], build_advice),
            cargo("test", &["test", "--workspace", "--lib", "--bins", "--tests"], advice),
        ],
    };
    steps.extend([
        Step { name: "attack", work: StepWork::Check(|| attack::run(&[])), advice: "" },
        cargo("doctest", &["test", "--workspace", "--doc"], advice),
        Step { name: "client", work: StepWork::Check(client::run), advice: "" },
        Step { name: "browser", work: StepWork::Check(web::test), advice: "" },
        Step {
            name: "doc",
            work: StepWork::Cargo(
                &["doc", "--workspace", "--no-deps"],
                Some(("RUSTDOCFLAGS", "-D warnings")),
            ),
            advice: "mend the links and the markup that rustdoc names",
        },
        Step { name: "fuzz", work: StepWork::Check(fuzz::ci), advice: "" },
    ]);
    steps
}

fn has_nextest() -> bool {
    let asked = Command::new("cargo").args(["nextest", "--version"]).output();
    asked.is_ok_and(|output| output.status.success())
}

fn perform(step: &Step) -> Result<(), Failure> {
    let (program, arguments, variable) = match &step.work {
        StepWork::Check(check) => return check(),
        StepWork::Cargo(arguments, variable) => ("cargo".into(), *arguments, *variable),
        StepWork::Script(words) => (root().join(words[0]), &words[1..], None),
    };
    let shown = format!("{} {}", program.display(), arguments.join(" "));
    let status = Command::new(&program).args(arguments).envs(variable).current_dir(root()).status();
    let status = status.map_err(|error| {
        Failure::new(format!("cannot run `{shown}`: {error}"), "install Rust and its cargo")
    })?;
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
