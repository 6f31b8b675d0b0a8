//! The browser app: its types are checked, it is built before the binary that carries it, and its tests drive both in a
//! real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::tree::root;

const ADVICE: &str = "run web/install.sh --tests (`make test` does)";
const BROWSER: &str = "/usr/bin/chromium";

/// Checks types, runs the unit tests and builds the app.
pub(crate) fn build() -> Result<(), Failure> {
    let web = root().join("web");
    needed(&web.join("node_modules/vite/bin/vite.js"))?;
    for script in ["check", "unit", "build"] {
        run(&web, &["run", "--silent", script])?;
    }
    Ok(())
}

/// Uses the app as people do, in Chromium, against the built binary.
pub(crate) fn test() -> Result<(), Failure> {
    let web = root().join("web");
    needed(&web.join("node_modules/@playwright/test/cli.js"))?;
    needed(&browser())?;
    run(&web, &["run", "--silent", "test"])
}

fn browser() -> PathBuf {
    std::env::var_os("CHROMIUM").map_or_else(|| PathBuf::from(BROWSER), PathBuf::from)
}

fn needed(path: &Path) -> Result<(), Failure> {
    if path.is_file() {
        return Ok(());
    }
    Err(Failure::new(format!("{} is missing", path.display()), ADVICE))
}

fn run(directory: &Path, arguments: &[&str]) -> Result<(), Failure> {
    let shown = format!("npm {}", arguments.join(" "));
    let status = Command::new("npm")
        .args(arguments)
        .current_dir(directory)
        .env("QD_BINARY", root().join("target/debug/qd"))
        .status()
        .map_err(|error| {
            Failure::new(format!("cannot run `{shown}`: {error}"), "install Node.js with npm")
        })?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{shown}` in web/ ended with {status}"), "see what it printed"))
    }
}
