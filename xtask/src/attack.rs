//! Attacks on the running binary (`tests/attack`), after it was built for the tests.

use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::tree::root;

const ADVICE: &str = "an attack that must not succeed did; play it alone with `cargo xtask attack NUMBER`, and see \
                      tests/attack/README.md";

/// Plays the attacks of these numbers, or all.
pub(crate) fn run(numbers: &[&str]) -> Result<(), Failure> {
    let binary = binary()?;
    let mut command = Command::new("python3");
    command.arg(root().join("tests/attack/attack.py")).arg(binary).args(numbers).current_dir(root());
    let status = command.status().map_err(|error| {
        Failure::new(
            format!("cannot run {command:?}: {error}"),
            "install python3 (tests/programs/install.sh)",
        )
    })?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("{command:?} ended with {status}"), ADVICE))
    }
}

/// The server that the tests are run with: it is built beside this program.
fn binary() -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|error| {
        Failure::new(format!("cannot tell where this program is: {error}"), "run it by cargo")
    })?;
    let binary = own.with_file_name("qd");
    if binary.is_file() {
        return Ok(binary);
    }
    Err(Failure::new(format!("{} is missing", binary.display()), "build it: `cargo build -p qd`"))
}
