//! `qd doctor`: what is installed, what works, what to do.
//!
//! Each check says what it found and, if that is not good, what to do. Only what keeps the server from working is a
//! failure; a missing agent is a warning.

mod fleet;
mod machine;
mod pi_server;

use qd_runner::driver::HarnessCheck;
use serde::Serialize;
use serde_json::json;

use crate::client::connection;
use crate::error::{CliError, Result};
use crate::output::{Output, Style, harmless};
use crate::settings::Settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    Ok,
    /// Something works less well, or not at all but is not needed.
    Warning,
    /// The server cannot work so.
    Failed,
}

/// One thing looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    name: &'static str,
    health: Health,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, health: Health::Ok, found: found.into(), advice: None }
    }

    fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, health: Health::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    fn failed(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, health: Health::Failed, found: found.into(), advice: Some(advice.into()) }
    }
}

impl From<HarnessCheck> for Check {
    /// Nothing about a harness is essential: the others work without it.
    fn from(HarnessCheck { name, found, advice }: HarnessCheck) -> Check {
        match advice {
            None => Check::ok(name, found),
            Some(advice) => Check::warning(name, found, advice),
        }
    }
}

/// Looks at everything and says what to do; fails when something essential does.
pub(crate) async fn run(settings: &Settings, output: &Output) -> Result<()> {
    let mut checks = vec![
        machine::data_dir(&settings.data_dir),
        machine::disk_space(&settings.data_dir),
        machine::containment(),
        reachable(settings).await,
        fleet::membership(settings),
    ];
    checks.extend(fleet::hub(settings).await);
    checks.extend([fleet::socket(settings).await, pi_server::ports(settings)]);
    for row in settings.harnesses.iter() {
        checks.extend(row.harness.doctor(&row.settings).await.into_iter().map(Check::from));
    }
    let failed = checks.iter().filter(|check| check.health == Health::Failed).count();
    if output.json {
        output.json_line(
            &json!({ "ok": failed == 0, "version": env!("CARGO_PKG_VERSION"), "checks": checks }),
        )?;
    } else {
        output.out(&text(&checks, output.style))?;
    }
    match failed {
        0 => Ok(()),
        1 => Err(CliError::failed("1 essential check failed")),
        count => Err(CliError::failed(format!("{count} essential checks failed"))),
    }
}

fn text(checks: &[Check], style: Style) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let mark = match check.health {
            Health::Ok => style.green("ok     "),
            Health::Warning => style.yellow("warning"),
            Health::Failed => style.red("failed "),
        };
        text.push_str(&format!("{mark}  {:<width$}  {}\n", check.name, harmless(&check.found)));
        if let Some(advice) = &check.advice {
            text.push_str(&format!("         {:<width$}  → {}\n", "", harmless(advice)));
        }
    }
    text
}

async fn reachable(settings: &Settings) -> Check {
    match connection::connect_hub(settings).await {
        Ok(connection) => {
            let info = connection.client.server();
            Check::ok(
                "server",
                format!("version {}, protocol {}", info.server_version, info.protocol_version),
            )
        }
        // A runner of another machine's hub has no server here, and needs none.
        Err(_) if settings.url.is_none() && connection::is_runner(settings) => {
            Check::ok("server", "elsewhere: this machine is a runner")
        }
        Err(error) => {
            let advice = error.hint.unwrap_or_else(|| "start it with `qd up`".to_owned());
            Check::warning("server", error.message, advice)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_says_what_to_do() {
        let checks = [
            Check::ok("data directory", "/d is writable"),
            Check::warning("pi", "not found", "install it"),
            Check::failed("disk space", "1 MB", "make room"),
        ];
        insta::assert_snapshot!(text(&checks, Style::PLAIN));
    }
}
