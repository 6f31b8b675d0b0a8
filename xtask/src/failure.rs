//! What went wrong, and what to do about it.

use std::path::Path;
use std::process::{Command, Stdio};

/// One failure, with the next step for the person who reads it.
#[derive(Debug, thiserror::Error)]
#[error("\nerror: {what}\n  do: {advice}")]
pub(crate) struct Failure {
    what: String,
    advice: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Failure { what: what.into(), advice: advice.into() }
    }

    /// All findings of one check, or nothing when there are none.
    pub(crate) fn unless_empty(check: &str, findings: &[String], advice: &str) -> Result<(), Failure> {
        if findings.is_empty() {
            return Ok(());
        }
        Err(Failure::new(format!("{check}:\n  {}", findings.join("\n  ")), advice))
    }
}

/// Reads a file of the repository.
pub(crate) fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display()), "check the file"))
}

/// Runs a program at the root of the repository and returns what it printed.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let shown = format!("{program} {}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .current_dir(crate::tree::root())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            Failure::new(format!("cannot run `{shown}`: {error}"), format!("install {program}"))
        })?;
    if !output.status.success() {
        return Err(Failure::new(format!("`{shown}` ended with {}", output.status), "see its message above"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
