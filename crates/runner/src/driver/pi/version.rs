//! Which pi is this? Asked once per runner, because every question costs a Node start.

use std::collections::HashSet;
use std::process::Stdio;
use std::time::Duration;

use qd_core::harness::pi::check_version;
use qd_link::mutex::Mutex;
use tokio::process::Command;

use super::Pi;
use super::error::PiStartError;
use crate::config::RunnerConfig;
use crate::driver::HarnessSettings;
use crate::process::Environment;

const VERSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Commands whose pi is known to be new enough. Failures are not kept, so that an upgrade is noticed.
static ACCEPTED: Mutex<Option<HashSet<Vec<String>>>> = Mutex::new(None);

/// Refuses a pi that is missing or too old, by name and version, with what to do.
pub(super) async fn check(runner: &RunnerConfig, settings: &HarnessSettings) -> Result<(), PiStartError> {
    let command = &settings.command;
    if ACCEPTED.lock().get_or_insert_with(HashSet::new).contains(command) {
        return Ok(());
    }
    let (program, arguments) = command.split_first().ok_or(PiStartError::NoCommand)?;
    let environment = Environment { inherit: runner.inherited_by(&Pi), ..Environment::default() };
    let run = Command::new(program)
        .args(arguments)
        .arg("--version")
        // A program that is not pi might wait for input for ever.
        .stdin(Stdio::null())
        .kill_on_drop(true)
        // It gets no more than the agents it will run.
        .env_clear()
        .envs(environment.variables())
        .env("PI_OFFLINE", "1")
        .env("PI_SKIP_VERSION_CHECK", "1")
        .output();
    let output = match tokio::time::timeout(VERSION_TIMEOUT, run).await {
        Err(_) => {
            let (program, seconds) = (program.clone(), VERSION_TIMEOUT.as_secs());
            return Err(PiStartError::NoVersion { program, seconds });
        }
        Ok(Err(error)) => return Err(PiStartError::cannot_run(program, error)),
        Ok(Ok(output)) => output,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(PiStartError::VersionFailed {
            program: program.clone(),
            status: output.status,
            complaint: error.trim().chars().take(2000).collect(),
        });
    }
    check_version(&text)?;
    ACCEPTED.lock().get_or_insert_with(HashSet::new).insert(command.clone());
    Ok(())
}
