//! `qd runner list`.

use qd_wire::data::{RunnerInfo, RunnerStatus};
use qd_wire::link::RunnerLoad;

use crate::client::connection;
use crate::clock;
use crate::error::Result;
use crate::output::table::{TableRow, table};
use crate::output::{Output, Style, ago, one_line};
use crate::settings::Settings;

const HEAD: [&str; 9] =
    ["NAME", "STATUS", "HOST", "OS", "VERSION", "HARNESSES", "SESSIONS", "LOAD", "LAST SEEN"];
const TEXT_CHARACTERS_MAX: usize = 40;

/// Prints the runners the hub knows.
pub(super) async fn run(settings: &Settings, output: &Output) -> Result<()> {
    let mut runners = connection::connect(settings, output).await?.runners().await?;
    // Two calls show the same order, so that a person can compare them.
    runners.sort_by(|left, right| left.runner_id.cmp(&right.runner_id));
    output.list(&runners, "no runners; `qd runner invite` lets one join\n", |runners| {
        text(runners, clock::now_ms(), output.style)
    })
}

fn text(runners: &[RunnerInfo], now_ms: i64, style: Style) -> String {
    table(&HEAD, runners.iter().map(|runner| row(runner, now_ms)), style)
}

fn row(runner: &RunnerInfo, now_ms: i64) -> TableRow {
    let short = |text: &str| one_line(text, TEXT_CHARACTERS_MAX);
    let seen = match runner.status {
        RunnerStatus::Online => "now".to_owned(),
        RunnerStatus::Unhealthy | RunnerStatus::Offline => ago(now_ms, runner.last_seen),
    };
    let cells = vec![
        short(&runner.runner_id),
        status(runner).to_owned(),
        short(&runner.hostname),
        short(&runner.os),
        short(&runner.version),
        short(&runner.harnesses.join(",")),
        format!("{}/{}", runner.session_count, runner.max_sessions),
        runner.load.as_ref().map(load).unwrap_or_default(),
        seen,
    ];
    let is_marked = runner.status == RunnerStatus::Unhealthy;
    TableRow { is_marked, ..TableRow::new(cells) }
}

/// How a runner is, in one word.
pub(super) fn status(runner: &RunnerInfo) -> &'static str {
    match (runner.revoked_at, runner.status) {
        (Some(_), _) => "revoked",
        (None, RunnerStatus::Online) => "online",
        (None, RunnerStatus::Unhealthy) => "unhealthy",
        (None, RunnerStatus::Offline) => "offline",
    }
}

/// Processes that want a core, of how many cores.
pub(super) fn load(load: &RunnerLoad) -> String {
    match load.load_1m {
        Some(average) => format!("{average:.1} of {}", load.cpu_count),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn runners_stand_in_a_table() {
        let runner = |id: &str, more: serde_json::Value| {
            let mut value = json!({"runner_id":id,"hostname":format!("{id}.lan"),"os":"linux","version":"0.1.0",
                "status":"online","harnesses":["demo","pi"],"max_sessions":10,"session_count":2,"last_seen":59_000});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            serde_json::from_value::<RunnerInfo>(value).unwrap()
        };
        let runners = [
            runner("desk", json!({"load":{"agents":2,"cpu_count":8,"load_1m":1.26,"spool_bytes":0}})),
            runner("attic", json!({"status":"offline","last_seen":0,"hostname":"at\u{1b}tic"})),
            runner("barn", json!({"status":"unhealthy","last_seen":20_000})),
            runner("old", json!({"status":"offline","revoked_at":1,"last_seen":null})),
        ];
        insta::assert_snapshot!(text(&runners, 60_000, Style::PLAIN));
    }
}
