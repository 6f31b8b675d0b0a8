//! The agents: pi, the node it runs on, and its models.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use super::Check;
use crate::output::one_line;
use crate::settings::{Environment, Words};

/// The oldest pi whose protocol the driver speaks.
const PI_VERSION_MIN: [u64; 3] = [0, 84, 3];
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
const TEXT_CHARACTERS_MAX: usize = 160;
/// The server read its settings when it started, maybe elsewhere.
const WHOSE: &str = "pi_command of this shell; the running server may have another";
const INSTALL_ADVICE: &str = "npm install -g @earendil-works/pi-coding-agent, or say where it is: --pi-command (the demo works without it)";

pub(super) async fn pi(command: &Words) -> Check {
    let words = command.as_slice();
    match version_of(words).await {
        Ok(text) => judge_pi(&words.join(" "), &text),
        Err(problem) => {
            Check::warning("pi", format!("`{}` {problem} ({WHOSE})", words.join(" ")), INSTALL_ADVICE)
        }
    }
}

fn judge_pi(command: &str, text: &str) -> Check {
    match version_in(text) {
        Some(version) if version >= PI_VERSION_MIN => {
            Check::ok("pi", format!("{} (`{command}`, {WHOSE})", dotted(version)))
        }
        Some(version) => Check::warning(
            "pi",
            format!("{} is too old; {} or newer is needed", dotted(version), dotted(PI_VERSION_MIN)),
            INSTALL_ADVICE,
        ),
        None => Check::warning(
            "pi",
            format!("`{command} --version` says '{}'", one_line(text, TEXT_CHARACTERS_MAX)),
            "is this pi? say which program is with --pi-command",
        ),
    }
}

pub(super) async fn node() -> Check {
    match version_of(&["node".to_owned()]).await {
        Ok(text) => Check::ok("node", one_line(&text, TEXT_CHARACTERS_MAX)),
        Err(problem) => {
            Check::warning("node", problem, "pi runs on Node.js 22 or newer; the demo needs none")
        }
    }
}

/// Whether pi knows any model: a login, or models of its own.
pub(super) fn models(environment: &Environment) -> Check {
    const NAME: &str = "models";
    let directory = match (environment.get("PI_CODING_AGENT_DIR"), environment.home()) {
        (Some(directory), _) => PathBuf::from(directory),
        (None, Some(home)) => home.join(".pi/agent"),
        (None, None) => {
            return Check::warning(NAME, "HOME is not set", "set it, so that pi finds its settings");
        }
    };
    // Names of providers only; what stands behind them is nobody's business here.
    let logins = names(&directory.join("auth.json"), None);
    let providers = names(&directory.join("models.json"), Some("providers"));
    if logins.is_empty() && providers.is_empty() {
        return Check::warning(
            NAME,
            format!("none in {}", directory.display()),
            "pi without keys answers nothing: start `pi` once and use /login, or set a provider's key in the environment of `qd up`",
        );
    }
    let list = |title: &str, names: &[String]| {
        if names.is_empty() { String::new() } else { format!("{title}: {} ", names.join(", ")) }
    };
    let found = format!("{}{}", list("logins", &logins), list("own providers", &providers));
    Check::ok(NAME, one_line(&found, TEXT_CHARACTERS_MAX))
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

/// What a program says to `--version`.
async fn version_of(words: &[String]) -> Result<String, String> {
    let Some((program, arguments)) = words.split_first() else { return Err("names no program".to_owned()) };
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
            return Err("is not installed".to_owned());
        }
        Ok(Err(error)) => return Err(format!("cannot be started: {error}")),
        Err(_) => return Err(format!("did not answer in {} s", ANSWER_TIME_MAX.as_secs())),
    };
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() {
        return Err(format!("failed ({}): {}", output.status, one_line(&complained, TEXT_CHARACTERS_MAX)));
    }
    // Some versions of pi write theirs to stderr.
    Ok(if said.trim().is_empty() { complained.into_owned() } else { said.into_owned() })
}

/// The first `x.y.z` in a text.
fn version_in(text: &str) -> Option<[u64; 3]> {
    text.split(|character: char| !character.is_ascii_digit() && character != '.').find_map(|word| {
        let mut numbers = word.split('.').map(|number| number.parse().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    })
}

fn dotted([major, minor, patch]: [u64; 3]) -> String {
    format!("{major}.{minor}.{patch}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Health;

    #[test]
    fn versions_of_pi_are_judged() {
        let cases = [
            ("0.84.3\n", Health::Ok),
            ("pi v0.87.1 (node)", Health::Ok),
            ("1.5.0", Health::Ok),
            ("0.84.2", Health::Warning),
            ("0.9.99", Health::Warning),
            ("hello", Health::Warning),
        ];
        for (text, health) in cases {
            assert_eq!(judge_pi("pi", text).health, health, "{text}");
        }
    }

    #[test]
    fn providers_are_named_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_str().unwrap();
        let environment = Environment::from([("PI_CODING_AGENT_DIR", path)]);
        assert_eq!(models(&environment).health, Health::Warning);
        std::fs::write(directory.path().join("auth.json"), r#"{"anthropic":{"key":"secret"}}"#).unwrap();
        std::fs::write(directory.path().join("models.json"), r#"{"providers":{"local":{}}}"#).unwrap();
        assert_eq!(models(&environment).found.trim(), "logins: anthropic own providers: local");
    }

    #[tokio::test]
    async fn a_missing_program_is_a_warning_with_advice() {
        let check = pi(&Words::one("/no/such/pi")).await;
        assert_eq!(check.health, Health::Warning);
        assert!(
            check.found.starts_with("`/no/such/pi` is not installed (pi_command of this shell"),
            "{}",
            check.found
        );
    }
}
