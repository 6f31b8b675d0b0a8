//! What `qd doctor` says about pi: the program, the Node.js it runs on, and its models.
//!
//! It looks from outside, without starting a session: the server may be down, and pi may be what is broken. Of the
//! credentials only the providers' names are told.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use qd_core::harness::pi::{MINIMUM_VERSION, PiVersionError, check_version};
use serde_json::Value;
use tokio::process::Command;

use crate::driver::{HarnessCheck, HarnessSettings};

const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const TEXT_CHARACTERS_MAX: usize = 160;
/// The server read its settings when it started, maybe elsewhere.
const WHOSE: &str = "pi_command of this shell; the running server may have another";
const INSTALL_ADVICE: &str = "npm install -g @earendil-works/pi-coding-agent, or say where it is: --pi-command (the demo works without it)";

pub(super) async fn checks(settings: &HarnessSettings) -> Vec<HarnessCheck> {
    vec![program(&settings.command).await, node().await, models(&settings.user_dir)]
}

fn ok(name: &'static str, found: impl Into<String>) -> HarnessCheck {
    HarnessCheck { name, found: found.into(), advice: None }
}

fn warning(name: &'static str, found: impl Into<String>, advice: &str) -> HarnessCheck {
    HarnessCheck { name, found: found.into(), advice: Some(advice.to_owned()) }
}

async fn program(words: &[String]) -> HarnessCheck {
    let command = words.join(" ");
    match version_of(words).await {
        Ok(text) => judge(&command, &text),
        Err(problem) => warning("pi", format!("`{command}` {problem} ({WHOSE})"), INSTALL_ADVICE),
    }
}

fn judge(command: &str, text: &str) -> HarnessCheck {
    match check_version(text) {
        Ok(version) => ok("pi", format!("{version} (`{command}`, {WHOSE})")),
        Err(PiVersionError::TooOld { found }) => {
            warning("pi", format!("{found} is too old; {MINIMUM_VERSION} or newer is needed"), INSTALL_ADVICE)
        }
        Err(PiVersionError::Unreadable { .. }) => warning(
            "pi",
            format!("`{command} --version` says '{}'", one_line(text)),
            "is this pi? say which program is with --pi-command",
        ),
    }
}

async fn node() -> HarnessCheck {
    match version_of(&["node".to_owned()]).await {
        Ok(text) => ok("node", one_line(&text)),
        Err(problem) => {
            warning("node", problem.to_string(), "pi runs on Node.js 22 or newer; the demo needs none")
        }
    }
}

/// Whether pi knows any model: a login, or models of its own.
fn models(directory: &Path) -> HarnessCheck {
    const NAME: &str = "models";
    // Names of providers only; what stands behind them is nobody's business here.
    let logins = names(&directory.join("auth.json"), None);
    let providers = names(&directory.join("models.json"), Some("providers"));
    if logins.is_empty() && providers.is_empty() {
        return warning(
            NAME,
            format!("none in {}", directory.display()),
            "pi without keys answers nothing: start `pi` once and use /login, or set a provider's key in the environment of `qd up`",
        );
    }
    let list = |title: &str, names: &[String]| {
        if names.is_empty() { String::new() } else { format!("{title}: {} ", names.join(", ")) }
    };
    ok(NAME, one_line(&format!("{}{}", list("logins", &logins), list("own providers", &providers))))
}

/// The keys of a JSON object in a file, or of one of its fields.
fn names(path: &Path, field: Option<&str>) -> Vec<String> {
    let value: Value = std::fs::read_to_string(path)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let value = field.map_or(&value, |field| &value[field]);
    value.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default()
}

/// Why a program did not say its version; the words follow its name.
#[derive(Debug, thiserror::Error)]
enum VersionError {
    #[error("names no program")]
    NoProgram,
    #[error("is not installed")]
    NotInstalled,
    #[error("cannot be started: {0}")]
    NotStarted(std::io::Error),
    #[error("did not answer in {} s", ANSWER_TIME_MAX.as_secs())]
    NoAnswer,
    #[error("failed ({status}): {complaint}")]
    Failed { status: ExitStatus, complaint: String },
}

/// What a program says to `--version`.
async fn version_of(words: &[String]) -> Result<String, VersionError> {
    let (program, arguments) = words.split_first().ok_or(VersionError::NoProgram)?;
    let run = Command::new(program)
        .args(arguments)
        .arg("--version")
        .env("PI_OFFLINE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = match tokio::time::timeout(ANSWER_TIME_MAX, run).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(VersionError::NotInstalled);
        }
        Ok(Err(error)) => return Err(VersionError::NotStarted(error)),
        Err(_) => return Err(VersionError::NoAnswer),
    };
    let (reply_data, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(VersionError::Failed { status: output.status, complaint: one_line(&complained) });
    }
    // Some versions of pi write theirs to stderr.
    Ok(if reply_data.trim().is_empty() { complained.into_owned() } else { reply_data.into_owned() })
}

/// The first line that says something, bounded.
fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().take(TEXT_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_pi_are_judged() {
        let cases = [
            ("0.84.3\n", true),
            ("pi v0.87.1 (node)", true),
            ("1.5.0", true),
            ("0.84.2", false),
            ("0.9.99", false),
            ("hello", false),
        ];
        for (text, is_ok) in cases {
            assert_eq!(judge("pi", text).advice.is_none(), is_ok, "{text}");
        }
    }

    #[test]
    fn providers_are_named_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        assert!(models(directory.path()).advice.is_some());
        std::fs::write(directory.path().join("auth.json"), r#"{"anthropic":{"key":"secret"}}"#).unwrap();
        std::fs::write(directory.path().join("models.json"), r#"{"providers":{"local":{}}}"#).unwrap();
        assert_eq!(models(directory.path()).found, "logins: anthropic own providers: local");
    }

    #[tokio::test]
    async fn a_missing_program_is_a_warning_with_advice() {
        let check = program(&["/no/such/pi".to_owned()]).await;
        assert!(check.advice.is_some());
        let beginning = "`/no/such/pi` is not installed (pi_command of this shell";
        assert!(check.found.starts_with(beginning), "{}", check.found);
    }
}
